"""Parallel calls of which only some were answered when the next request goes out."""

from __future__ import annotations

import pytest

from ctxguard import Stabilizer, guard
from ctxguard.adapting.registry import require_adapter
from ctxguard.stages.arrival import INTERRUPTED


def anthropic(*answered):
    uses = [{"type": "tool_use", "id": f"t{n}", "name": "look", "input": {"n": n}} for n in range(3)]
    results = [{"type": "tool_result", "tool_use_id": f"t{n}", "content": f"page {n}"} for n in answered]
    return [
        {"role": "user", "content": "Look at all pages."},
        {"role": "assistant", "content": uses},
        *([{"role": "user", "content": results}] if results else []),
    ]


def bedrock(*answered):
    uses = [{"toolUse": {"toolUseId": f"t{n}", "name": "look", "input": {"n": n}}} for n in range(3)]
    results = [{"toolResult": {"toolUseId": f"t{n}", "content": [{"text": f"page {n}"}]}} for n in answered]
    return [
        {"role": "user", "content": [{"text": "Look at all pages."}]},
        {"role": "assistant", "content": uses},
        *([{"role": "user", "content": results}] if results else []),
    ]


def gemini(*answered):
    calls = [{"functionCall": {"name": f"look{n}", "args": {"n": n}}} for n in range(3)]
    results = [{"functionResponse": {"name": f"look{n}", "response": {"output": f"page {n}"}}} for n in answered]
    return [
        {"role": "user", "parts": [{"text": "Look at all pages."}]},
        {"role": "model", "parts": calls},
        *([{"role": "user", "parts": results}] if results else []),
    ]


def pydantic_ai(*answered):
    messages = pytest.importorskip("pydantic_ai.messages")
    calls = [messages.ToolCallPart("look", {"n": n}, f"t{n}") for n in range(3)]
    results = [messages.ToolReturnPart("look", f"page {n}", f"t{n}") for n in answered]
    return [
        messages.ModelRequest([messages.UserPromptPart("Look at all pages.")]),
        messages.ModelResponse(calls),
        *([messages.ModelRequest(results)] if results else []),
    ]


FORMATS = pytest.mark.parametrize("conversation", [anthropic, bedrock, gemini, pydantic_ai])


@FORMATS
@pytest.mark.parametrize("answered", [(0,), (1,), (2,), (0, 2), (1, 2), (1, 0)])
def test_a_message_with_some_of_the_results_gets_the_others(conversation, answered):
    sent = guard(conversation(*answered), budget=4_000)
    assert sent.report.ok, str(sent.report)
    if conversation is not pydantic_ai:  # which joins requests in a row by itself
        assert len(sent) == 3
    told = _outputs(list(sent))
    assert sorted(told) == sorted([*_outputs(conversation(*answered)), *[INTERRUPTED] * (3 - len(answered))])
    assert guard(list(sent), budget=4_000) == list(sent)


def _outputs(messages):
    return [artifact.text for artifact in require_adapter(messages).read(messages) if artifact.kind == "tool"]


@FORMATS
@pytest.mark.parametrize("answered", [(), (0, 1, 2)])
def test_calls_that_all_wait_and_calls_that_are_all_answered_stay_as_they_are(conversation, answered):
    messages = conversation(*answered)
    sent = guard(messages, budget=4_000)
    assert all(was is now for was, now in zip(messages, sent, strict=True))


@FORMATS
def test_results_that_come_later_take_the_place_of_what_stood_for_them(conversation):
    stabilizer = Stabilizer(4_000)
    adapter = require_adapter(conversation(0))
    session = stabilizer.session(adapter=adapter)
    session.extend(conversation(0))
    assert INTERRUPTED in str(session.context().messages)
    session.append(conversation(1, 2)[-1])
    assert INTERRUPTED not in str(session.context().messages)
