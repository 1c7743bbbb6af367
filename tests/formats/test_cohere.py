"""Cohere's chat API, added by one module and one family of models: read, written, counted, streamed."""

from __future__ import annotations

import json

import pytest

from ctxguard import Stabilizer
from ctxguard.adapting.registry import detect_adapter, find_adapter
from ctxguard.artifacts import Kind
from ctxguard.errors import HistoryError
from ctxguard.formats.cohere import CohereAdapter
from ctxguard.testing import AdapterConformance
from ctxguard.tokens import count_request
from ctxguard.tokens.families import family_of
from ctxguard.wire import Guard
from ctxguard.wire.guard import WireRequest

MAIL = "zora@mailhost.org"
CALL = {"id": "c0", "type": "function", "function": {"name": "mail", "arguments": json.dumps({"to": MAIL})}}
DOCUMENT = {"type": "document", "document": {"id": "0", "data": {"mail": MAIL, "number": 3}}}
MESSAGES = [
    {"role": "system", "content": "Be kind."},
    {"role": "user", "content": [{"type": "text", "text": f"write to {MAIL}"}]},
    {"role": "assistant", "tool_plan": f"I will write to {MAIL}", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c0", "content": [DOCUMENT]},
    {"role": "assistant", "content": [{"type": "thinking", "thinking": "Done."}, {"type": "text", "text": "Sent."}]},
    {"role": "user", "content": "thanks"},
]
BODY = {"model": "command-a-03-2025", "messages": MESSAGES}


class TestCohereAdapter(AdapterConformance):
    adapter = CohereAdapter()

    def native(self, history):
        return [_message(artifact) for artifact in history]

    def unknown(self):
        return {"role": "narrator", "content": "Meanwhile.", "x-trace": 7}


def _message(artifact):
    message = {"role": str(artifact.kind), "content": artifact.text}
    if artifact.calls:
        message = {"role": "assistant", "tool_plan": artifact.text, "tool_calls": [_call(c) for c in artifact.calls]}
    if artifact.kind is Kind.TOOL:
        message["tool_call_id"] = artifact.answers
    return message


def _call(call):
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def prepared(body):
    return Guard(Stabilizer(4_000)).prepare(WireRequest("POST", "/v2/chat", {}, json.dumps(body).encode()))


def test_it_is_found_by_name_and_by_its_look():
    assert find_adapter("cohere").name == detect_adapter(MESSAGES).name == "cohere"
    assert family_of("command-r-plus").name == family_of("cohere/command-a-03-2025").name == "command"


def test_calls_and_results_are_pairs_and_each_text_is_read():
    artifacts = CohereAdapter().read(MESSAGES)
    assert [a.kind for a in artifacts] == ["system", "user", "assistant", "tool", "assistant", "user"]
    assert artifacts[2].calls[0].id == artifacts[3].answers == "c0"
    assert artifacts[2].text == MESSAGES[2]["tool_plan"]
    assert json.loads(artifacts[3].text) == DOCUMENT["document"]["data"]
    assert [part.kind for part in artifacts[4].content] == ["reasoning", "text"]


def test_no_value_passes_wherever_it_stands():
    body = {
        **BODY,
        "documents": [MAIL, {"id": "d", "data": {"text": MAIL}}],
        "tools": [{"type": "function", "function": {"name": "mail", "description": MAIL, "parameters": {}}}],
    }
    sent = json.loads(prepared(body).body)
    assert MAIL not in json.dumps(sent)
    assert [message["role"] for message in sent["messages"]] == [message["role"] for message in MESSAGES]
    result = sent["messages"][3]["content"][0]["document"]["data"]
    assert result["number"] == 3
    assert json.loads(sent["messages"][2]["tool_calls"][0]["function"]["arguments"])["to"] == result["mail"]


def test_a_document_that_is_cut_stays_an_object():
    adapter = CohereAdapter()
    artifacts = adapter.read(MESSAGES)
    cut = artifacts[3].revised(content="3 fields were left out")
    assert adapter.write(MESSAGES, [cut])[0]["content"][0]["document"]["data"] == {"text": "3 fields were left out"}


@pytest.mark.parametrize(
    ("added", "least"),
    [
        ({"documents": ["word " * 300]}, 250),
        ({"documents": [{"data": {"text": "word " * 300}}]}, 250),
        ({"messages": [*MESSAGES, {"role": "assistant", "tool_plan": "word " * 300, "tool_calls": [CALL]}]}, 250),
    ],
)
def test_words_are_counted_wherever_they_stand(added, least):
    grown = count_request({**BODY, **added}, api="cohere").tokens - count_request(BODY, api="cohere").tokens
    assert least <= grown <= 700


@pytest.mark.parametrize("message", [{"content": "hi"}, {"role": "user", "content": 5}, {"role": "user"}])
def test_what_cannot_be_read_is_refused_with_its_place(message):
    with pytest.raises(HistoryError, match="message 0"):
        CohereAdapter().read([message])


def test_values_come_back_in_a_stream_though_events_cut_placeholders():
    done = prepared({**BODY, "messages": MESSAGES[:2]})
    placeholder = json.loads(done.body)["messages"][1]["content"][0]["text"].removeprefix("write to ")
    assert placeholder.startswith("<")
    stream = done.stream()
    events = [
        {"type": "message-start", "id": "m"},
        *({"type": "tool-plan-delta", "delta": {"message": {"tool_plan": piece}}} for piece in placeholder),
        {"type": "tool-call-start", "index": 0, "delta": {"message": {"tool_calls": {"function": {"arguments": ""}}}}},
        *(
            {
                "type": "tool-call-delta",
                "index": 0,
                "delta": {"message": {"tool_calls": {"function": {"arguments": p}}}},
            }
            for p in ('{"to": "', *placeholder, '"}')
        ),
        {"type": "tool-call-end", "index": 0},
        {"type": "content-start", "index": 0, "delta": {"message": {"content": {"type": "text", "text": ""}}}},
        *({"type": "content-delta", "index": 0, "delta": {"message": {"content": {"text": p}}}} for p in placeholder),
        {"type": "content-end", "index": 0},
        {"type": "message-end", "delta": {"finish_reason": "COMPLETE"}},
    ]
    raw = b"".join(stream.feed(f"event: {e['type']}\ndata: {json.dumps(e)}\n\n".encode()) for e in events)
    told = [json.loads(line[6:]) for line in (raw + stream.close()).decode().splitlines() if line.startswith("data: ")]
    messages = [event["delta"]["message"] for event in told if "message" in event.get("delta", {})]
    assert "".join(m.get("tool_plan", "") for m in messages) == MAIL
    assert "".join(m["content"]["text"] for m in messages if "content" in m) == MAIL
    arguments = "".join(m["tool_calls"]["function"]["arguments"] for m in messages if "tool_calls" in m)
    assert json.loads(arguments) == {"to": MAIL}
