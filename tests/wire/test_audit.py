"""The record of what was sent: a line before each request, which holds no value and tells whether a body was sent."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from test_cli import cli
from test_serve_command import serving

from ctxguard import Stabilizer
from ctxguard.errors import AuditError, ConfigError, CtxguardError
from ctxguard.pii import STANDARD, RuleSet
from ctxguard.wire import AsyncTransport, AuditLog, Guard, Transport
from ctxguard.wire.audit import HiddenValues, version_of
from ctxguard.wire.guard import WireRequest

httpx = pytest.importorskip("httpx")

KEY = "sixteen letters, or more"
MAIL = "zora@mailhost.org"


@pytest.fixture(autouse=True)
def keyed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CTXGUARD_AUDIT_KEY", KEY)
    monkeypatch.delenv("CTXGUARD_VAULT_KEY", raising=False)


def chat(text="I am zora@mailhost.org", model="gpt-4o", path="/v1/chat/completions", **headers):
    body = {"model": model, "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": text}]}
    return WireRequest("POST", path, headers, json.dumps(body).encode())


def lines(path="audit.jsonl"):
    return [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]


def guard(**settings):
    return Guard(Stabilizer(9_000), audit=AuditLog("audit.jsonl"), **settings)


def test_a_line_says_what_was_sent_in_counts_and_holds_no_value():
    sent = guard().prepare(chat(f"I am {MAIL}, card 4111 1111 1111 1111, {MAIL}", **{"x-ctxguard-session": "s-17"}))
    (line,) = lines()
    assert line["hidden"] == {"CREDIT_CARD": {"messages.user": 1}, "EMAIL": {"messages.user": 2}}
    assert (line["session"], line["model"], line["path"]) == ("s-17", "gpt-4o", "/v1/chat/completions")
    assert line["decisions"]["masked"] == 1
    assert line["bytes"] == len(sent.body)
    assert line["rules"] == version_of([STANDARD]) or len(line["rules"]) == 12
    assert "zora" not in json.dumps(line)


def test_names_that_clients_choose_are_not_written_where_a_rule_finds_something_in_them():
    one = guard()
    one.prepare(chat(**{"x-ctxguard-session": f"session of {MAIL}"}))
    with pytest.raises(CtxguardError):
        one.prepare(chat(model=MAIL))
    line, refused = lines()
    assert line["session"] == "…"
    assert (refused["refused"], "model" in refused) == ("CheckFailedError", False)


def test_refusals_and_what_is_sent_on_unread_have_lines_of_their_own():
    one = guard(on_unreadable=["/v1/other"])
    with pytest.raises(CtxguardError):
        one.prepare(WireRequest("POST", "/v1/chat/completions", {}, b"{"))
    with httpx.Client(
        base_url="http://p", transport=Transport(one, transport=httpx.MockTransport(lambda _: httpx.Response(200)))
    ) as client:
        client.post("/v1/other", content=b"unread")
    refused, unread = lines()
    assert (refused["refused"], refused["sent"]) == ("WireError", None)
    assert (unread["path"], unread["sent"], "refused" in unread) == ("/v1/other", None, False)


def test_an_upload_whose_values_are_redacted_has_its_counts():
    head = {"content-type": "multipart/form-data; boundary=b"}
    part = f'--b\r\nContent-Disposition: form-data; name="file"; filename="a.txt"\r\n\r\nI am {MAIL}\r\n--b--\r\n'
    sent = guard().prepare(WireRequest("POST", "/v1/files", head, part.encode()))
    (line,) = lines()
    assert line["hidden"] == {"EMAIL": {"upload": 1}}
    assert len(list(AuditLog("audit.jsonl").sent(sent.body))) == 1


def test_a_second_try_has_a_line_of_its_own():
    answers = iter(
        [httpx.Response(400, json={"error": {"message": "maximum context length is 400 tokens"}}), httpx.Response(200)]
    )
    sent = []

    def upstream(request):
        sent.append(request.content)
        return next(answers)

    history = [{"role": ("user", "assistant")[n % 2], "content": f"note {n} " * 60} for n in range(9)]
    with httpx.Client(
        base_url="http://p", transport=Transport(guard(), transport=httpx.MockTransport(upstream))
    ) as client:
        client.post("/v1/chat/completions", json={"model": "gpt-4o", "messages": history})
    assert len(sent) == 2
    assert [len(list(AuditLog("audit.jsonl").sent(body))) for body in sent] == [1, 1]


def test_observing_records_the_original_that_is_sent():
    request = chat()
    Guard(Stabilizer(9_000, mode="observe"), audit=AuditLog("audit.jsonl")).prepare(request)
    (line,) = lines()
    assert (line["observed"], line["hidden"]) == (True, {})
    assert len(list(AuditLog("audit.jsonl").sent(request.body))) == 1


def test_a_sink_of_a_program_gets_the_record_and_the_body_before_it_is_sent():
    told = []
    sent = Guard(Stabilizer(9_000), audit=lambda record, body: told.append((record["hidden"], body))).prepare(chat())
    assert told == [({"EMAIL": {"messages.user": 1}}, sent.body)]


def test_verify_tells_the_body_that_was_sent_from_one_with_another_byte():
    body = guard().prepare(chat()).body
    for number, data in enumerate([body, body[:-1] + b" ", body.replace(b"EMAIL_1", b"EMAIL_2")]):
        Path(f"{number}.json").write_bytes(data)
    found = cli("audit", "verify", "audit.jsonl", "0.json")
    assert (found.returncode, found.stdout.startswith("sent at 2")) == (0, True)
    for changed in ("1.json", "2.json"):
        run = cli("audit", "verify", "audit.jsonl", changed)
        assert (run.returncode, run.stdout) == (1, "never sent\n")
    assert cli("audit", "verify", "none.jsonl", "0.json").stderr.startswith("ctxguard: none.jsonl: no such file")


def test_another_key_verifies_nothing(monkeypatch):
    body = guard().prepare(chat()).body
    monkeypatch.setenv("CTXGUARD_AUDIT_KEY", KEY + "!")
    assert list(AuditLog("audit.jsonl").sent(body)) == []
    monkeypatch.delenv("CTXGUARD_AUDIT_KEY")
    with pytest.raises(ConfigError, match="16 characters or more in CTXGUARD_AUDIT_KEY"):
        AuditLog("audit.jsonl")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/other"])
def test_what_cannot_be_recorded_is_not_sent(path):
    sent = []
    full = Guard(Stabilizer(9_000), audit=AuditLog("/dev/full"), on_unreadable=["/v1/other"])
    upstream = httpx.MockTransport(lambda request: sent.append(request) or httpx.Response(200))
    with httpx.Client(base_url="http://p", transport=Transport(full, transport=upstream)) as client:
        answer = client.post(path, content=chat().body)
    assert (answer.status_code, answer.headers["x-ctxguard-error"]) == (503, "AuditError")
    assert "no space left" in answer.text
    assert not sent
    with pytest.raises(AuditError):
        full.prepare(chat())


def test_a_full_file_is_kept_and_still_verified():
    log = AuditLog("audit.jsonl", max_bytes=2_000)
    guarded = Guard(Stabilizer(9_000), audit=log)
    bodies = [guarded.prepare(chat(f"note {number}")).body for number in range(20)]
    files = list(Path().glob("audit.jsonl*"))
    assert len(files) > 2
    assert all(len(list(log.sent(body))) == 1 for body in bodies)
    assert sum(len(lines(file)) for file in files) == len(bodies)


def test_a_line_that_was_cut_off_does_not_spoil_the_next():
    log = AuditLog("audit.jsonl")
    log({}, b"first")
    whole = Path("audit.jsonl").read_bytes()
    Path("audit.jsonl").write_bytes(whole + whole[:20])
    log({}, b"second")
    assert [len(list(log.sent(body))) for body in (b"first", b"second")] == [1, 1]
    assert Path("audit.jsonl").stat().st_mode & 0o077 == 0 or os.name == "nt"


def test_threads_write_whole_lines():
    logs = [AuditLog("audit.jsonl") for _ in range(4)]  # as several workers do
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: logs[number % 4]({"number": number}, b"x"), range(200)))
    assert sorted(line["number"] for line in lines()) == list(range(200))


def test_the_version_of_the_rules_changes_with_them():
    assert version_of([STANDARD]) == version_of([RuleSet(STANDARD.name, STANDARD.rules)])
    assert version_of([STANDARD]) != version_of([STANDARD.denying(["Heron"])])
    assert HiddenValues().of({"system": "<EMAIL_1>", "tools": [{"d": "[REDACTED_SSN]"}]}) == {
        "EMAIL": {"system": 1},
        "SSN": {"tools": 1},
    }


async def test_a_line_that_takes_long_lets_other_requests_go_on():
    begun, may_end, sent = threading.Event(), threading.Event(), []

    def sink(record, body):
        begun.set()
        if "slow" in body.decode():
            assert may_end.wait(60)

    upstream = httpx.MockTransport(lambda request: sent.append(request.content) or httpx.Response(200))
    guarded = AsyncTransport(Guard(Stabilizer(9_000), audit=sink), transport=upstream)
    async with httpx.AsyncClient(base_url="http://p", transport=guarded) as client:
        slow = asyncio.ensure_future(client.post("/v1/chat/completions", content=chat("slow").body))
        assert await asyncio.to_thread(begun.wait, 60)
        await client.post("/v1/chat/completions", content=chat("quick").body)
        assert [b"slow" in body for body in sent] == [False]  # what is not recorded yet is not sent either
        may_end.set()
        await slow
    assert len(sent) == 2


def test_what_was_counted_in_an_earlier_body_is_not_written_again(monkeypatch):
    written = []
    monkeypatch.setattr("ctxguard.wire.audit.json.dumps", lambda value, **_: written.append(value) or str(value))
    hidden, messages = HiddenValues(), []
    for number in range(1, 6):
        messages.append({"role": "user", "content": f"<EMAIL_{number}> <EMAIL_1>"})
        assert hidden.of({"messages": messages}) == {"EMAIL": {"messages.user": 2 * number}}
    assert len(written) == 5


async def test_async_clients_are_recorded_too():
    one = guard()
    upstream = httpx.MockTransport(lambda _: httpx.Response(200))
    async with httpx.AsyncClient(base_url="http://p", transport=AsyncTransport(one, transport=upstream)) as client:
        await client.post("/v1/chat/completions", content=chat().body)
    assert len(lines()) == 1


def test_after_a_kill_there_is_a_line_for_each_request_that_upstream_saw(tmp_path):
    seen = []

    class Upstream(BaseHTTPRequestHandler):
        def do_POST(self):
            size = int(self.headers["content-length"])
            body = self.rfile.read(size)
            if len(body) == size:  # of a request that the kill broke off, it saw a part
                seen.append(body)
            data = b'{"id": "c", "choices": []}'
            self.send_response(200)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Upstream)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}"
    with serving(url, "--audit", "audit.jsonl", cwd=tmp_path) as (process, client):

        def ask(number):
            try:
                client.post("/v1/chat/completions", content=chat(f"note {number}").body)
            except httpx.TransportError:
                return
            if number == 40:
                process.kill()

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(ask, range(80)))
    server.shutdown()
    server.server_close()
    log = AuditLog("audit.jsonl")
    assert len(seen) >= 40
    assert all(len(list(log.sent(body))) == times for body, times in Counter(seen).items())
