"""A text that is null is repaired as an empty list of parts is: every API refuses it, and recordings are full of them."""

from __future__ import annotations

import copy
import json

import pytest

from ctxguard import Stabilizer
from ctxguard.adapting.adapter import stabilize_native
from ctxguard.wire import Guard
from ctxguard.wire.guard import WireRequest
from ctxguard_anthropic import AnthropicAdapter
from ctxguard_bedrock import BedrockAdapter
from ctxguard_google import GoogleAdapter
from ctxguard_langchain import LangChainAdapter
from ctxguard_openai import OpenAIAdapter, ResponsesAdapter

TYPED = {"type": "text", "text": None}
OUTPUT = {"type": "output_text", "text": None}
FORMATS = {
    "chat": (OpenAIAdapter(), "/v1/chat/completions", "messages", "assistant", "content", TYPED, ""),
    "responses": (ResponsesAdapter(), "/v1/responses", "input", "assistant", "content", OUTPUT, ""),
    "anthropic": (AnthropicAdapter(), "/v1/messages", "messages", "assistant", "content", TYPED, "…"),
    "gemini": (GoogleAdapter(), "/v1beta/models/g:generateContent", "contents", "model", "parts", {"text": None}, "…"),
    "bedrock": (BedrockAdapter(), "/model/m/converse", "messages", "assistant", "content", {"text": None}, "…"),
}


def nulls_in(value):
    """Count texts that are null, anywhere."""
    if isinstance(value, dict):
        return sum((key == "text" and one is None) or nulls_in(one) for key, one in value.items())
    return sum(map(nulls_in, value)) if isinstance(value, (list, tuple)) else 0


def history_of(name, before):
    _, _, _, model, content, null, _ = FORMATS[name]
    said = {"type": null["type"], "text": "yes"} if "type" in null else {"text": "yes"}
    asked = {"type": "input_text", "text": "go"} if name == "responses" else {**null, "text": "go"}
    return [
        {"role": "user", content: [asked]},
        {"role": model, content: [said] * before + [copy.deepcopy(null)]},
        {"role": "user", content: [{**asked, "text": "next"}]},
    ]


@pytest.mark.parametrize("before", [0, 1])
@pytest.mark.parametrize("name", FORMATS)
def test_an_adapter_repairs_it_and_says_so(name, before):
    adapter, _, _, _, content, _, instead = FORMATS[name]
    history = history_of(name, before)
    given = copy.deepcopy(history)
    sent, report = stabilize_native(Stabilizer(9_000, on_failure="raise"), adapter, history)
    assert history == given
    assert nulls_in(history) == 1
    assert nulls_in(sent) == 0
    assert sent[1][content] == "" or sent[1][content][-1]["text"] == instead
    assert sent[0] is history[0]
    assert sent[2] is history[2]
    assert "the API refuses a text that is null" in {decision.reason for decision in report.decisions}


@pytest.mark.parametrize("name", FORMATS)
def test_the_guard_on_the_wire_repairs_it(name):
    _, path, field, _, content, _, instead = FORMATS[name]
    body = {"model": "claude-sonnet-4-5", "max_tokens": 5, field: history_of(name, 0)}
    prepared = Guard(Stabilizer(9_000)).prepare(WireRequest("POST", path, {}, json.dumps(body).encode()))
    sent = json.loads(prepared.body)
    assert nulls_in(sent) == 0
    written = sent[field][1][content]
    assert written in (instead, [{**FORMATS[name][5], "text": instead}])


def test_a_message_of_langchain_is_repaired():
    from langchain_core.messages import AIMessage, HumanMessage

    history = [HumanMessage("go"), AIMessage([{"type": "text", "text": None}]), HumanMessage("next")]
    sent, report = stabilize_native(Stabilizer(9_000, on_failure="raise"), LangChainAdapter(), history)
    assert sent[1].content == [{"type": "text", "text": "…"}]
    assert sent[0] is history[0]
    assert report.ok


@pytest.mark.parametrize("name", ["chat", "responses"])
@pytest.mark.parametrize("empty", [[], ()])
def test_an_empty_sequence_of_parts_is_repaired_as_an_empty_list_is(name, empty):
    adapter, _, _, role, *_ = FORMATS[name]
    kept = [{"role": "user", "content": "hi"}, {"role": role, "content": empty}, {"role": "user", "content": "go on"}]
    if name == "responses":
        kept = [{"type": "message", **message} for message in kept]
    written, _ = stabilize_native(Stabilizer(4_000), adapter, kept)
    assert [message["content"] for message in written if message["role"] == role] == [""]
