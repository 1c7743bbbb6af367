"""Breakpoints for the prompt caches of OpenAI and Anthropic, and what providers say about their caches."""

from __future__ import annotations

import copy
import json

import pytest
from anthropic.types import Message
from openai.types.chat import completion_create_params as chat_params
from openai.types.responses import Response, response_create_params
from pydantic import TypeAdapter

from ctxguard import Stabilizer
from ctxguard.formats.registry import format_of
from ctxguard.wire.caches import Diagnosis, diagnosis_of, with_breakpoints
from ctxguard.wire.guard import Guard, WireRequest
from ctxguard.wire.metering import Billed

MARK = {"mode": "explicit"}
CHAT = [
    {"role": "system", "content": "Help."},
    {"role": "developer", "content": [{"type": "text", "text": "Be brief."}]},
    {"role": "user", "content": "Read the files."},
    {"role": "assistant", "content": "Which?"},
    {"role": "user", "content": [{"type": "text", "text": "All of them."}]},
]
RESPONSES = [{**one, "content": one["content"] if isinstance(one["content"], str) else "Be brief."} for one in CHAT]
PATHS = {"chat": "/v1/chat/completions", "responses": "/v1/responses"}


def sent(body, *, api="chat", **settings):
    guard = Guard(Stabilizer(100_000), **{"cache_control": True, **settings})
    return json.loads(guard.prepare(WireRequest("POST", PATHS[api], {}, json.dumps(body).encode())).body)


def marked(members):
    """Return the positions of the messages whose last block has a breakpoint."""
    blocks = {at: one["content"] for at, one in enumerate(members) if isinstance(one["content"], list)}
    return [at for at, content in blocks.items() if content[-1].get("prompt_cache_breakpoint") == MARK]


def texts(members):
    return [
        one["content"] if isinstance(one["content"], str) else "".join(block["text"] for block in one["content"])
        for one in members
    ]


@pytest.mark.parametrize("model", ["gpt-5.6", "gpt-5.6-sol", "gpt-6", "gpt-6.1-terra", "openai/gpt-6-luna"])
def test_what_no_cut_changes_is_marked(model):
    chat = sent({"model": model, "messages": CHAT})["messages"]
    assert marked(chat) == [1, 2]
    assert texts(chat) == texts(CHAT)
    responses = sent({"model": model, "input": RESPONSES}, api="responses")["input"]
    assert marked(responses) == [1, 2]
    assert responses[2]["content"][0]["type"] == "input_text"
    assert marked(sent({"model": model, "input": "Hello."}, api="responses")["input"]) == [0]


def test_the_official_types_take_what_is_sent():
    chat, responses = (
        sent({"model": "gpt-6", "messages": CHAT}),
        sent({"model": "gpt-6", "input": RESPONSES}, api="responses"),
    )
    TypeAdapter(chat_params.CompletionCreateParamsNonStreaming).validate_python(chat)
    TypeAdapter(response_create_params.ResponseCreateParamsNonStreaming).validate_python(responses)


@pytest.mark.parametrize("model", ["gpt-5.5", "gpt-4o", "gpt-4.1", "gpt-5", "o3", "llama-gpt-6x9", "gpt-oss-120b"])
def test_other_models_get_none(model):
    assert marked(sent({"model": model, "messages": CHAT})["messages"]) == []


CLAUDE = {"model": "claude-sonnet-4-5", "max_tokens": 9, "system": "Help.", "messages": [CHAT[2]]}
EPHEMERAL = {"type": "ephemeral"}
DOCUMENT = {"type": "content", "content": [{"type": "text", "text": "Part.", "cache_control": EPHEMERAL}]}


@pytest.mark.parametrize(
    "changes",
    [
        {"cache_control": EPHEMERAL},
        {"messages": [{"role": "user", "content": [{"type": "document", "source": DOCUMENT}]}]},
    ],
)
def test_a_mark_of_the_client_is_found_wherever_it_stands(changes):
    body = {**CLAUDE, **changes}
    kind = format_of("POST", "/v1/messages")
    assert with_breakpoints(body, kind, body["model"]) is body
    assert json.dumps(with_breakpoints(CLAUDE, kind, body["model"])).count("cache_control") == 2


@pytest.mark.parametrize(("path", "model"), [("/v1/messages", "claude-sonnet-4-5"), (PATHS["chat"], "gpt-5.6")])
def test_an_empty_text_gets_no_mark(path, model):
    empty = [{"role": "user", "content": [{"type": "text", "text": "Hi."}, {"type": "text", "text": ""}]}]
    marks = with_breakpoints({"model": model, "messages": empty}, format_of("POST", path), model)
    assert marks == {"model": model, "messages": empty}


