"""The same conversation leads to the same decisions in every format, and the recorded sessions break no law in any."""

from __future__ import annotations

import copy
import json
from dataclasses import replace

import pytest
from builders import chat_call, chat_of
from conversions import anthropic_of, bare, is_plain, langchain_of, pydantic_ai_of, recorded, responses_of
from hypothesis import given, settings
from hypothesis import strategies as st

from ctxguard import Stabilizer
from ctxguard.adapting.adapter import stabilize_native
from ctxguard.errors import BudgetExceededError
from ctxguard.testing import histories, law_findings
from ctxguard_anthropic import AnthropicAdapter
from ctxguard_openai import OpenAIAdapter, ResponsesAdapter


def _pydantic_ai():
    pytest.importorskip("pydantic_ai", reason="PydanticAI is not installed (extra pydantic-ai)")
    from ctxguard_pydantic_ai import PydanticAIAdapter

    return PydanticAIAdapter()


def _langchain():
    pytest.importorskip("langchain_core", reason="LangChain is not installed (extra langchain)")
    from ctxguard_langchain import LangChainAdapter

    return LangChainAdapter()


class ResponsesOfOneItem(ResponsesAdapter):
    """Without what further items of a message cost: only Responses sends a message and its calls as several items."""

    def read(self, native):
        return [
            replace(one, fields=tuple(field for field in one.fields if field.text or field.place))
            for one in super().read(native)
        ]


FORMATS = {
    "langchain": (_langchain, langchain_of),
    "responses": (ResponsesOfOneItem, responses_of),
    "anthropic": (AnthropicAdapter, anthropic_of),
    "pydantic-ai": (_pydantic_ai, pydantic_ai_of),
}
STABILIZERS = {budget: Stabilizer(budget, counter="estimate") for budget in (200, 600, 2_000, 8_000)}


def chat_for(adapter):
    """Return the adapter of chat completions, held to what the API of another adapter refuses by itself."""
    rules = {
        name: getattr(adapter, name)
        for name in ("last_stage", "starts_with_user", "call_ids")
        if hasattr(adapter, name)
    }
    if "last_stage" in rules:
        rules["last_stage"] = staticmethod(rules["last_stage"])
    return type("ChatOfTheSameRules", (OpenAIAdapter,), rules)()


def decisions(adapter, native, budget):
    """Return what was decided for each artifact, or what was said not to fit."""
    try:
        # stale thinking is a rule of one provider alone
        _, report = stabilize_native(STABILIZERS[budget], adapter, native, keep_thinking=True)
    except BudgetExceededError as error:
        return error.needed
    return [(d.position, d.artifact.kind, d.action, d.tokens_before, d.tokens_after) for d in report.decisions]


@pytest.mark.parametrize("format_name", FORMATS)
@given(history=histories(max_turns=8), budget=st.sampled_from([200, 600]))
@settings(max_examples=15, deadline=None)
def test_generated_conversations_are_decided_alike(format_name, history, budget):
    make, convert = FORMATS[format_name]
    adapter = make()
    messages = bare(chat_of(history))
    assert decisions(adapter, convert(messages), budget) == decisions(chat_for(adapter), messages, budget)


@pytest.mark.slow
@pytest.mark.parametrize("budget", [2_000, 8_000])
@pytest.mark.parametrize("format_name", FORMATS)
def test_recorded_conversations_are_decided_alike(transcripts, format_name, budget):
    make, convert = FORMATS[format_name]
    adapter, compared, acted = make(), 0, set()
    for identity, recording in recorded(transcripts, every=12):
        messages = bare(recording) if is_plain(recording) else None
        if messages is None:
            continue
        found = decisions(adapter, convert(messages), budget)
        assert found == decisions(chat_for(adapter), messages, budget), identity
        compared += 1
        acted |= {decision[2] for decision in found} if isinstance(found, list) else set()
    assert compared > 20
    assert acted >= {"kept", "masked", "bounded", "dropped"}


@pytest.mark.slow
@pytest.mark.parametrize("budget", [2_000, 8_000])
@pytest.mark.parametrize("format_name", FORMATS)
def test_recorded_conversations_break_no_law(transcripts, format_name, budget):
    make, convert = FORMATS[format_name]
    adapter, stabilizer, done = make(), STABILIZERS[budget], 0
    for identity, recording in recorded(transcripts, every=12):
        native = convert(recording)
        untouched = copy.deepcopy(native)
        try:
            once, report = stabilize_native(stabilizer, adapter, native)
        except BudgetExceededError as error:
            assert error.needed > budget, identity
            continue
        assert report.ok, (identity, str(report))
        assert report.tokens_after <= budget
        read = adapter.read(once)
        assert not law_findings(read, read, stabilizer), identity
        again, _ = stabilize_native(stabilizer, adapter, once)
        assert again == once, f"{identity}: stabilising the result again changed it"
        assert native == untouched, f"{identity}: the input was changed"
        done += 1
    assert done > 20


@pytest.mark.parametrize("budget", [120, 200, 400])
@pytest.mark.parametrize("format_name", FORMATS)
def test_shortened_arguments_are_no_larger_when_they_are_read_again(format_name, budget):
    make, convert = FORMATS[format_name]
    adapter, stabilizer = make(), Stabilizer(2 * budget, counter=lambda text: len(text) // 2)
    call = chat_call("a", "f", json.dumps({"q": "word " * 3_000}))
    asked, called = {"role": "user", "content": "hi"}, {"role": "assistant", "content": "", "tool_calls": [call]}
    native = convert([asked, called, {"role": "tool", "tool_call_id": "a", "content": "found"}, asked])
    once, report = stabilize_native(stabilizer, adapter, native)
    again, reread = stabilize_native(stabilizer, adapter, once)
    assert reread.tokens_before == report.tokens_after <= 2 * budget
    assert again == once
