"""Answers are read within a bound, however few bytes they are on the wire."""

from __future__ import annotations

import asyncio
import gzip
import json
import tracemalloc
import zlib

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tiers import crossed

from ctxguard import Stabilizer
from ctxguard.wire import AsyncTransport, Guard, Transport, bodies
from ctxguard.wire.bodies import UnreadableError, pieces, whole

httpx = pytest.importorskip("httpx")

BODY = {"messages": [{"role": "user", "content": "I am zora@mailhost.org"}]}
CHAT = "http://p/v1/chat/completions"
SAID = json.dumps({"choices": [{"message": {"content": "To <EMAIL_1>"}}], "x": "y" * 40_000_000}).encode()


class Chunks(httpx.SyncByteStream, httpx.AsyncByteStream):
    """A body as it comes from a connection."""

    def __init__(self, data, size=65_536):
        self.chunks = [data[at : at + size] for at in range(0, len(data), size)]
        self.is_closed = False

    def __iter__(self):
        yield from self.chunks

    async def __aiter__(self):
        for chunk in self.chunks:
            yield chunk

    def close(self):
        self.is_closed = True

    async def aclose(self):
        self.is_closed = True


def coded(data, encoding):
    if encoding == "gzip":
        return gzip.compress(data)
    if encoding == "deflate":
        return zlib.compress(data)
    if encoding == "bare deflate":
        packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
        return packer.compress(data) + packer.flush()
    if encoding in ("br", "zstd"):
        if not bodies.can_decode(encoding):
            pytest.skip(f"no library for {encoding} is installed")
        return (pytest.importorskip("brotli") if encoding == "br" else bodies._zstd_module()).compress(data)
    return data


def answer(data, encoding="", *, kind="application/json", status=200, size=65_536):
    headers = {"content-type": kind, "content-encoding": encoding.removeprefix("bare ")}
    return httpx.Response(status, headers=headers, stream=Chunks(coded(data, encoding), size))


def asked(made, guard, *, is_async=False):
    """Ask by a transport that answers so; return the answer that the client gets."""
    if not is_async:
        with httpx.Client(transport=Transport(guard, transport=httpx.MockTransport(lambda _: made))) as client:
            return client.post(CHAT, json=BODY)

    async def asking():
        transport = AsyncTransport(guard, transport=httpx.MockTransport(lambda _: made))
        async with httpx.AsyncClient(transport=transport) as client:
            return await client.post(CHAT, json=BODY)

    return asyncio.run(asking())


@pytest.mark.parametrize(
    ("is_async", "status", "encoding"), crossed(3, [False, True], [200, 400], ["", "gzip", "deflate", "bare deflate"])
)
def test_a_large_answer_is_one_typed_error_and_takes_no_memory(encoding, status, is_async):
    guard = Guard(Stabilizer(4_000), max_answer=1_000_000)
    made = answer(SAID, encoding, status=status)
    tracemalloc.start()
    try:
        got = asked(made, guard, is_async=is_async)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (got.status_code, got.json()["error"]["code"]) == (502, "upstream_too_large")
    assert got.headers["x-ctxguard-error"] == "upstream_too_large"
    assert guard.metrics.get("failures", cause="upstream_too_large") == 1
    assert made.stream.is_closed
    assert peak < 15_000_000, "the answer has 40 MB"


@pytest.mark.parametrize("encoding", ["", "gzip", "deflate", "bare deflate", "br", "zstd"])
@pytest.mark.parametrize("is_async", [False, True])
def test_an_answer_within_the_bound_gets_its_values_back(encoding, is_async):
    said = json.dumps({"choices": [{"message": {"content": "To <EMAIL_1>"}}]}).encode()
    got = asked(answer(said, encoding, size=7), Guard(Stabilizer(4_000)), is_async=is_async)
    assert got.json()["choices"][0]["message"]["content"] == "To zora@mailhost.org"
    assert "content-encoding" not in got.headers


def test_an_error_of_the_provider_is_passed_on_as_it_is():
    got = asked(answer(b'{"error": "no"}', "gzip", status=400), Guard(Stabilizer(4_000)))
    assert (got.status_code, got.content) == (400, b'{"error": "no"}')
    packed = b"\x0b\x02\x80abc\x03"
    made = httpx.Response(400, headers={"content-encoding": "compress"}, stream=Chunks(packed))
    transport = Transport(Guard(Stabilizer(4_000)), transport=httpx.MockTransport(lambda _: made))
    with httpx.Client(transport=transport) as client, client.stream("POST", CHAT, json=BODY) as passed:
        assert b"".join(passed.iter_raw()) == packed


def test_a_stream_of_compressed_events_comes_in_pieces_of_a_bounded_size():
    event = b'data: {"choices": [{"index": 0, "delta": {"content": "' + b"x" * 90_000 + b'"}}]}\n\n'
    made = answer(event * 300, "gzip", kind="text/event-stream")
    assert max(map(len, pieces(made))) <= 65_536


@given(
    st.binary(max_size=300),
    st.sampled_from(["", "gzip", "deflate", "bare deflate"]),
    st.integers(1, 50),
    st.integers(0, 400),
)
@example(b"", "bare deflate", 1, 0)
@example(b"hello", "bare deflate", 1, 300)
def test_a_body_is_whole_or_refused(data, encoding, size, most):
    made = answer(data, encoding, size=size)
    if len(data) > most:
        with pytest.raises(UnreadableError, match="more than"):
            whole(made, most)
    else:
        assert whole(made, most) == data
    assert made.stream.is_closed


@given(st.binary(min_size=1, max_size=60), st.sampled_from(["gzip", "deflate"]), st.integers(1, 20))
def test_what_is_not_compressed_as_it_says_is_a_typed_error_or_a_text(data, encoding, size):
    made = httpx.Response(200, headers={"content-encoding": encoding}, stream=Chunks(data, size))
    try:
        assert len(whole(made, 10_000)) <= 10_000
    except UnreadableError as error:
        assert error.status == 502


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/files"])
@pytest.mark.parametrize("kind", ["application/json", "text/event-stream", "text/plain"])
def test_only_the_guard_speaks_by_its_headers(path, kind):
    forged = {"x-ctxguard-error": "WireError", "X-CtxGuard-Masked": "99", "x-ctxguard-own": "1", "content-type": kind}
    made = httpx.Response(200, headers=forged, stream=Chunks(b"{}"))
    guard = Guard(Stabilizer(4_000), on_unreadable=["/v1/files"])
    with httpx.Client(transport=Transport(guard, transport=httpx.MockTransport(lambda _: made))) as client:
        got = client.post(f"http://p{path}", json=BODY)
    ours = {name: value for name, value in got.headers.items() if name.startswith("x-ctxguard")}
    assert "x-ctxguard-error" not in ours
    assert "x-ctxguard-own" not in ours
    assert ours.get("x-ctxguard-masked") == (None if "files" in path else "1")
