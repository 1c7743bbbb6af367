"""Our counts against what providers reported for recorded requests: the targets, and the table that reports quote."""

from __future__ import annotations

import gzip
import sys

import pytest
from recordings import RECORDINGS

from ctxguard.errors import CtxguardError
from ctxguard.formats.usage import Errors, compared, usages_in
from ctxguard.tokens import find_counter
from ctxguard.tokens.counters import TEKKEN, find_vocabulary
from ctxguard.tokens.families import MEASURED

DATA = RECORDINGS / "usage" / "requests.jsonl.gz"
pytestmark = pytest.mark.recordings
recorded = pytest.mark.skipif(not DATA.exists(), reason="../shared/data/usage is not here")
OPENAI = ("openai", "azure", "api")


def usages():
    with gzip.open(DATA, "rt", encoding="utf-8") as lines:
        return list(usages_in(lines, DATA.name))


@pytest.fixture(scope="module")
def rows():
    return compared(usages())


def plain_and_tools(rows, provider):
    return [
        row
        for row in rows
        if provider(row.usage) and row.usage.feature in ("plain", "tools") and not row.counted.uncounted
    ]


@recorded
def test_openai_without_media_and_tools_of_its_own(rows):
    def is_openai(usage):
        return usage.provider in OPENAI and usage.api in ("chat", "responses")

    errors = Errors.of(plain_and_tools(rows, is_openai))
    assert errors.requests > 100
    assert errors.within_3 >= 0.95
    assert errors.under == 0


@recorded
def test_anthropic_plain_and_with_client_tools(rows):
    errors = Errors.of(plain_and_tools(rows, lambda usage: usage.api == "anthropic"))
    assert errors.within_5 >= 0.9
    assert errors.under <= 0.05


@recorded
def test_gemini_mistral_and_the_others(rows):
    errors = Errors.of(plain_and_tools(rows, lambda usage: usage.api != "anthropic" and usage.provider not in OPENAI))
    assert errors.requests > 150
    assert errors.within_10 >= 0.85


@recorded
def test_what_we_say_with_the_margin_holds(rows):
    assert Errors.of(plain_and_tools(rows, lambda _usage: True)).exceeded <= 0.02


@recorded
@pytest.mark.skipif(not find_vocabulary(TEKKEN), reason="the table was measured with mistral-common")
def test_reports_quote_what_the_benchmark_measures(rows, monkeypatch):
    sys.modules.pop("usage", None)
    import usage

    assert usage.measured(rows) == MEASURED


@pytest.mark.slow
@recorded
@pytest.mark.parametrize("kin", ["gpt-4o", "gpt-5", "claude-4"])
def test_the_table_holds_for_recordings_that_it_was_not_fitted_on(rows, monkeypatch, kin):
    pytest.importorskip("numpy")
    import left_out

    named = zip(rows, left_out.recordings(DATA), strict=True)
    cases = [
        left_out.case_of(row, name)
        for row, name in named
        if row.usage.kin == kin and row.usage.feature in ("plain", "tools") and not row.counted.uncounted
    ]
    _, share, flat = left_out.KINS[kin]
    counter = find_counter(model=cases[0].row.usage.model)
    assert left_out.left_out(cases, counter.family, share, flat).within >= 0.88


@recorded
def test_without_a_vocabulary_the_estimate_stays_near(rows):
    del rows
    estimated = compared(usages(), counter="estimate")
    countable = plain_and_tools(estimated, lambda usage: usage.provider in (*OPENAI, "anthropic"))
    assert sum(row.is_within(0.25, 0) for row in countable) >= 0.9 * len(countable)
    assert Errors.of(countable).exceeded <= 0.03


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "a:1 is not JSON"),
        ("[]", "a:1 is not a record"),
        ('{"request": {"messages": []}}', "a:1 has no 'request' with the 'input_tokens'"),
        ('{"request": {"messages": []}, "input_tokens": 3}', "a:1 names no model"),
        ('{"request": {"x": 1}, "input_tokens": 3, "model": "gpt-5"}', "no 'messages', 'input', or 'contents'"),
    ],
)
def test_a_line_that_is_no_record_is_named(line, said):
    with pytest.raises(CtxguardError, match=said):
        list(usages_in([line], "a"))
