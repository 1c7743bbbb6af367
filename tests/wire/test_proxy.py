"""The proxy: what it passes on, what it refuses, and how it ends what goes wrong."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import socket
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from patience import PATIENCE, until
from wire_server import Handler, RefusedError, WireProvider, provider_at, proxy_at

from ctxguard import Stabilizer
from ctxguard.errors import ConfigError
from ctxguard.wire import AsyncTransport, Guard, Transport, proxy_app

httpx = pytest.importorskip("httpx")
pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

MAIL = "ann@example.com"
KEY = "Bearer sk-proj-none-of-your-business-0123456789"
BODY = {"model": "m", "messages": [{"role": "user", "content": f"Find {MAIL}."}]}


@contextmanager
def running(provider=None, *, handler=Handler, budget=4_000, guard=None, base="", **settings):
    """Give a client of a proxy in front of a provider, and the guard of the proxy."""
    guard = guard or Guard(Stabilizer(budget), **settings.pop("guarding", {}))
    with (
        provider_at(provider or WireProvider(steps=0), handler) as upstream,
        proxy_at(proxy_app(guard, upstream + base, **settings)) as address,
        httpx.Client(base_url=address, headers={"authorization": KEY}, timeout=PATIENCE, trust_env=False) as client,
    ):
        yield client, guard


def test_headers_status_and_query_are_those_of_both_sides():
    provider = WireProvider(steps=0)
    with running(provider) as (client, _):
        answer = client.post(
            "/v1/chat/completions?a=b%20c", json=BODY, headers={"x-ctxguard-session": "s", "x-own": "1"}
        )
    assert answer.status_code == 200
    assert answer.headers["x-upstream"] == "yes"
    assert answer.json()["choices"][0]["message"]["content"] == f"All done, {MAIL}."
    (headers,) = provider.headers
    assert headers["authorization"] == KEY
    assert headers["x-own"] == "1"
    assert "x-ctxguard-session" not in {name.lower() for name in headers}
    assert provider.paths == ["/v1/chat/completions?a=b%20c"]


@pytest.mark.parametrize("mode", ["enforce", "observe"])
def test_the_answer_says_what_was_done_in_counts_alone(mode):
    turns = [
        {"role": role, "content": f"Turn {n} of {MAIL}. " * 30} for n in range(20) for role in ("user", "assistant")
    ]
    body = {**BODY, "messages": [*turns, *BODY["messages"]]}
    provider = WireProvider(steps=0)
    with running(provider, guard=Guard(Stabilizer(1_000, mode=mode))) as (client, _):
        headers = client.post("/v1/chat/completions", json=body).headers
        streamed = client.post("/v1/chat/completions", json={**body, "stream": True}).headers
        unread = client.get("/v1/models").headers
    told = {name: value for name, value in headers.items() if name.startswith("x-ctxguard")}
    assert told.pop("x-ctxguard-observed", None) == (None if mode == "enforce" else "1")
    assert {name: value.isdigit() for name, value in told.items()} == {
        f"x-ctxguard-{name}": True for name in ("tokens-before", "tokens-after", "masked", "dropped", "cut")
    }
    assert int(told["x-ctxguard-tokens-before"]) > 1_000
    assert int(told["x-ctxguard-tokens-after"]) <= 1_000  # in observe, what would be sent
    assert (told["x-ctxguard-masked"], told["x-ctxguard-cut"]) == ("41", "1")
    assert int(told["x-ctxguard-dropped"]) > 20
    assert told.items() <= dict(streamed).items()
    page = (Path(__file__).parents[2] / "docs" / "wire.md").read_text(encoding="utf-8")
    documented = re.findall(r"^(x-ctxguard-[a-z-]+): \d+$", page, re.MULTILINE)
    billed = [f"x-ctxguard-billed-{kind}" for kind in ("input", "cached", "output")]  # this provider reports none
    assert documented == [*told, *billed], "documented in this order"
    assert not any(name.startswith("x-ctxguard") for name in unread)


def test_a_transport_says_the_same_as_the_proxy():
    provider = WireProvider(steps=0)
    with running(provider) as (client, _), provider_at(WireProvider(steps=0), Handler) as upstream:
        told = client.post("/v1/chat/completions", json=BODY).headers
        with httpx.Client(transport=Transport(Stabilizer(4_000))) as direct:
            again = direct.post(f"{upstream}/v1/chat/completions", json=BODY).headers
    names = [name for name in told if name.startswith("x-ctxguard")]
    assert len(names) == 5
    assert [told[name] for name in names] == [again[name] for name in names]


def test_a_path_of_the_upstream_is_not_repeated():
    provider = WireProvider(steps=0)
    with running(provider, base="/v1") as (client, _):
        assert client.post("/v1/chat/completions", json=BODY).status_code == 200
        assert client.post("/chat/completions", json=BODY).status_code == 200
    assert provider.paths == ["/v1/chat/completions"] * 2


def test_errors_of_the_provider_are_passed_on_as_they_are():
    class Retired(WireProvider):
        def messages(self, body):
            raise RefusedError(f"model: {body['model']} was retired")

    body = {"model": "m", "max_tokens": 1, "messages": BODY["messages"]}
    with running(Retired()) as (client, _):
        answer = client.post("/v1/messages", json=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["message"] == "model: m was retired"
    assert "x-ctxguard-error" not in answer.headers


def test_a_history_that_begins_with_a_blank_reply_is_mended_for_a_provider_that_refuses_it():
    body = {
        "model": "m",
        "max_tokens": 1,
        "messages": [{"role": "assistant", "content": [{"type": "text", "text": ""}]}],
    }
    provider = WireProvider(steps=0)
    with running(provider) as (client, _):
        assert client.post("/v1/messages", json=body).status_code == 200
    (sent,) = provider.bodies
    assert [message["role"] for message in sent["messages"]] == ["user", "assistant"]
    assert all("…" in json.dumps(message, ensure_ascii=False) for message in sent["messages"])


def test_a_list_of_models_needs_no_reading_and_uploads_are_refused():
    with running() as (client, _):
        assert client.get("/v1/models").json() == {"object": "list", "data": []}
        refused = client.post("/v1/files", json={"input": MAIL})
    assert refused.status_code == 403
    assert refused.headers["x-ctxguard-error"] == "WireError"
    assert "on_unreadable" in refused.json()["error"]["message"]


SEVERAL = ["https://api.openai.com", "https://api.anthropic.com/", "http://localhost:9999"]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/v1/chat/completions", "https://api.openai.com/v1/chat/completions"),
        ("/v1/messages", "https://api.anthropic.com/v1/messages"),
        ("/api.anthropic.com/v1/models", "https://api.anthropic.com/v1/models"),
        ("/localhost:9999/v1/messages", "http://localhost:9999/v1/messages"),
        ("/api.anthropic.community/v1/x", "https://api.openai.com/api.anthropic.community/v1/x"),
        ("/v1/models", "https://api.openai.com/v1/models"),
    ],
)
def test_of_several_providers_the_host_in_the_path_decides_then_the_api(path, expected):
    asked = []

    def answer(request):
        asked.append(str(request.url))
        moved = httpx.Response(307, headers={"location": "/v1/elsewhere"})
        return moved if path.endswith("/models") else httpx.Response(200, json={})

    async def asking():
        app = proxy_app(Guard(Stabilizer(4_000)), SEVERAL, transport=httpx.MockTransport(answer))
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://proxy") as client:
            method = "GET" if path.endswith(("models", "x")) else "POST"
            return await client.request(method, path, json=None if method == "GET" else {**BODY, "max_tokens": 9})

    got = asyncio.run(asking())
    assert asked == [expected]
    if got.status_code == 307:
        assert got.headers["location"] == path.removesuffix("/v1/models") + "/v1/elsewhere"


@pytest.mark.parametrize("library", ["auto", "none"])
def test_a_web_socket_is_refused_so_that_clients_use_http_at_once(library):
    handshake = (
        b"GET /v1/responses HTTP/1.1\r\nHost: p\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
    provider = WireProvider()
    with (
        provider_at(provider) as upstream,
        proxy_at(proxy_app(Guard(Stabilizer(4_000)), upstream), ws=library) as address,
        socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2])), timeout=PATIENCE) as connection,
    ):
        connection.sendall(handshake)
        assert connection.recv(65_536).startswith(b"HTTP/1.1 426 ")
    assert provider.paths == []


def test_what_cannot_be_read_is_passed_on_where_that_is_allowed():
    class Echo(Handler):
        def do_POST(self):  # noqa: N802 - the name that the standard library calls
            self.whole(200, self.rfile.read(int(self.headers["Content-Length"])))

    with running(handler=Echo, guarding={"on_unreadable": ["/v1/files"]}) as (client, guard):
        assert client.post("/v1/files", content=b"\x00\xff raw").content == b"\x00\xff raw"
    assert guard.metrics.get("passed_unread") == 1


def test_what_does_not_fit_has_the_usual_code():
    with running(budget=60) as (client, guard):
        answer = client.post("/v1/chat/completions", json={"messages": [{"role": "user", "content": "word " * 99}]})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "context_length_exceeded")
    assert guard.metrics.get("refused", error="BudgetExceededError") == 1


ROLES = ("user", "assistant")


def test_a_request_that_is_too_long_for_the_model_is_sent_once_more():
    provider = WireProvider(steps=0, window=2_500)
    # no two alike, or the window tells them apart by nothing and lets most of them go
    said = {role: [" ".join(f"{role} said {n * i}." for i in range(20)) for n in range(20)] for role in ROLES}
    turns = [{"role": role, "content": said[role][n]} for n in range(20) for role in ROLES]
    with running(provider, budget=2_000) as (client, guard):
        answer = client.post("/v1/chat/completions", json={**BODY, "messages": [*turns, *BODY["messages"]]})
    assert len(provider.bodies) == 2
    assert len(json.dumps(provider.bodies[1])) < len(json.dumps(provider.bodies[0]))
    assert guard.metrics.get("retries") == 1
    assert answer.status_code in (200, 400)


def test_health_and_metrics():
    with running() as (client, _):
        client.post("/v1/chat/completions", json=BODY)
        assert client.get("/healthz").text == "ok\n"
        told = client.get("/metrics").text
    assert 'ctxguard_requests_total{api="chat"} 1' in told
    assert 'ctxguard_answers_total{status="200"} 1' in told
    assert "ctxguard_open_requests 0" in told
    assert "example" not in told


def test_answers_are_counted_by_the_status_that_the_client_got():
    with running() as (client, guard):
        assert client.post("/v1/chat/completions", content=b"{").status_code == 400
        assert client.post("/v1/files", json=BODY).status_code == 403
    with proxy_at(proxy_app(guard, "http://127.0.0.1:9")) as address:
        assert (
            httpx.post(f"{address}/v1/chat/completions", json=BODY, trust_env=False, timeout=PATIENCE).status_code
            == 502
        )
        told = httpx.get(f"{address}/metrics", trust_env=False, timeout=PATIENCE).text
    for status in (400, 403, 502):
        assert f'ctxguard_answers_total{{status="{status}"}} 1' in told


@pytest.mark.parametrize("declared", [True, False], ids=["declared", "chunked"])
def test_a_body_over_the_limit(declared):
    raw = json.dumps({**BODY, "messages": [{"role": "user", "content": "x" * 10_000_000}]}).encode()
    with running(guarding={"max_body": 1_000_000}) as (client, guard):
        try:
            answer = client.post(
                "/v1/chat/completions", content=raw if declared else iter([raw[:5_000_000], raw[5_000_000:]])
            )
            assert (answer.status_code, answer.headers["x-ctxguard-error"]) == (413, "WireError")
        except httpx.WriteError:
            pass  # the proxy closed the connection while the body was still coming
        assert until(lambda: guard.metrics.get("refused", error="WireError") == 1)
        assert client.get("/healthz").status_code == 200


@pytest.mark.slow
def test_a_body_of_ten_megabytes_within_the_limit():
    provider = WireProvider(steps=0)
    rows = "\n".join(f"row {number}: nothing to see" for number in range(330_000))
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    messages = [
        *BODY["messages"],
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": rows},
    ]
    with running(provider) as (client, _):
        assert (
            client.post("/v1/chat/completions", json={**BODY, "messages": messages}, timeout=PATIENCE).status_code
            == 200
        )
    assert len(json.dumps(provider.bodies)) < 40_000


class Script(Handler):
    """Stream what `provider.script` yields; None breaks the connection off."""

    def do_POST(self):  # noqa: N802 - the name that the standard library calls
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        try:
            for piece in self.provider.script():
                if piece is None:
                    self.connection.shutdown(socket.SHUT_RDWR)
                    self.close_connection = True
                    return
                self.chunk(piece)
                self.wfile.flush()
            self.chunk(b"")
        except OSError:
            self.provider.left = True
            self.close_connection = True


class Scripted:
    def __init__(self, script):
        self.script, self.left = script, False


def delta(text):
    return f"data: {json.dumps({'choices': [{'index': 0, 'delta': {'content': text}}]})}\n\n".encode()


def test_a_provider_that_dies_in_the_middle():
    provider = Scripted(lambda: iter([delta("To <EMA"), delta("IL_1> and <EMA"), None]))
    with running(provider, handler=Script) as (client, guard):
        text = client.post("/v1/chat/completions", json={**BODY, "stream": True}).text
        assert MAIL in text
        assert text.endswith("\n\n")
        last = text.strip().splitlines()
        assert last[-2] == "event: error"
        assert json.loads(last[-1].removeprefix("data: "))["error"]["code"] == "upstream_broke_off"
        assert guard.metrics.get("failures", cause="upstream_broke_off") == 1


def test_the_official_client_raises_where_the_provider_dies():
    openai = pytest.importorskip("openai")
    provider = Scripted(lambda: iter([delta("To <EMAIL_1>"), None]))
    with running(provider, handler=Script) as (client, _):
        official = openai.OpenAI(base_url=f"{client.base_url}".rstrip("/") + "/v1", api_key="none", max_retries=0)
        stream = official.chat.completions.create(**BODY, stream=True)
        assert next(stream).choices[0].delta.content == f"To {MAIL}"
        with pytest.raises(openai.APIError, match="broke the answer off"):
            next(stream)
        official.close()


def test_a_provider_that_is_not_there():
    guard = Guard(Stabilizer(4_000))
    with proxy_at(proxy_app(guard, "http://127.0.0.1:9")) as address:
        answer = httpx.post(f"{address}/v1/chat/completions", json=BODY, trust_env=False, timeout=PATIENCE)
    assert (answer.status_code, answer.json()["error"]["code"]) == (502, "upstream_unreachable")
    assert "cannot reach http://127.0.0.1:9" in answer.json()["error"]["message"]


def test_a_provider_that_does_not_answer():
    waiting = threading.Event()

    def script():
        waiting.wait(PATIENCE)
        yield b""

    class Silent(Script):
        def do_POST(self):  # noqa: N802 - the name that the standard library calls
            waiting.wait(PATIENCE)
            self.close_connection = True

    with running(Scripted(script), handler=Silent, read_timeout=0.2) as (client, guard):
        answer = client.post("/v1/chat/completions", json=BODY)
        waiting.set()
    assert (answer.status_code, answer.json()["error"]["code"]) == (504, "upstream_timeout")
    assert guard.metrics.get("failures", cause="upstream_timeout") == 1


def test_a_client_that_leaves_ends_the_request_to_the_provider():
    def script():
        while True:
            yield delta("word ")
            time.sleep(0.01)

    provider = Scripted(script)
    with running(provider, handler=Script) as (client, guard):
        with client.stream("POST", "/v1/chat/completions", json={**BODY, "stream": True}) as answer:
            next(answer.iter_bytes())
        assert until(lambda: provider.left)
        assert until(lambda: guard.metrics.get("failures", cause="client_left") == 1)
        assert "ctxguard_open_requests 0" in client.get("/metrics").text


def test_a_client_that_does_not_read():
    def script():
        for _ in range(4_000):
            yield delta("word " * 2_000)

    provider = Scripted(script)
    with running(provider, handler=Script, stall_timeout=0.3) as (client, guard):
        raw = json.dumps({**BODY, "stream": True}).encode()
        with socket.create_connection((client.base_url.host, client.base_url.port)) as slow:
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(raw)}\r\n\r\n"
            slow.sendall(head.encode() + raw)
            assert until(lambda: guard.metrics.get("failures", cause="slow_reader") == 1)
        assert until(lambda: provider.left)
        assert client.get("/healthz").status_code == 200


def test_malformed_chunks_are_passed_on_and_counted():
    odd = b"data: {half\n\n"
    with running(Scripted(lambda: iter([delta("<EMAIL_1>"), odd])), handler=Script) as (client, guard):
        text = client.post("/v1/chat/completions", json={**BODY, "stream": True}).content
        assert odd in text
        assert until(lambda: guard.metrics.get("malformed_events") == 1)


def test_chunks_are_passed_on_as_they_come():
    seen = threading.Event()

    def script():
        yield delta("one ")
        assert seen.wait(PATIENCE)
        yield delta("two")

    with (
        running(Scripted(script), handler=Script) as (client, _),
        client.stream("POST", "/v1/chat/completions", json=BODY) as answer,
    ):
        chunks = answer.iter_bytes()
        assert b"one" in next(chunks)
        seen.set()
        assert b"two" in b"".join(chunks)


def test_no_key_and_no_content_is_logged(caplog):
    with caplog.at_level(logging.DEBUG, logger="ctxguard"), running() as (client, _):
        client.post(f"/v1/chat/completions?mail={MAIL}", json=BODY)
        client.post("/v1/files", json=BODY)
    told = "\n".join(record.getMessage() for record in caplog.records if record.name.startswith("ctxguard"))
    assert "refused" in told
    assert KEY not in told
    assert MAIL not in told


@pytest.mark.slow
def test_many_streams_at_once_are_not_mixed_up():
    provider = WireProvider(steps=0, piece=2)
    failures = []

    def talk(client, number):
        mail = f"user{number}@example.com"
        body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": f"Find {mail}."}]}
        text = ""
        with client.stream("POST", "/v1/chat/completions", json=body) as answer:
            for line in answer.iter_lines():
                if line.startswith("data: {"):
                    text += json.loads(line[6:])["choices"][0]["delta"].get("content") or ""
        if text != f"All done, {mail}.":
            failures.append(text)

    at_once = {"timeout": PATIENCE, "limits": httpx.Limits(max_connections=80), "trust_env": False}
    with running(provider) as (one, _), httpx.Client(base_url=one.base_url, **at_once) as client:
        threads = [threading.Thread(target=talk, args=(client, number)) for number in range(80)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
    assert failures == []
    assert "@" not in json.dumps(provider.bodies)


@pytest.mark.parametrize("upstream", ["", "api.openai.com", "ftp://x.org"])
def test_the_upstream_is_an_http_url(upstream):
    with pytest.raises(ConfigError, match="upstream"):
        proxy_app(Guard(Stabilizer(4_000)), upstream)


async def test_a_second_iterator_of_a_stream_goes_on_where_the_first_stopped():
    pieces = []
    with provider_at(WireProvider(steps=0), Handler) as upstream:
        async with httpx.AsyncClient(transport=AsyncTransport(Stabilizer(4_000))) as client:
            asked = client.build_request("POST", f"{upstream}/v1/chat/completions", json={**BODY, "stream": True})
            answer = await client.send(asked, stream=True)
            async for piece in answer.stream:
                pieces.append(piece)
                break
            pieces += [piece async for piece in answer.stream]
            await answer.aclose()
    assert len(pieces) > 1
    assert b"".join(pieces).count(b"[DONE]") == 1
    assert pieces[-1].endswith(b"data: [DONE]\n\n")
