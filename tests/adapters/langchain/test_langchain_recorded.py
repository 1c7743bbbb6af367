"""Recorded sessions go through LangChain messages without breaking a law, and with the decisions of the dicts."""

from __future__ import annotations

import gzip
import json

import pytest
from conversions import as_langchain_sends, langchain_of
from recordings import RECORDINGS

from ctxguard import Stabilizer
from ctxguard.adapting.adapter import stabilize_native
from ctxguard.errors import BudgetExceededError
from ctxguard.testing import law_findings
from ctxguard.tokens.artifact_counter import REPLY_TOKENS
from ctxguard_langchain import LangChainAdapter
from ctxguard_openai import OpenAIAdapter

pytestmark = pytest.mark.recordings
RECORDED = RECORDINGS / "transcripts"
STEP = 9
"""Every ninth session: all of them take minutes."""


def sessions():
    if not RECORDED.is_dir():
        return []
    found = []
    for path in sorted(RECORDED.glob("*.jsonl.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            found += [json.loads(line) for line in lines]
    return found[::STEP]


@pytest.fixture(scope="module")
def recorded():
    found = sessions()
    if not found:
        pytest.skip(f"no recorded sessions in {RECORDED.name} beside the checkout")
    return found


def outcome(stabilizer, adapter, native):
    try:
        result, report = stabilize_native(stabilizer, adapter, native)
    except BudgetExceededError as error:
        return [], (error.needed, error.parts)
    decisions = [
        (str(d.artifact.kind), d.artifact.text, d.action, d.tokens_before, d.tokens_after) for d in report.decisions
    ]
    return result, (report.ok, report.tokens_before, report.tokens_after, decisions)


@pytest.mark.slow
@pytest.mark.parametrize("budget", [2_000, 8_000])
def test_the_laws_hold_and_the_decisions_are_those_of_the_dicts(recorded, budget):
    stabilizer = Stabilizer(budget, counter="estimate")
    langchain, openai = LangChainAdapter(), OpenAIAdapter()
    for session in recorded:
        dicts = as_langchain_sends(session["messages"])
        messages = langchain_of(session["messages"])
        before = [message.model_dump_json() for message in messages]
        result, told = outcome(stabilizer, langchain, messages)
        assert told == outcome(stabilizer, openai, dicts)[1], session["id"]
        assert [message.model_dump_json() for message in messages] == before, session["id"]
        if result:
            again, _ = outcome(stabilizer, langchain, result)
            assert again == result, session["id"]


@pytest.mark.slow
def test_the_structural_laws_hold_for_what_is_written(recorded):
    stabilizer, adapter, judged = Stabilizer(2_000, counter="estimate"), LangChainAdapter(), 0
    for session in recorded:
        history = adapter.read(langchain_of(session["messages"]))
        try:
            result = stabilizer.stabilize(history, overhead=REPLY_TOKENS)
        except BudgetExceededError as error:
            assert error.needed > 2_000, session["id"]
            continue
        judged += 1
        assert not law_findings(history, result.artifacts, stabilizer, overhead=REPLY_TOKENS), session["id"]
        written = adapter.write([], result.artifacts)
        assert [a.text for a in adapter.read(written)] == [a.text for a in result.artifacts], session["id"]
    assert judged > len(recorded) / 2