def test_what_the_client_chose_stays():
    own = copy.deepcopy(CHAT)
    own[4]["content"][-1]["prompt_cache_breakpoint"] = MARK
    assert marked(sent({"model": "gpt-6", "messages": own})["messages"]) == [4]
    for mode in ("implicit", "explicit"):
        body = {"model": "gpt-6", "messages": CHAT, "prompt_cache_options": {"mode": mode}}
        assert sent(body)["messages"] == CHAT
    assert marked(sent({"model": "gpt-6", "messages": CHAT, "prompt_cache_options": {"ttl": "12h"}})["messages"])
    assert sent({"model": "gpt-6", "messages": CHAT}, cache_control=False)["messages"] == CHAT


# -- what providers say

MISS = {"type": "cache_miss", "reason": "tools_changed", "cache_missed_tokens": 900}
OPENAI = {
    "id": "r",
    "created_at": 0,
    "model": "gpt-6",
    "object": "response",
    "output": [],
    "tools": [],
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "prompt_cache_diagnostics": MISS,
}
ANTHROPIC = {
    "id": "m",
    "type": "message",
    "role": "assistant",
    "model": "claude",
    "content": [],
    "stop_reason": "end_turn",
    "stop_sequence": None,
    "usage": {"input_tokens": 2_000, "output_tokens": 1},
    "diagnostics": {"cache_miss_reason": {"type": "messages_changed", "cache_missed_input_tokens": 1_500}},
}


def test_the_recorded_forms_are_those_of_the_official_types():
    assert Response.model_validate(OPENAI).prompt_cache_diagnostics.reason == "tools_changed"
    assert Message.model_validate(ANTHROPIC).diagnostics.cache_miss_reason.type == "messages_changed"


@pytest.mark.parametrize(
    ("answer", "diagnosis"),
    [
        (OPENAI, Diagnosis("fixed_parts", 900)),
        ({"type": "response.completed", "response": OPENAI}, Diagnosis("fixed_parts", 900)),
        (ANTHROPIC, Diagnosis("history", 1_500)),
        ({"type": "message_start", "message": ANTHROPIC}, Diagnosis("history", 1_500)),
        ({"prompt_cache_diagnostics": {"type": "cache_hit"}}, Diagnosis("", 0)),
        ({"prompt_cache_diagnostics": {"type": "unavailable"}}, None),
        ({"prompt_cache_diagnostics": {"type": "comparison_response_not_found"}}, None),
        ({"diagnostics": {"cache_miss_reason": {"type": "previous_message_not_found"}}}, None),
        ({"diagnostics": {"cache_miss_reason": None}}, None),
        ({"diagnostics": None}, None),
        ({"prompt_cache_diagnostics": [MISS]}, None),
        ([], None),
    ],
)
def test_diagnoses_are_read(answer, diagnosis):
    assert diagnosis_of(answer) == diagnosis


REASONS = (
    *("model_changed", "prompt_cache_key_changed", "tools_changed", "text_format_changed", "reasoning_effort_changed"),
    *("verbosity_changed", "context_compacted", "input_changed", "service_tier_changed"),
    *("messages_changed", "system_changed"),
)


@pytest.mark.parametrize("reason", REASONS)
def test_each_reason_has_a_meaning(reason):
    openai = {"prompt_cache_diagnostics": {"type": "cache_miss", "reason": reason, "cache_missed_tokens": 1}}
    anthropic = {"diagnostics": {"cache_miss_reason": {"type": reason, "cache_missed_input_tokens": 1}}}
    assert diagnosis_of(openai) == diagnosis_of(anthropic) is not None


@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])
def test_what_the_provider_says_is_counted_in_place_of_a_guess(streams):
    guard = Guard(Stabilizer(100_000))
    body = {"model": "claude-sonnet-4-5", "max_tokens": 9, "messages": [{"role": "user", "content": "Hello."}]}
    prepared = guard.prepare(WireRequest("POST", "/v1/messages", {}, json.dumps(body).encode()))
    billed = Billed(guard.metrics, prepared.billed_to, prepared.prompt)
    event = {"type": "message_start", "message": ANTHROPIC} if streams else ANTHROPIC
    billed.feed(
        f"event: message_start\ndata: {json.dumps(event)}\n\n".encode() if streams else json.dumps(event).encode()
    )
    billed.close()
    assert guard.metrics.by("cache.misses", "reason") == {"history": 1}
    assert guard.metrics.get("cache.missed.tokens") == 1_500
