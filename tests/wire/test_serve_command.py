"""`ctxguard serve`: it starts, guards, and ends when it is told to."""

from __future__ import annotations

import json
import signal
import socket
import threading
import time
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from forked import Command
from patience import PATIENCE, until
from typer.testing import CliRunner
from wire_server import WireProvider, provider_at

from ctxguard.cli.options import StabilizerOptions, settings_of
from ctxguard.cli.program import app
from ctxguard.errors import ConfigError, CtxguardError
from ctxguard.pii import new_key
from ctxguard.wire.bodies import WireRequest
from ctxguard.wire.cli import Guarding, guard_of

httpx = pytest.importorskip("httpx")
pytest.importorskip("uvicorn")

MAIL = "ann@example.com"


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return taken.getsockname()[1]


def is_there(process, client):
    """Return whether the command serves by now; each time with a connection of its own, as it may end the first ones."""
    assert process.poll() is None, "it ended instead of serving"
    with suppress(httpx.TransportError):
        return client.get("/healthz", headers={"connection": "close"}).text == "ok\n"
    return False


@pytest.mark.parametrize("workers", [1, 2])
def test_it_says_serving_when_it_listens_and_names_its_page(tmp_path, workers):
    port = free_port()
    options = ["--workers", workers] if workers > 1 else []
    words = ("serve", "--upstream", "http://127.0.0.1:9", "--port", port, "--grace", 1, *options)
    process = Command(*words, cwd=tmp_path, fresh=workers > 1)
    try:
        said = process.complains_of("serving ")
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE):
            pass
        assert f"serving http://127.0.0.1:{port} for http://127.0.0.1:9" in said
        said = process.complains_of("what it does: ")
        assert f"what it does: http://127.0.0.1:{port}/ in a browser on this machine" in said
    finally:
        process.send_signal(signal.SIGTERM)
        process.ended()


@contextmanager
def serving(upstream, *options, cwd):
    """Run the command in a process of its own; give the process, and a client of it that waits until it is there."""
    port = free_port()
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=PATIENCE) as client:
        process = Command(
            "serve",
            "--upstream",
            upstream,
            "--port",
            port,
            "--grace",
            1,
            *options,
            cwd=cwd,
            fresh="--workers" in options,
        )
        try:
            assert until(lambda: is_there(process, client))
            yield process, client
        finally:
            process.send_signal(signal.SIGTERM)
            process.ended()


def test_it_serves_until_it_is_stopped_and_logs_cuts_without_any_content(tmp_path):
    provider = WireProvider(steps=0)
    body = {"model": "m", "messages": [{"role": "user", "content": f"Find {MAIL}."}]}
    turns = [{"role": ("user", "assistant")[n % 2], "content": f"Parcel {n} of {MAIL}. " * 30} for n in range(21)]
    with provider_at(provider) as upstream, serving(upstream, "--budget", "1k", cwd=tmp_path) as (process, client):
        answer = client.post("/v1/chat/completions", json=body, headers={"authorization": "Bearer sk-secret"})
        for end in range(1, 22, 2):
            client.post("/v1/chat/completions", json={"model": "m", "messages": turns[:end]})
        process.send_signal(signal.SIGTERM)
        told = process.ended()[1]
    assert answer.json()["choices"][0]["message"]["content"] == f"All done, {MAIL}."
    assert MAIL not in json.dumps(provider.bodies)
    assert "INFO ctxguard: cut at artifact" in told
    assert f"default settings: no ctxguard.yaml or config.yaml of ctxguard in {tmp_path}" in told
    assert not [word for word in ("sk-secret", "Traceback", MAIL, "Parcel") if word in told]


def test_it_masks_by_the_rules_that_are_named_and_says_so(tmp_path):
    provider = WireProvider(steps=0)
    body = {"model": "m", "messages": [{"role": "user", "content": "My name is Jane Roe."}]}
    with (
        provider_at(provider) as upstream,
        serving(upstream, "--rules", "standard,people", cwd=tmp_path) as (process, client),
    ):
        client.post("/v1/chat/completions", json=body)
        process.send_signal(signal.SIGTERM)
        told = process.ended()[1]
    assert provider.bodies[0]["messages"][0]["content"] == "My name is <PERSON_1>."
    assert "masked by the rules standard, people" in told


@pytest.mark.parametrize(
    ("configured", "chosen", "sent"),
    [
        (None, None, "<EMAIL_1>"),
        ("redact", None, "[REDACTED_EMAIL]"),
        ("redact", "pseudonymize", "<EMAIL_1>"),
        ("{EMAIL: redact, '*': pseudonymize}", None, "[REDACTED_EMAIL]"),
        (None, "redact", "[REDACTED_EMAIL]"),
    ],
)
def test_the_strategy_is_that_of_the_command_line_else_that_of_the_configuration(tmp_path, configured, chosen, sent):
    config = tmp_path / "ctxguard.yaml"
    config.write_text("stabilizer: {}\n" if configured is None else f"pii:\n  strategy: {configured}\n")
    chain = StabilizerOptions(config=config)
    guard = guard_of(chain, Guarding(strategy=chosen), settings_of(config, says_none=True), workers=1)
    body = json.dumps({"model": "gpt-5", "messages": [{"role": "user", "content": MAIL}]}).encode()
    prepared = guard.prepare(WireRequest("POST", "/v1/chat/completions", {}, body))
    assert json.loads(prepared.body)["messages"][0]["content"] == sent


