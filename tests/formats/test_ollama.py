"""Ollama's chat API, added by one module and one row: read, written, counted, restored, whole and in lines."""

from __future__ import annotations

import json

import pytest

from ctxguard import Stabilizer
from ctxguard.adapting.registry import find_adapter
from ctxguard.artifacts import Kind
from ctxguard.formats.ollama import OllamaAdapter
from ctxguard.formats.registry import detect_api
from ctxguard.testing import AdapterConformance
from ctxguard.tokens import count_request
from ctxguard.wire import AsyncTransport, Guard, Transport
from ctxguard.wire.bodies import WireRequest
from ctxguard.wire.limits import error_body

httpx = pytest.importorskip("httpx")

MAIL = "zora@mailhost.org"
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
CALLS = [
    {"function": {"name": "mail", "arguments": {"to": MAIL, "copies": 2}}},
    {"function": {"name": "find", "arguments": {}}},
]
MESSAGES = [
    {"role": "system", "content": "Be kind."},
    {"role": "user", "content": f"Write to {MAIL}.", "images": [PIXEL]},
    {"role": "assistant", "content": "", "thinking": f"Who is {MAIL}?", "tool_calls": CALLS},
    {"role": "tool", "tool_name": "mail", "content": f"Sent to {MAIL}."},
    {"role": "tool", "tool_name": "find", "content": "Nothing."},
    {"role": "user", "content": "Thanks."},
]
BODY = {"model": "llama3.2", "messages": MESSAGES, "options": {"temperature": 0}}
URL = "http://127.0.0.1:11434/api/chat"


class TestOllamaAdapter(AdapterConformance):
    adapter = OllamaAdapter()

    def native(self, history):
        return [_message(artifact) for artifact in history]

    def unknown(self):
        return {"role": "narrator", "content": "Meanwhile.", "x-trace": 7}


def _message(artifact):
    message = {"role": str(artifact.kind), "content": artifact.text}
    if artifact.calls:
        message["tool_calls"] = [_call(call) for call in artifact.calls]
    if artifact.kind is Kind.TOOL:
        message |= {"tool_call_id": artifact.answers} if artifact.answers else {}
    return message


def _call(call):
    return {"id": call.id, "function": {"name": call.name, "arguments": json.loads(call.arguments)}}


def prepared(body, **settings):
    guard = Guard(Stabilizer(4_000), **settings)
    return guard.prepare(WireRequest("POST", "/api/chat", {}, json.dumps(body).encode()))


def test_it_is_found_by_its_name_its_path_and_its_fields():
    assert find_adapter("ollama").name == "ollama"
    assert detect_api(BODY) == detect_api({"messages": MESSAGES}) == "ollama"
    assert detect_api({"model": "gpt-4o", "messages": MESSAGES[-1:]}) == "chat"


def test_a_request_is_masked_in_its_own_shape():
    sent = json.loads(prepared(BODY).body)
    assert MAIL not in json.dumps(sent)
    assert sent["messages"][1] == {"role": "user", "content": "Write to <EMAIL_1>.", "images": [PIXEL]}
    first, second = sent["messages"][2]["tool_calls"]
    assert first == {"function": {"name": "mail", "arguments": {"to": "<EMAIL_1>", "copies": 2}}}
    assert second == CALLS[1]
    assert sent["messages"][3] == {"role": "tool", "tool_name": "mail", "content": "Sent to <EMAIL_1>."}
    assert {key: value for key, value in sent.items() if key != "messages"} == {
        key: value for key, value in BODY.items() if key != "messages"
    }


def test_results_without_ids_stay_with_their_calls():
    read = OllamaAdapter().read(MESSAGES)
    assert read[3].name == "mail"
    for keep in range(4):
        shortened = Stabilizer(330, counter="estimate", keep_recent=keep, keep_task=False).stabilize(read)
        assert [artifact.kind for artifact in shortened.artifacts].count(Kind.TOOL) in (0, 2)
    lost = json.loads(prepared({**BODY, "messages": [*MESSAGES[:4], MESSAGES[-1]]}).body)["messages"]
    stand_ins = [message for message in lost if message["role"] == "tool"]
    assert [message["tool_name"] for message in stand_ins] == ["mail", "find"]  # by position, it may be of either
    assert all("which of several calls" in message["content"] for message in stand_ins)


