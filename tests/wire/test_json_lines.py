"""An answer in JSON lines is restored or refused by name, never passed on with its placeholders."""

from __future__ import annotations

import json

import pytest

from ctxguard import Stabilizer
from ctxguard.wire import AsyncTransport, Guard, Transport
from ctxguard.wire.bodies import is_json_lines

httpx = pytest.importorskip("httpx")

MAIL = "ann@example.com"
TEXT = "Write to <EMAIL_1>."
KINDS = ["application/x-ndjson", "application/jsonl; charset=utf-8", "Application/NDJSON", "application/json-seq"]


def lines(piece, sign=b""):
    texts = [TEXT[at : at + piece] for at in range(0, len(TEXT), piece)]
    records = ({"choices": [{"index": 0, "delta": {"content": text}}]} for text in texts)
    return b"".join(sign + json.dumps(record).encode() + b"\n" for record in [*records, {"done": True}])


def answering(kind, content):
    def answer(request):
        assert MAIL.encode() not in request.content
        return httpx.Response(200, headers={"content-type": kind}, content=content)

    return httpx.MockTransport(answer)


def asked(said, stream):
    return {"model": "m", "stream": stream, "messages": [{"role": "user", "content": said}]}


@pytest.mark.parametrize("kind", [*KINDS, "application/json"])
@pytest.mark.parametrize("piece", [3, 12, 100])
@pytest.mark.parametrize("stream", [True, False])
async def test_lines_that_may_hold_placeholders_are_refused_by_name(kind, piece, stream):
    content = lines(piece, b"\x1e" if "seq" in kind else b"")
    guard = Guard(Stabilizer(4_000))
    with httpx.Client(transport=Transport(guard, transport=answering(kind, content))) as client:
        answers = [client.post("http://p/v1/chat/completions", json=asked(f"I am {MAIL}.", stream))]
    inner = AsyncTransport(guard, transport=answering(kind, content))
    async with httpx.AsyncClient(transport=inner) as client:
        answers.append(await client.post("http://p/v1/chat/completions", json=asked(f"I am {MAIL}.", stream)))
    for answer in answers:
        assert (answer.status_code, answer.json()["error"]["code"]) == (502, "json_lines")
        assert "EMAIL_1" not in answer.text
    assert guard.metrics.get("failures", cause="json_lines") == 2


@pytest.mark.parametrize("kind", KINDS)
def test_where_nothing_can_be_restored_they_pass(kind):
    content = lines(3)
    guard = Guard(Stabilizer(4_000), strategy="redact")
    with httpx.Client(transport=Transport(guard, transport=answering(kind, content))) as client:
        answer = client.post("http://p/v1/chat/completions", json=asked("Hello.", stream=True))
    assert (answer.status_code, answer.content) == (200, content)


class Body(httpx.SyncByteStream):
    def __init__(self, pieces):
        self.pieces, self.is_closed = pieces, False

    def __iter__(self):
        yield from self.pieces

    def close(self):
        self.is_closed = True


@pytest.mark.parametrize("kind", [*KINDS, "application/json"])
def test_a_refused_answer_gives_its_connection_back(kind):
    body = Body([lines(3, b"")])
    inner = httpx.MockTransport(lambda _: httpx.Response(200, headers={"content-type": kind}, stream=body))
    with httpx.Client(transport=Transport(Guard(Stabilizer(4_000)), transport=inner)) as client:
        answer = client.post("http://p/v1/chat/completions", json=asked(f"I am {MAIL}.", stream=False))
        assert (answer.status_code, body.is_closed) == (502, True)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"a": 1}\n{"b": 2}\n', True),
        (b'{"a": 1}\r\n\r\n{"b": 2}', True),
        (b'\x1e{"a": 1}\n\x1e{"b": 2}\n', True),
        (b'{"a": 1}\n', False),
        (b'{"a":\n1}\n', False),
        (b"", False),
    ],
)
def test_json_lines_are_two_objects_on_lines_of_their_own(body, expected):
    assert is_json_lines(body) is expected
