"""Streamed answers: the same text whatever the chunks, the same bytes where nothing was masked."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wire_server import WireProvider

from ctxguard import Stabilizer
from ctxguard.errors import WireError
from ctxguard.wire.events import ServerSentEvents
from ctxguard.wire.guard import Guard, WireRequest

MAIL = 'o"ann\\x@example.com'
PATHS = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "anthropic": "/v1/messages"}
KEYS = {"chat": "messages", "responses": "input", "anthropic": "messages"}


def prepared(api, text="Find ann@example.com.", **settings):
    body = {"model": "m", KEYS[api]: [{"role": "user", "content": text}], **settings}
    return Guard(Stabilizer(4_000)).prepare(WireRequest("POST", PATHS[api], {}, json.dumps(body).encode()))


ARGUMENT = '{{"query": "<EMAIL_1>", "to": ["<EMAIL_1>", "x"]}}'


def scripted(api, *, steps=0, parallel=1, piece=3, says="Done, {}. Yes {}!", newline="\n", argument=ARGUMENT, less="<"):
    """Return the bytes of a streamed answer that holds placeholders."""
    provider = WireProvider(steps=steps, parallel=parallel, piece=piece)
    provider.says = says.replace("{}", "<EMAIL_1>").replace("{", "{{").replace("}", "}}")
    provider.argument = argument
    if argument != ARGUMENT:  # this provider parses the arguments of Anthropic, and writes them without escapes
        split = provider.pieces
        provider.pieces = lambda text: split(text.replace("<", less).replace(">", "\\u003e"))
    body = {KEYS[api]: [{"role": "user", "content": "Find <EMAIL_1>."}], "stream": True}
    answer = provider.handle(PATHS[api], body)
    return "".join(provider.events(PATHS[api], answer)).replace("\n", newline).encode()


def texts_of(api, raw):
    """Return what a client puts together of a stream: its text, and the arguments of each call."""
    text, calls = "", {}
    for event in filter(None, map(ServerSentEvents.data_of, ServerSentEvents(10**6).feed(raw))):
        if api == "chat":
            for choice in event["choices"]:
                delta = choice["delta"]
                text += delta.get("content") or ""
                for call in delta.get("tool_calls", ()):
                    calls[call["index"]] = calls.get(call["index"], "") + call["function"]["arguments"]
        elif api == "anthropic" and event["type"] == "content_block_delta":
            text += event["delta"].get("text", "")
            piece = event["delta"].get("partial_json")
            if piece is not None:
                calls[event["index"]] = calls.get(event["index"], "") + piece
        elif api == "responses" and event["type"].endswith(".delta"):
            if "arguments" in event["type"]:
                calls[event["item_id"]] = calls.get(event["item_id"], "") + event["delta"]
            else:
                text += event["delta"]
    return text, [json.loads(call) for call in calls.values()]


def through(prepared, raw, size):
    stream = prepared.stream()
    return b"".join(stream.feed(raw[at : at + size]) for at in range(0, len(raw), size)) + stream.close()


@pytest.mark.parametrize("piece", [1, 2, 4, 9, 100])
@pytest.mark.parametrize("api", PATHS)
def test_values_come_back_across_the_borders_of_pieces(api, piece):
    ready = prepared(api)
    assert texts_of(api, through(ready, scripted(api, piece=piece), 7)) == (
        "Done, ann@example.com. Yes ann@example.com!",
        [],
    )
    calls = texts_of(api, through(ready, scripted(api, steps=1, parallel=2, piece=piece), 7))[1]
    assert calls == [{"query": "ann@example.com", "to": ["ann@example.com", "x"]}] * 2


@pytest.mark.parametrize("opened", ["\\u003c", "\\u003C", "<"])
@pytest.mark.parametrize("api", PATHS)
def test_escaped_brackets_in_arguments_are_restored_at_every_border(api, opened):
    ready = prepared(api)
    argument = f'{{{{"to": "{opened}EMAIL_1\\u003e", "text": "{{{{\\"to\\": \\"\\\\u003cEMAIL_1\\\\u003e\\"}}}}"}}}}'
    for piece in (*range(1, 24), 1_000):
        restored = through(ready, scripted(api, steps=1, piece=piece, argument=argument, less=opened), 1_000)
        told = {"to": "ann@example.com", "text": '{"to": "ann@example.com"}'}
        assert texts_of(api, restored)[1] == [told]
        for event in filter(None, map(ServerSentEvents.data_of, ServerSentEvents(10**6).feed(restored))):
            if event.get("type") == "response.function_call_arguments.done":
                assert json.loads(event["arguments"]) == told


@pytest.mark.parametrize("api", PATHS)
@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_chunks_of_the_connection_change_nothing(api, newline):
    ready, raw = prepared(api), scripted(api, newline=newline)
    whole = through(ready, raw, len(raw))
    assert all(through(ready, raw, size) == whole for size in (1, 2, 3, 50, 1_000))
    assert texts_of(api, whole)[0] == "Done, ann@example.com. Yes ann@example.com!"


@pytest.mark.parametrize("api", PATHS)
@pytest.mark.parametrize("says", ["No values here.", "<EMAIL_9> was never given.", "a < b, <b>bold</b>", ""])
def test_what_was_not_masked_keeps_its_bytes(api, says):
    raw = scripted(api, says=says, piece=200)
    assert through(prepared(api), raw, 11) == raw


@pytest.mark.parametrize("api", PATHS)
@pytest.mark.parametrize("says", ["It ends with <EMAI", "It ends with <EMAIL_", 'He said "<', "x" * 70 + "<"])
def test_what_was_held_back_at_the_end_comes_before_the_end(api, says):
    assert texts_of(api, through(prepared(api), scripted(api, says=says), 13))[0] == says


def test_added_events_keep_the_numbers_in_order():
    raw = through(prepared("responses"), scripted("responses", says="It ends with <EMAI"), 13)
    numbers = [event["sequence_number"] for event in map(ServerSentEvents.data_of, ServerSentEvents(10**6).feed(raw))]
    assert numbers == sorted(set(numbers))


@pytest.mark.parametrize("api", PATHS)
def test_a_stream_that_breaks_off_gives_what_was_held_back(api):
    ready = prepared(api)
    raw = scripted(api, says="To <EMAIL_1> and <EMAI", piece=4)
    cut = raw[: raw.index(b'finish_reason": "stop') if api == "chat" else len(raw) // 2]
    stream = ready.stream()
    told = stream.feed(cut) + stream.close()
    assert b"<EMAIL_1>" not in told


def test_values_are_escaped_where_the_answer_is_json():
    text = 'The password is password: hun"ter2\\x9, mail ann@example.com.'
    schema = {"type": "json_schema", "json_schema": {"name": "s", "schema": {}}}
    ready = prepared("chat", text, response_format=schema)
    raw = scripted("chat", says='{"mail": "<EMAIL_1>"}', piece=2)
    assert json.loads(texts_of("chat", through(ready, raw, 9))[0]) == {"mail": "ann@example.com"}


def test_malformed_events_are_passed_on_and_counted():
    ready = prepared("chat")
    stream = ready.stream()
    odd = b"data: {not json}\n\n: a comment\n\ndata: 5\n\nid: 3\n\n"
    assert stream.feed(odd) + stream.feed(b"data: [DONE]\n\n") + stream.close() == odd + b"data: [DONE]\n\n"
    assert stream.malformed == 2


def test_an_event_without_an_end_is_refused():
    splitter = ServerSentEvents(1_000)
    with pytest.raises(WireError, match="more than 1,000 bytes"):
        list(splitter.feed(b"data: " + b"x" * 2_000))


@given(st.lists(st.sampled_from([b"data: a", b"event: e", b"", b": c", b"data:"]), max_size=12), st.integers(1, 9))
def test_splitting_loses_nothing(lines, size):
    raw = b"\n".join(lines)
    splitter = ServerSentEvents(10**6)
    pieces = [event for at in range(0, len(raw), size) for event in splitter.feed(raw[at : at + size])]
    assert b"".join(pieces) + splitter.close() == raw
    assert all(piece.endswith(b"\n\n") for piece in pieces)


def test_other_lines_of_an_event_stay():
    event = b"event: x\r\ndata: {\r\ndata: }\r\nid: 7\r\n\r\n"
    assert ServerSentEvents.data_of(event) == {}
    assert ServerSentEvents.with_data(event, b"{}") == b"event: x\r\ndata: {}\r\nid: 7\r\n\r\n"