def test_an_image_is_no_text():
    counted = count_request(BODY, api="ollama").tokens
    large = count_request({**BODY, "messages": [{**MESSAGES[1], "images": [PIXEL * 40]}]}, api="ollama").tokens
    assert counted < 2_000
    assert large < 3_000


def lines(*texts, calls=None):
    told = [{"role": "assistant", "content": text} for text in texts]
    told += [{"role": "assistant", "content": "", "tool_calls": calls}] if calls else []
    records = [{"model": "llama3.2", "message": message, "done": False} for message in told]
    end = {"role": "assistant", "content": ""}
    records.append({"message": end, "done": True, "done_reason": "stop", "prompt_eval_count": 26, "eval_count": 9})
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


def restored(answer):
    records = [json.loads(line) for line in answer.splitlines()]
    calls = [call for record in records for call in record["message"].get("tool_calls", ())]
    return "".join(record["message"]["content"] for record in records), calls, records[-1]


@pytest.mark.parametrize("size", [1, 3, 1_000])
@pytest.mark.parametrize("kind", ["application/x-ndjson", "application/json"])
async def test_an_answer_in_lines_is_restored_wherever_it_is_cut(size, kind):
    said = "Write to <EMAIL_1>, and not to <EMAIL_10>."
    content = lines(*(said[at : at + size] for at in range(0, len(said), size)), calls=CALL_TO_ONE)
    assert_restored = f"Write to {MAIL}, and not to <EMAIL_10>."
    guard = Guard(Stabilizer(4_000))

    def answer(request):
        assert MAIL.encode() not in request.content
        return httpx.Response(200, headers={"content-type": kind}, content=content)

    with httpx.Client(transport=Transport(guard, transport=httpx.MockTransport(answer))) as client:
        answers = [client.post(URL, json=BODY)]
    async with httpx.AsyncClient(transport=AsyncTransport(guard, transport=httpx.MockTransport(answer))) as client:
        answers.append(await client.post(URL, json=BODY))
    for one in answers:
        text, calls, last = restored(one.content)
        assert text == assert_restored
        assert calls == [{"function": {"name": "mail", "arguments": {"to": MAIL}}}]
        assert last["done"] is True
        assert last["eval_count"] == 9
    assert guard.metrics.get("billed.tokens", kind="input") == 52
    assert guard.metrics.get("billed.tokens", kind="output") == 18


CALL_TO_ONE = [{"function": {"name": "mail", "arguments": {"to": "<EMAIL_1>"}}}]


def test_a_tool_that_gets_no_values_gets_none():
    for whole in (True, False):
        answer = prepared(BODY, tools={"mail": False})
        if whole:
            said = {
                "message": {"role": "assistant", "content": "To <EMAIL_1>.", "tool_calls": CALL_TO_ONE},
                "done": True,
            }
            message = json.loads(answer.whole(json.dumps(said).encode()))["message"]
            text, calls = message["content"], message["tool_calls"]
        else:
            stream = answer.stream(form="lines")
            text, calls, _ = restored(stream.feed(lines("To <EMA", "IL_1>.", calls=CALL_TO_ONE)) + stream.close())
        assert text == f"To {MAIL}."
        assert calls == CALL_TO_ONE


def test_a_stream_that_breaks_off_keeps_what_it_said():
    stream = prepared(BODY).stream(form="lines")
    begun = lines("Hello ", "<EMAIL_1>")[:-1]
    cut = begun[: begun.rindex(b"\n")] + b'\n{"mess'
    said = stream.feed(cut) + stream.close()
    assert MAIL.encode() in said
    assert said.endswith(b'{"mess')


def test_an_error_is_a_text_as_its_clients_read_it():
    error = json.loads(error_body("context_length_exceeded", "too long", path="/api/chat"))
    assert error == {"error": "ctxguard: too long", "code": "context_length_exceeded"}
