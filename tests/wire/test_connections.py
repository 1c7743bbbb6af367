"""Connections end, whatever a client sends on them, and say nothing to pages of other hosts."""

from __future__ import annotations

import socket
from itertools import product

import pytest
from patience import PATIENCE
from wire_server import WireProvider, provider_at, proxy_at

from ctxguard import Stabilizer
from ctxguard.wire import Guard, proxy_app

pytest.importorskip("uvicorn")
testclient = pytest.importorskip("starlette.testclient")

HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n"
HANDSHAKE = (
    b"Host: p\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)


def settings(*names):
    from ctxguard.wire.cli import uvicorn_settings

    return {name: uvicorn_settings(1)[name] for name in names}


def connected(address):
    return socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2])), timeout=PATIENCE)


def guard():
    return Guard(Stabilizer(4_000))


@pytest.mark.parametrize(
    "sent", [b"", b"POST", HEAD, HEAD + b"X-A: ", b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n" + HEAD]
)
def test_a_connection_without_a_whole_head_is_closed(sent, monkeypatch):
    from ctxguard.wire import connections

    assert 10 <= connections.HEAD_TIMEOUT <= 90
    # what is to be answered may be sent late, where the machine is busy
    monkeypatch.setattr(connections, "HEAD_TIMEOUT", 2 if sent.startswith(b"GET") else 0.2)
    with proxy_at(proxy_app(guard(), "http://127.0.0.1:9"), **settings("http")) as address, connected(address) as one:
        one.sendall(sent)
        answer = b""
        while piece := one.recv(65_536):
            answer += piece
    assert answer.startswith(b"HTTP/1.1 200") == sent.startswith(b"GET")


def test_a_request_whose_answer_takes_long_is_not_closed(monkeypatch):
    from ctxguard.wire import connections

    monkeypatch.setattr(connections, "HEAD_TIMEOUT", 1)
    provider = WireProvider()
    body = b'{"model": "gpt-4o", "messages": [{"role": "user", "content": "x"}]}'
    with (
        provider_at(provider) as upstream,
        proxy_at(proxy_app(guard(), upstream), **settings("http")) as address,
        connected(address) as one,
    ):
        one.sendall(HEAD + b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body))
        one.settimeout(1.5)
        with pytest.raises(TimeoutError):
            one.recv(1)  # the body is awaited, longer than a head
        one.settimeout(PATIENCE)
        one.sendall(body)
        assert one.recv(65_536).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    ("method", "body", "is_chunked"), list(product([b"GET", b"POST"], [b"", b"{}"], [False, True]))
)
def test_a_body_on_a_web_socket_gets_its_answer(method, body, is_chunked):
    framed = (b"%x\r\n%s\r\n" % (len(body), body) if body else b"") + b"0\r\n\r\n" if is_chunked else body
    framing = b"Transfer-Encoding: chunked\r\n" if is_chunked else b"Content-Length: %d\r\n" % len(body)
    with (
        proxy_at(proxy_app(guard(), "http://127.0.0.1:9"), **settings("http", "ws")) as address,
        connected(address) as one,
    ):
        one.sendall(method + b" /v1/responses HTTP/1.1\r\n" + HANDSHAKE + framing + b"\r\n" + framed)
        assert one.recv(65_536).startswith(b"HTTP/1.1 426 ")


@pytest.mark.parametrize(
    ("client", "host", "is_told"),
    [
        ("127.0.0.1", "127.0.0.1:8787", True),
        ("127.0.0.1", "localhost", True),
        ("127.0.0.1", "LOCALHOST:80", True),
        ("::1", "[::1]:8787", True),
        ("127.0.0.1", "evil.example", False),
        ("127.0.0.1", "evil.example:8787", False),
        ("127.0.0.1", "localhost.evil.example", False),
        ("127.0.0.1", "", False),
        ("::1", "evil.example", False),
        ("10.0.0.9", "guard.internal:8787", True),
    ],
)
def test_the_metrics_are_for_who_asks_this_machine_by_its_name(client, host, is_told):
    app = proxy_app(guard(), "http://127.0.0.1:9")
    answer = testclient.TestClient(app, client=(client, 5_000)).get("/metrics", headers={"host": host})
    assert ("ctxguard_open_requests" in answer.text) is is_told
    assert answer.status_code == (200 if is_told else 403)
