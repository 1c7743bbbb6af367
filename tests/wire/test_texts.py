"""Which texts of a body are searched: all of them, but for a few fields that are named here."""

from __future__ import annotations

import copy
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ctxguard import Stabilizer
from ctxguard.errors import CheckFailedError, CtxguardError
from ctxguard.formats.registry import FORMATS
from ctxguard.wire.guard import Guard, WireRequest

MAIL, CARD = "zora@mailhost.org", "4111 1111 1111 1111"
USER = {"role": "user", "content": "hi"}
BODIES = {
    "chat": {
        "model": "m",
        "messages": [
            USER,
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a": {}}'}}],
            },
            {"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "found"}]},
            {"role": "user", "content": [{"type": "text", "text": "and now?"}]},
        ],
        "tools": [{"type": "function", "function": {"name": "f", "parameters": {"properties": {"a": {}}}}}],
        "metadata": {"of": "x"},
    },
    "responses": {
        "model": "m",
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "hi"}]},
            {"type": "function_call", "call_id": "c", "name": "f", "arguments": '{"a": {}}'},
            {"type": "function_call_output", "call_id": "c", "output": "found"},
            {"type": "mcp_call", "id": "m", "name": "x", "server_label": "s", "arguments": "{}", "output": "o"},
            {"role": "user", "content": "and now?"},
        ],
        "tools": [{"type": "mcp", "server_label": "s", "server_url": "https://x.org"}, {"type": "web_search"}],
        "prompt": {"id": "p", "variables": {"a": "b"}},
    },
    "anthropic": {
        "model": "m",
        "system": [{"type": "text", "text": "Be kind."}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "hi"}]},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {"a": {"b": 1}}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "found"}]},
            {"role": "assistant", "content": [{"type": "hologram", "of": {"a": "b"}}]},
            USER,
        ],
        "tools": [{"name": "f", "input_schema": {"properties": {"a": {}}}}],
        "mcp_servers": [{"type": "url", "name": "s", "url": "https://x.org"}],
        "metadata": {"user_id": "u"},
    },
    "gemini": {
        "systemInstruction": {"parts": [{"text": "Be kind."}]},
        "contents": [
            {"role": "user", "parts": [{"text": "hi"}]},
            {"role": "model", "parts": [{"functionCall": {"name": "f", "args": {"a": {"b": 1}}}}]},
            {"role": "user", "parts": [{"functionResponse": {"name": "f", "response": {"r": {"s": "found"}}}}]},
            {"role": "model", "parts": [{"hologram": {"a": "b"}}]},
            {"role": "user", "parts": [{"text": "and now?"}]},
        ],
        "tools": [{"functionDeclarations": [{"name": "f", "parameters": {"properties": {"a": {}}}}]}],
        "labels": {"a": "b"},
    },
    "converse": {
        "system": [{"text": "Be kind."}],
        "messages": [
            {"role": "user", "content": [{"text": "hi"}]},
            {"role": "assistant", "content": [{"toolUse": {"toolUseId": "t", "name": "f", "input": {"a": {"b": 1}}}}]},
            {"role": "user", "content": [{"toolResult": {"toolUseId": "t", "content": [{"json": {"r": "found"}}]}}]},
            {"role": "assistant", "content": [{"text": "ok"}]},
            {"role": "user", "content": [{"text": "and now?"}]},
        ],
        "toolConfig": {"tools": [{"toolSpec": {"name": "f", "inputSchema": {"json": {"properties": {"a": {}}}}}}]},
        "requestMetadata": {"a": "b"},
    },
}
BODIES["ollama"] = BODIES["cohere"] = {key: value for key, value in BODIES["chat"].items() if key != "metadata"}
PATHS = {
    "chat": "/v1/chat/completions",
    "cohere": "/v2/chat",
    "ollama": "/api/chat",
    "responses": "/v1/responses",
    "anthropic": "/v1/messages",
    "gemini": "/v1beta/models/g:generateContent",
    "converse": "/model/m/converse",
}
CREDENTIALS = {
    "responses": {("tools", 0, "headers"), ("tools", 0, "authorization")},
    "anthropic": {("mcp_servers", 0, "authorization_token")},
}
"""The fields that are not searched: the documented list."""
KEYS = [
    "headers",
    "authorization",
    "authorization_token",
    "extra_headers",
    "api_key",
    "token",
    "metadata",
    "id",
    "name",
    "url",
    "data",
    "signature",
    "type",
    "image_url",
    "file_data",
    "bytes",
    "text",
    "content",
    "args",
    "arguments",
    "input",
    "response",
    "json",
    "description",
    "default",
    "enum",
    "x-own",
]


def dicts_of(value, path=()):
    """Walk the objects of a body with their places."""
    if isinstance(value, dict):
        yield path, value
    for key, member in value.items() if isinstance(value, dict) else enumerate(value):
        if isinstance(member, (dict, list)):
            yield from dicts_of(member, (*path, key))


def sent(api, body):
    guard = Guard(Stabilizer(9_000))
    return guard.prepare(WireRequest("POST", PATHS[api], {}, json.dumps(body).encode())).body.decode()


@pytest.mark.parametrize("api", BODIES)
@settings(max_examples=6 * settings.default.max_examples)  # there are many keys and places
@given(data=st.data(), key=st.sampled_from(KEYS), deep=st.booleans(), value=st.sampled_from([MAIL, CARD]))
def test_no_key_at_any_place_of_a_body_hides_what_is_below_it(api, data, key, deep, value):
    body = copy.deepcopy(BODIES[api])
    path, holder = data.draw(st.sampled_from(list(dicts_of(body))))
    holder[key] = {"deep": [{"er": value}]} if deep else value
    try:
        written = sent(api, body)
    except CtxguardError as error:
        assert value not in str(error)
        return
    assert (value in written) == ((*path, key) in CREDENTIALS.get(api, ()))


@pytest.mark.parametrize("key", ["headers", "authorization", "authorization_token"])
def test_a_key_of_a_credential_hides_nothing_elsewhere(key):
    assert MAIL not in sent("chat", {"messages": [USER], "metadata": {key: MAIL}})
    assert MAIL not in sent("chat", {"messages": [USER], "tools": [{"type": "mcp", key: MAIL}]})
    assert MAIL not in sent("responses", {"input": [USER], "tools": [{"type": "web_search", key: MAIL}]})


def test_a_tool_whose_credentials_passed_does_not_pass_elsewhere():
    server, guard = {"type": "mcp", "server_label": "s", "headers": {"x": MAIL}}, Guard(Stabilizer(9_000))
    for place in ("tools", "tools", "elsewhere"):
        body = json.dumps({"input": [USER], place: [server]}).encode()
        written = guard.prepare(WireRequest("POST", PATHS["responses"], {}, body)).body.decode()
        assert (MAIL in written) == (place == "tools")


@pytest.mark.parametrize("api", BODIES)
@pytest.mark.parametrize("number", [4111111111111111, -4111111111111111, 4111111111111111.0, 378282246310005])
def test_a_card_as_a_number_of_json_is_refused(api, number):
    with pytest.raises(CheckFailedError, match=r"CREDIT_CARD was found: .* of the request @ own"):
        sent(api, {**BODIES[api], "own": {"deep": number}})


@pytest.mark.parametrize("number", [1732336000, 1732336000123, 1732336000123456, 4111111111111112, 1e300, 7, True])
def test_other_numbers_pass(number):
    assert json.loads(sent("chat", {**BODIES["chat"], "own": {"id": 4111111111111111, "deep": number}}))


def test_every_format_is_tried():
    assert {one.api for one in FORMATS} == set(BODIES) == set(PATHS)
