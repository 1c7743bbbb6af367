"""Clients and providers that do odd things: nothing leaks, every answer ends, and what went wrong has a name."""

from __future__ import annotations

import gzip
import json
import logging
import socket
import sys
import threading
import zlib
from contextlib import contextmanager

import pytest
from patience import PATIENCE
from wire_server import Handler, WireProvider, provider_at, proxy_at

from ctxguard import Stabilizer
from ctxguard.wire import Guard, proxy_app
from ctxguard.wire.guard import WireRequest

httpx = pytest.importorskip("httpx")
pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

MAIL = "ann@example.com"
CHAT = "/v1/chat/completions"
BODY = {"model": "m", "messages": [{"role": "user", "content": f"Find {MAIL}."}]}
RAW = json.dumps(BODY).encode()


@pytest.fixture(autouse=True)
def ordinary_recursion_limit():
    """Python's own limit, which property tests in the same process raise: it says what is nested too deeply."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(1_000)
    yield
    sys.setrecursionlimit(before)


def nested(depth, leaf):
    return '{"a":' * depth + leaf + "}" * depth


# what clients send


def request(body=RAW, *headers, method="POST", path=CHAT, version="1.1"):
    head = [f"{method} {path} HTTP/{version}", "Host: x", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(head).encode("latin-1") + b"\r\n\r\n" + body


def status_and_answer(address, data):
    """Send bytes as they are; give the status and the body of the answer."""
    host, port = address.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE) as connection:
        connection.sendall(data)
        file = connection.makefile("rb")
        status = int(file.readline().split()[1])
        headers = {}
        while line := file.readline().strip():
            name, _, value = line.partition(b":")
            headers[name.lower()] = value.strip()
        if status == 100:
            return status, b""
        length = headers.get(b"content-length")
        return status, b"" if data.startswith(b"HEAD") else file.read(int(length)) if length else file.read()


def with_member(member):
    return RAW[:-1] + b"," + member + b"}"


PASSED = {
    "http 1.0": request(version="1.0"),
    "fragment of a header": request(RAW, "X-Long: " + "a" * 50_000),
    "headers twice": request(RAW, "Authorization: Bearer a", "Authorization: Bearer b", "x-ctxguard-session: s"),
    "another content type": request(RAW, "Content-Type: text/plain"),
    "not compressed, in capitals": request(RAW, "Content-Encoding: Identity"),
    "byte order mark": request(b"\xef\xbb\xbf" + RAW),
    "utf-16": request(json.dumps(BODY).encode("utf-16")),
    "a key twice": request(b'{"messages": [{"role": "user", "content": "' + MAIL.encode() + b'"}],' + RAW[1:]),
    "half a surrogate pair": request(RAW.replace(b"Find", b"\\ud83d Find")),
    "half a surrogate pair as a key": request(with_member(b'"\\ud83d": 1')),
    "dots in the path": request(path="/v1/x/../chat/completions"),
    "escapes in the path": request(path="/v1/ch%61t/completions"),
    "compressed": request(gzip.compress(RAW), "Content-Encoding: GZIP"),
    "compressed by deflate": request(zlib.compress(RAW), "Content-Encoding: deflate"),
    "no body": request(b"", method="OPTIONS"),
    "head": request(b"", method="HEAD"),
    "nested": request(with_member(f'"metadata": {nested(200, json.dumps(MAIL))}'.encode())),
}
REFUSED = {
    "get with a body": (403, request(method="GET")),
    "compressed, in a form that nobody knows": (415, request(RAW, "Content-Encoding: rot13")),
    "compressed, but broken": (400, request(RAW, "Content-Encoding: gzip")),
    "compressed and half of it": (400, request(gzip.compress(RAW)[:-20], "Content-Encoding: gzip")),
    "compressed, unsaid": (400, request(gzip.compress(RAW))),
    "another case": (403, request(path="/V1/Chat/Completions")),
    "parameters of the path": (403, request(path=CHAT + ";a=b")),
    "fragment": (400, request(path=CHAT + "#part")),
    "not a number": (400, request(with_member(b'"n": NaN'))),
    "beyond all numbers": (400, request(with_member(b'"n": 1e999'))),
    "too many digits": (400, request(with_member(b'"n": ' + b"1" * 5_000))),
    "not UTF-8": (400, request(RAW.replace(b"Find", b"\xff"))),
    "upload": (400, request(b"--x\r\n\r\n" + MAIL.encode() + b"\r\n--x--", "Content-Type: multipart/form-data")),
    "nested too deeply to check": (
        400,
        request(with_member(f'"metadata": {nested(1_001, json.dumps(MAIL))}'.encode())),
    ),
    "nested too deeply to read": (400, request(with_member(b'"metadata": ' + b"[" * 9_000 + b"]" * 9_000))),
}


class Anything(Handler):
    """Answer these methods, too."""

    do_OPTIONS = Handler.do_GET  # noqa: N815 - the name that the standard library calls

    def do_HEAD(self):  # noqa: N802 - the same
        self.whole(200, b"")


@pytest.fixture(scope="module")
def proxied():
    provider = WireProvider(steps=0)
    provider.handle = lambda path, body: provider.bodies.append(body) or {"choices": []}
    with provider_at(provider, Anything) as upstream, proxy_at(proxy_app(Guard(Stabilizer(8_000)), upstream)) as proxy:
        yield provider, proxy


@pytest.fixture
def no_traceback(caplog):
    with caplog.at_level(logging.ERROR):
        yield
    assert [record for record in caplog.records if record.exc_info] == []


@pytest.mark.usefixtures("no_traceback")
@pytest.mark.parametrize("name", PASSED)
def test_what_can_be_read_is_masked_and_sent(proxied, name):
    provider, proxy = proxied
    provider.bodies.clear()
    status, _ = status_and_answer(proxy, PASSED[name])
    assert status == 200
    assert MAIL not in json.dumps(provider.bodies)


@pytest.mark.usefixtures("no_traceback")
@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_read_is_refused_by_name(proxied, name):
    provider, proxy = proxied
    provider.bodies.clear()
    expected, data = REFUSED[name]
    status, answer = status_and_answer(proxy, data)
    assert (status, json.loads(answer)["error"]["code"]) == (expected, "WireError")
    assert provider.bodies == []


def test_what_is_nested_too_deeply_is_passed_on_where_requests_are_only_observed():
    body = with_member(f'"metadata": {nested(1_001, json.dumps(MAIL))}'.encode())
    for guard in (Guard(Stabilizer(8_000, mode="observe")),):
        assert guard.prepare(WireRequest("POST", CHAT, {}, body)).body == body


# what providers answer


@contextmanager
def answering(*pieces):
    """Answer every request with these bytes, and close; give a client of a proxy in front of it, and the guard."""
    listening = socket.create_server(("127.0.0.1", 0))

    def serve():
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            with connection:
                while not connection.recv(65_536).endswith(b"}"):
                    pass
                for piece in pieces:
                    connection.sendall(piece)

    threading.Thread(target=serve, daemon=True).start()
    guard = Guard(Stabilizer(8_000))
    upstream = f"http://127.0.0.1:{listening.getsockname()[1]}"
    try:
        with (
            proxy_at(proxy_app(guard, upstream)) as proxy,
            httpx.Client(base_url=proxy, timeout=PATIENCE, trust_env=False) as client,
        ):
            yield client, guard
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()


def answer(body, *headers, kind="application/json", status="200 OK"):
    head = [
        f"HTTP/1.1 {status}",
        f"Content-Type: {kind}",
        f"Content-Length: {len(body)}",
        "Connection: close",
        *headers,
    ]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body


def event(text, end=b"\n\n"):
    return b"data: " + json.dumps({"choices": [{"index": 0, "delta": {"content": text}}]}).encode() + end


def stream(*events):
    return answer(b"".join(events), kind="text/event-stream")


SAID = json.dumps({"choices": [{"message": {"content": "To <EMAIL_1>."}}]}).encode()
DEEP = b"data: " + nested(600, '"<EMAIL_1>"').encode() + b"\n\n"
RESTORED = {
    "compressed": answer(gzip.compress(SAID), "Content-Encoding: GZIP"),
    "compressed events": answer(gzip.compress(event("<EMAIL_1>")), "Content-Encoding: gzip", kind="Text/Event-Stream"),
    "hints before": b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" + answer(SAID),
    "byte order mark": stream(b"\xef\xbb\xbf", event("<EMAIL_1>")),
    "last event does not end": stream(event("To <EMA"), event("IL_1>", end=b"")),
    "carriage returns": stream(event("To <EMA", end=b"\r\r"), event("IL_1>", end=b"\r\r")),
    "data on two lines": stream(event("<EMAIL_1>").replace(b'"choices"', b'\ndata: "choices"')),
    "nothing in it": stream(b'data: {"choices": [null, {"delta": {"tool_calls": [null, 1]}}]}\n\n', event("<EMAIL_1>")),
    "an odd index": stream(b'data: {"choices": [{"index": [1], "delta": {"content": "x"}}]}\n\n', event("<EMAIL_1>")),
    "a deep event": stream(DEEP, event("<EMAIL_1>")),
    "not UTF-8": stream(b'data: {"a": "\xff"}\n\n', event("<EMAIL_1>")),
}


@pytest.mark.usefixtures("no_traceback")
@pytest.mark.parametrize("name", RESTORED)
def test_values_are_put_back(name):
    with answering(RESTORED[name]) as (client, _):
        got = client.post(CHAT, content=RAW)
    assert got.status_code == 200
    assert MAIL in got.text


@pytest.mark.usefixtures("no_traceback")
def test_an_answer_that_is_nested_too_deeply_is_passed_on():
    deep = nested(600, '"<EMAIL_1>"').encode()
    with answering(answer(deep)) as (client, _):
        assert client.post(CHAT, content=RAW).content == deep


@pytest.mark.parametrize(
    ("pieces", "status", "code"),
    [
        ([], 502, "upstream_unreachable"),
        ([answer(SAID)[:-5]], 502, "upstream_unreachable"),
        ([b"hello\r\n\r\n"], 502, "upstream_unreachable"),
        ([answer(b"garbage", "Content-Encoding: gzip")], 502, "upstream_unreadable"),
        ([answer(b"garbage", "Content-Encoding: gzip", status="400 Bad Request")], 502, "upstream_unreadable"),
        ([answer(b"garbage", "Content-Encoding: gzip", kind="text/event-stream")], 200, "upstream_broke_off"),
        ([stream(event("<EMAIL_1>"))[:-9]], 200, "upstream_broke_off"),
    ],
    ids=[
        "nothing",
        "half",
        "no HTTP",
        "not compressed",
        "error, not compressed",
        "events, not compressed",
        "half events",
    ],
)
@pytest.mark.usefixtures("no_traceback")
def test_an_answer_that_cannot_be_passed_on_has_a_name(pieces, status, code):
    with answering(*pieces) as (client, guard):
        got = client.post(CHAT, content=RAW)
        assert got.status_code == status
        assert f'"code":"{code}"' in got.text
        assert guard.metrics.get("failures", cause=code) == 1


@pytest.mark.usefixtures("no_traceback")
@pytest.mark.parametrize(
    ("pieces", "told"),
    [
        ([], "closed the connection without an answer"),
        ([answer(SAID)[:-5]], "sent an answer that is incomplete or not HTTP"),
        ([b"hello\r\n\r\n"], "sent an answer that is incomplete or not HTTP"),
    ],
    ids=["nothing", "half", "no HTTP"],
)
def test_a_provider_that_was_reached_is_not_called_unreachable(pieces, told):
    with answering(*pieces) as (client, _):
        message = client.post(CHAT, content=RAW).json()["error"]["message"]
    assert told in message
    assert "cannot reach" not in message


def test_placeholders_that_stay_in_an_answer_are_counted():
    with answering(answer(b"\x0b\x02\x80abc\x03", "Content-Encoding: compress")) as (client, guard):
        assert client.post(CHAT, content=RAW, headers={"accept-encoding": "identity"}).status_code == 200
        assert guard.metrics.get("unrestored") == 1


def test_a_redirect_leads_back_to_the_proxy_or_nowhere():
    """A client that follows sends its own body, unmasked: to the proxy that is right, to the provider it is a leak."""

    def redirected(to):
        with answering(answer(b"", f"Location: {to}", status="307 Temporary Redirect")) as (client, guard):
            return client.post(CHAT, content=RAW), guard

    got, _ = redirected("/v2/chat/completions?a=b")
    assert (got.status_code, got.headers["location"]) == (307, "/v2/chat/completions?a=b")
    got, guard = redirected("https://api.elsewhere.example/v1/chat/completions")
    assert (got.status_code, got.json()["error"]["code"]) == (502, "upstream_redirects")
    assert "location" not in got.headers
    assert "https://api.elsewhere.example" in got.json()["error"]["message"]
    assert guard.metrics.get("failures", cause="upstream_redirects") == 1


@pytest.mark.usefixtures("no_traceback")
@pytest.mark.parametrize("to", ["http://[::1", "http://a:b/", "//[", "http://x:99999999/", "http://\x80/", "ftp://x/"])
def test_a_redirect_to_nowhere_has_a_name(to):
    with answering(answer(b"", f"Location: {to}", status="307 Temporary Redirect")) as (client, guard):
        got = client.post(CHAT, content=RAW)
        assert (got.status_code, got.json()["error"]["code"]) == (502, "upstream_redirects")
        assert guard.metrics.get("failures", cause="upstream_redirects") == 1


@pytest.mark.usefixtures("no_traceback")
@pytest.mark.parametrize("sent", [b"", RAW[:5]])
def test_a_client_that_does_not_send_its_body_is_refused_after_a_while(sent):
    guard = Guard(Stabilizer(8_000))
    with (
        proxy_at(proxy_app(guard, "http://127.0.0.1:9", body_timeout=0.2)) as proxy,
        socket.create_connection(("127.0.0.1", int(proxy.rpartition(":")[2])), timeout=PATIENCE) as connection,
    ):
        connection.sendall(request(RAW)[: -len(RAW)] + sent)
        told = connection.makefile("rb").read()  # until the proxy closes it
    assert told.startswith(b"HTTP/1.1 408 ")
    assert b'"code":"WireError"' in told
    assert guard.metrics.get("refused", error="WireError") == 1