def test_without_a_budget_it_is_a_share_of_the_window_of_each_model(tmp_path):
    provider = WireProvider(steps=0)
    body = {"messages": [{"role": "user", "content": "word " * 9_000}]}
    with provider_at(provider) as upstream, serving(upstream, cwd=tmp_path) as (process, client):
        answers = [
            client.post("/v1/chat/completions", json={**body, "model": model}) for model in ("gpt-4", "gpt-4o", "own")
        ]
        process.send_signal(signal.SIGTERM)
        told = process.ended()[1]
    assert [answer.status_code for answer in answers] == [400, 200, 200]
    assert "80% of the window" in told


@contextmanager
def dripping():
    """Give the URL of a provider whose streamed answer goes on for as long as somebody reads it."""
    event = b'data: {"id": "c", "choices": [{"index": 0, "delta": {"content": "hi"}}]}\n\n'

    class Drips(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.0"

        def do_POST(self):
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.end_headers()
            with suppress(OSError):
                while True:
                    self.wfile.write(event)
                    time.sleep(0.1)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Drips)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize("interrupts", [1, 2], ids=["the-grace-ends", "again"])
def test_told_to_end_while_it_answers_it_says_what_it_waits_for(tmp_path, interrupts):
    body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "Go on."}]}
    with (
        dripping() as upstream,
        serving(upstream, cwd=tmp_path) as (process, client),
        client.stream("POST", "/v1/chat/completions", json=body) as answer,
    ):
        lines = answer.iter_lines()  # held: without it, the client leaves
        assert next(lines).startswith("data:")
        for _ in range(interrupts):
            process.send_signal(signal.SIGINT)
            time.sleep(0.3)
        told = process.ended()[1]
    assert "ctxguard: waiting at most 1 s for 1 open answer; to break off at once, press Ctrl-C again\n" in told
    assert "Traceback" not in told
    assert process.poll() == 0


def test_it_observes(tmp_path):
    provider = WireProvider(steps=0)
    raw = json.dumps({"model": "m", "messages": [{"role": "user", "content": f"Find {MAIL}."}]}, indent=1).encode()
    with provider_at(provider) as upstream, serving(upstream, "--mode", "observe", cwd=tmp_path) as (_, client):
        answer = client.post("/v1/chat/completions", content=raw, headers={"content-type": "application/json"})
        metrics = client.get("/metrics").text
    assert answer.json()["choices"][0]["message"]["content"] == "All done, nobody."  # it saw no placeholder
    assert provider.bodies[0] == json.loads(raw)
    assert "ctxguard_input_tokens_total" in metrics


@pytest.mark.parametrize(
    "options",
    [
        ["--upstream", "nowhere"],
        ["--upstream", "http://x", "--budget", "180%"],
        ["--upstream", "http://x", "--policy", "no"],
        ["--upstream", "http://x", "--rules", "standard,peeple"],
    ],
)
def test_settings_that_cannot_be_used_are_one_typed_error(options):
    result = CliRunner().invoke(app, ["serve", *options])
    assert isinstance(result.exception, ConfigError)


@pytest.mark.slow
def test_workers_and_restarts_share_one_vault(tmp_path):
    (tmp_path / "key").write_text(new_key())
    provider = WireProvider(steps=0)
    people = {}
    options = ("--workers", "2", "--store", f"sqlite:///{tmp_path / 'vault.db'}", "--vault-key-file", "key")
    with provider_at(provider) as upstream:
        for _ in range(2):
            with serving(upstream, *options, cwd=tmp_path) as (_, client):
                for number in range(12):
                    person = f"person{number}@example.com"
                    body = {"model": "m", "messages": [{"role": "user", "content": f"Find {person}."}]}
                    headers = {"x-ctxguard-session": "s", "authorization": "Bearer one", "connection": "close"}
                    answer = client.post("/v1/chat/completions", json=body, headers=headers)
                    assert answer.json()["choices"][0]["message"]["content"] == f"All done, {person}."
                    given = provider.bodies[-1]["messages"][0]["content"]
                    assert people.setdefault(given, person) == person
    assert sorted(people) == sorted(f"Find <EMAIL_{number}>." for number in range(1, 13))


@pytest.mark.slow
def test_several_workers_without_a_store_say_that_they_refuse_sessions(tmp_path):
    body = {"model": "m", "messages": [{"role": "user", "content": f"Find {MAIL}."}]}
    with (
        provider_at(WireProvider(steps=0)) as upstream,
        serving(upstream, "--workers", "2", cwd=tmp_path) as (process, client),
    ):
        assert client.post("/v1/chat/completions", json=body).status_code == 200
        refused = client.post("/v1/chat/completions", json=body, headers={"x-ctxguard-session": "s"})
        process.send_signal(signal.SIGTERM)
        told = process.ended()[1]
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "WireError")
    assert "2 workers without --store: requests that name a session are refused" in told
    assert "Traceback" not in told


@pytest.mark.parametrize(
    "options",
    [["--vault-key-file", "no-such-file", "--store", ":memory:"], ["--vault-key-file", "key"], ["--store", "x://y"]],
)
def test_a_vault_that_cannot_be_used_is_one_typed_error(options, monkeypatch):
    monkeypatch.delenv("CTXGUARD_VAULT_KEY", raising=False)
    result = CliRunner().invoke(app, ["serve", "--upstream", "http://x", *options])
    assert isinstance(result.exception, CtxguardError)
