"""Tool outputs fit a hard limit when they are first seen, and are never changed later."""

from __future__ import annotations

import json

import pytest
from builders import exchange
from hypothesis import given
from hypothesis import strategies as st

from ctxguard import Artifact, Part, Stabilizer, ToolCall
from ctxguard.config import TruncationConfig
from ctxguard.content import FileType
from ctxguard.errors import ConfigError
from ctxguard.pii import DIGITS
from ctxguard.stages import BoundToolOutput, MaskPII
from ctxguard.stages.bound_tool_output import NAMESPACE, ToolBounds
from ctxguard.stores import MemoryStore
from ctxguard.tokens.artifact_counter import MESSAGE_TOKENS

LOG = "\n".join(f"2026-05-01 10:{n // 60:02d}:{n % 60:02d} INFO worker {n} did its job" for n in range(900))


def bounded(history, budget=2_000, before=(), **settings):
    chain = [*before, BoundToolOutput(**settings)]
    return Stabilizer(budget, stages=chain, counter="o200k_base").stabilize([Artifact("user", "go"), *history])


def tokens(stabilized, position):
    return stabilized.report.decisions[position].tokens_after


def test_a_short_output_is_the_same_object():
    history = exchange("short")
    assert bounded(history).artifacts[2] is history[1]


def test_a_long_output_takes_its_share_of_the_budget_and_says_what_is_missing():
    assert tokens(bounded(exchange(LOG), share=0.2), 2) <= 400
    out = bounded(exchange(LOG))
    assert tokens(out, 2) <= 1_000
    assert LOG.splitlines()[0] in out.artifacts[2].text
    assert LOG.splitlines()[-1] in out.artifacts[2].text
    assert "lines" in out.artifacts[2].text
    assert out.report.decisions[2].action == "bounded"


def test_json_stays_json():
    rows = [{"id": n, "name": f"row {n}", "tags": ["a", "b"]} for n in range(400)]
    out = bounded(exchange(json.dumps(rows)))
    assert isinstance(json.loads(out.artifacts[2].text), list)


def test_limits_by_tool_and_a_limit_for_all():
    assert tokens(bounded(exchange(LOG, tool="tail"), tools={"tail": 120}), 2) <= 120
    assert tokens(bounded(exchange(LOG), max_tokens=90), 2) <= 90


ROWS = "id,name,note\n" + "".join(f"{n},name {n},{'words ' * 9}\n" for n in range(900))
AS_TEXT = "".join(f"- key: {n}\n" for n in range(900))


def test_a_preset_of_a_tool_gives_its_tokens_and_its_limits():
    out = bounded(exchange(ROWS, tool="query"), budget=200_000, tools={"query": "sql_query"})
    rows = [line for line in out.artifacts[2].text.splitlines() if line[0].isdigit()]
    assert tokens(out, 2) <= 1_500
    assert len(rows) == 25
    own = TruncationConfig(threshold=50, max_preview_tokens=60)
    assert tokens(bounded(exchange(ROWS, tool="query"), budget=200_000, tools={"query": own}), 2) <= 60


def test_an_output_within_the_threshold_of_its_preset_stays_whole():
    history = exchange(LOG[:2_000], tool="query")
    kept = TruncationConfig(threshold=5_000, max_preview_tokens=60)
    assert bounded(history, tools={"query": kept}).artifacts[2] is history[1]


def test_an_unknown_preset_is_refused():
    with pytest.raises(ConfigError, match="did you mean 'sql_query'"):
        BoundToolOutput(tools={"query": "sql_qury"})


def test_the_type_of_a_tool_comes_before_what_its_output_looks_like():
    assert "# " in bounded(exchange(AS_TEXT)).artifacts[2].text.splitlines()[-1]
    shown = bounded(exchange(AS_TEXT), tools={"run": FileType.TEXT}).artifacts[2].text
    assert "[shortened by ctxguard: lines 1-" in shown
    assert tokens(bounded(exchange(AS_TEXT), tools={"run": ToolBounds(90, file_type=FileType.TEXT)}), 2) <= 90


def test_views_by_one_counter_are_not_taken_for_those_of_another():
    for counter in (lambda text: len(text) // 4, lambda text: 2 * len(text)):
        guard = Stabilizer(100_000, stages=[BoundToolOutput(max_tokens=300)], counter=counter)
        out = guard.stabilize([Artifact("user", "go"), *exchange(LOG)])
        assert tokens(out, 2) <= 300


def test_later_messages_do_not_change_what_was_bounded():
    history = exchange(LOG)
    first = bounded(history).artifacts[2].text
    grown = [*history, Artifact("assistant", "seen"), Artifact("user", "more"), *exchange(LOG + "x", LOG + "y")]
    assert bounded(grown, share=0.2).artifacts[2].text == bounded(history, share=0.2).artifacts[2].text
    assert bounded(grown[:3]).artifacts[2].text == first


def test_the_full_text_goes_to_the_store_and_the_marker_names_its_handle():
    store = MemoryStore()
    out = bounded(exchange(LOG), store=store)
    (handle,) = store.keys(NAMESPACE)
    assert handle in out.artifacts[2].text
    assert store.get(NAMESPACE, handle).decode() == LOG
    assert handle.isalpha()


def test_a_plan_writes_nothing():
    store = MemoryStore()
    guard = Stabilizer(2_000, stages=[BoundToolOutput(store=store)])
    report = guard.plan([Artifact("user", "go"), *exchange(LOG)])
    assert list(store.keys(NAMESPACE)) == []
    assert report.decisions[2].action == "bounded"


def test_the_marker_itself_is_masked_where_it_would_count_as_personal_data():
    out = bounded(exchange(LOG.replace("2026", "at")), before=[MaskPII(DIGITS)])
    assert out.report.ok, str(out.report)
    assert not DIGITS.scan(out.artifacts[2].text)


def test_an_output_in_which_nothing_can_be_shortened_is_kept_and_not_called_bounded():
    media = (Part("image", tokens=9_000), Part("text", ""))
    history = [exchange("x")[0], Artifact("tool", media, answers="0")]
    result = bounded(history, budget=20_000)
    assert result.artifacts[2] is history[1]
    assert result.report.counts() == {"kept": 3}


def test_media_parts_of_an_output_stay():
    image = Part("image", tokens=85)
    call = Artifact("assistant", "", calls=(ToolCall("shot", "{}", "1"),))
    out = bounded([call, Artifact("tool", (Part("text", LOG), image), answers="1")])
    assert out.artifacts[2].content[1] is image
    assert tokens(out, 2) <= 1_000


@given(st.text(min_size=1, max_size=3_000), st.integers(1, 80))
def test_the_limit_is_hard_for_any_text(text, limit):
    out = bounded(exchange(text * 3), max_tokens=limit)
    assert tokens(out, 2) <= max(limit, MESSAGE_TOKENS)
