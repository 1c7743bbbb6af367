"""Values are given back in answers of Bedrock that come in Amazon's frames; botocore reads what comes out."""

from __future__ import annotations

import base64
import json
import struct
import zlib

import pytest

from ctxguard import Stabilizer
from ctxguard.errors import WireError
from ctxguard.wire import Guard, Transport
from ctxguard.wire.events import Frames

httpx = pytest.importorskip("httpx")
eventstream = pytest.importorskip("botocore.eventstream")

MAIL = "ann@example.com"
SAID = "Written to <EMAIL_1>, and to <EMAIL_1> again."


def frame(kind, payload):
    headers = b"".join(
        struct.pack(">B", len(name)) + name + b"\x07" + struct.pack(">H", len(value)) + value
        for name, value in ((b":event-type", kind.encode()), (b":message-type", b"event"))
    )
    head = struct.pack(">II", 16 + len(headers) + len(payload), len(headers))
    whole = head + struct.pack(">I", zlib.crc32(head)) + headers + payload
    return whole + struct.pack(">I", zlib.crc32(whole))


def wrapped(event):
    return frame(
        "chunk", json.dumps({"bytes": base64.b64encode(json.dumps(event).encode()).decode(), "p": "abc"}).encode()
    )


def pieces(text, size=7):
    return [text[at : at + size] for at in range(0, len(text), size)]


def invoked():
    yield wrapped({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}})
    for text in pieces(SAID):
        yield wrapped({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}})
    yield wrapped({"type": "content_block_stop", "index": 0})
    yield wrapped({"type": "message_stop"})


def conversed():
    yield frame("messageStart", b'{"role":"assistant"}')
    for text in pieces(SAID):
        yield frame("contentBlockDelta", json.dumps({"contentBlockIndex": 0, "delta": {"text": text}}).encode())
    yield frame("contentBlockStop", b'{"contentBlockIndex":0}')
    yield frame("messageStop", b'{"stopReason":"end_turn"}')


ASKED = {
    "invoke-with-response-stream": (
        invoked,
        {"anthropic_version": "bedrock-2023-05-31", "max_tokens": 9, "messages": [{"role": "user", "content": MAIL}]},
    ),
    "converse-stream": (conversed, {"messages": [{"role": "user", "content": [{"text": MAIL}]}]}),
}


class Cut(httpx.SyncByteStream):
    def __init__(self, body, size):
        self.body, self.size = body, size

    def __iter__(self):
        return (self.body[at : at + self.size] for at in range(0, len(self.body), self.size))


def text_of(event):
    payload = json.loads(event.payload)
    if "bytes" in payload:
        payload = json.loads(base64.b64decode(payload["bytes"]))
    return payload.get("delta", {}).get("text", "")


@pytest.mark.parametrize("operation", ASKED)
@pytest.mark.parametrize("size", [1, 100, 10_000])
def test_values_come_back_however_the_frames_are_cut(operation, size):
    made, body = ASKED[operation]
    sent = []

    def provider(request):
        sent.append(request.read())
        headers = {"content-type": "application/vnd.amazon.eventstream"}
        return httpx.Response(200, headers=headers, stream=Cut(b"".join(made()), size))

    guard = Guard(Stabilizer(4_000))
    with httpx.Client(transport=Transport(guard, transport=httpx.MockTransport(provider))) as client:
        answer = client.post(f"https://bedrock/model/anthropic.claude-sonnet-4-5/{operation}", json=body)
    assert MAIL.encode() not in sent[0]
    buffer = eventstream.EventStreamBuffer()  # it checks both checksums
    buffer.add_data(answer.content)
    events = list(buffer)
    assert len(events) >= len(list(made()))
    assert "".join(map(text_of, events)) == SAID.replace("<EMAIL_1>", MAIL)
    assert guard.metrics.get("unrestored") == 0
    assert guard.metrics.get("malformed_events") == 0


@pytest.mark.parametrize("length", [0, 12, 2**31])
def test_what_is_no_frame_is_refused(length):
    with pytest.raises(WireError):
        list(Frames(1_000).feed(struct.pack(">III", length, 0, 0)))
    assert not list(Frames(1_000).feed(b"\0"))
