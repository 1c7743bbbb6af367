"""The record of what was sent: a line before each request, which holds no value and tells whether a body was sent."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from patience import PATIENCE
from test_cli import cli
from test_serve_command import serving

from ctxguard import Stabilizer
from ctxguard.cli.options import StabilizerOptions
from ctxguard.config import StabilizerConfig
from ctxguard.errors import AuditError, ConfigError, CtxguardError
from ctxguard.pii import STANDARD, RuleSet, new_key
from ctxguard.pii.placeholders import PLACEHOLDER
from ctxguard.wire import AsyncTransport, AuditLog, Guard, Transport
from ctxguard.wire.audit import HiddenValues, version_of
from ctxguard.wire.cli import Guarding, guard_of
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
    return Guard(Stabilizer(9_000), **{"audit": AuditLog("audit.jsonl"), **settings})


def test_a_line_says_what_was_sent_in_counts_and_holds_no_value():
    sent = guard().prepare(chat(f"I am {MAIL}, card 4111 1111 1111 1111, {MAIL}", **{"x-ctxguard-session": "s-17"}))
    (line,) = lines()
    assert line["hidden"] == {"CREDIT_CARD": {"messages.user": 1}, "EMAIL": {"messages.user": 2}}
    assert (line["model"], line["path"]) == ("gpt-4o", "/v1/chat/completions")
    assert line["decisions"]["masked"] == 1
    assert line["bytes"] == len(sent.body)
    assert line["rules"] == version_of([STANDARD]) or len(line["rules"]) == 12
    assert "zora" not in json.dumps(line)


def test_names_that_clients_choose_are_not_written_where_a_rule_finds_something_in_them():
    told = []
    one = guard(audit=lambda record, _: told.append(record))
    one.prepare(chat(**{"x-ctxguard-session": f"session of {MAIL}"}))
    with pytest.raises(CtxguardError):
        one.prepare(chat(model=MAIL))
    record, refused = told
    assert record["session"] == "…"
    assert (refused["refused"], "model" in refused) == ("CheckFailedError", False)


@pytest.mark.parametrize("mode", ["enforce", "observe"])
@pytest.mark.parametrize(
    "key", ["customer ssn 536904399", "password Xk7!qzTm2", "tel 01712345678", "jane@mailhost.org"]
)
def test_a_key_in_which_a_rule_finds_something_is_not_written(key, mode):
    body = {**json.loads(chat().body), key: ["zora@mailhost.org"], "metadata": {key: "zora@mailhost.org"}}
    guard = Guard(Stabilizer(9_000, mode=mode), audit=AuditLog("audit.jsonl"))
    with suppress(CtxguardError):
        guard.prepare(WireRequest("POST", "/v1/chat/completions", {}, json.dumps(body).encode()))
    written = Path("audit.jsonl").read_text("utf-8")
    assert written.count("\n") == 1
    assert key.split()[-1] not in written


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
    request = chat(f"I am {MAIL}, card 4111 1111 1111 1111")
    sent = Guard(Stabilizer(9_000, mode="observe"), audit=AuditLog("audit.jsonl")).prepare(request)
    (line,) = lines()
    assert (line["observed"], line["hidden"], line["decisions"]["masked"]) == (True, None, 1)
    assert sent.headers["x-ctxguard-tokens-after"] == str(sent.report.tokens_after) != str(sent.tokens)
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
    assert (found.returncode, found.stdout.startswith("recorded at 2")) == (0, True)
    for changed in ("1.json", "2.json"):
        run = cli("audit", "verify", "audit.jsonl", changed)
        assert (run.returncode, run.stdout) == (1, "not recorded\n")
    for file, body, told in [
        ("none.jsonl", "0.json", "ctxguard: none.jsonl: no such file"),
        ("0.json", "audit.jsonl", "ctxguard: 0.json: no record of requests; name the file that --audit wrote"),
    ]:
        run = cli("audit", "verify", file, body)
        assert (run.returncode, run.stderr[: len(told)]) == (2, told)


def damaged(line, number):
    """Return lines of a record with one of them changed or missing, each by the name of what was done."""
    return {
        "time": line.replace(b'"time": "2', b'"time": "1'),
        "count": line.replace(b'"bytes": ', b'"bytes": 1'),
        "path": line.replace(b"/v1/chat", b"/v2/chat"),
        "removed": b"",
        "torn": line[: number * 7 + 9] + b"\n",
    }


@pytest.mark.parametrize("how", ["time", "count", "path", "removed", "torn"])
@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_line_that_was_changed_or_removed_is_no_proof_and_no_silence(how, number):
    log = AuditLog("audit.jsonl")
    one = guard(audit=log)
    bodies = [one.prepare(chat(f"note {each}")).body for each in range(5)]
    written = Path("audit.jsonl").read_bytes().splitlines(keepends=True)
    written[number] = damaged(written[number], number)[how]
    Path("audit.jsonl").write_bytes(b"".join(written))
    found = {body: [] for body in bodies}
    for body, records in found.items():
        with pytest.raises(AuditError, match=r"audit.jsonl, line \d: it was changed, follows removed lines"):
            records.extend(log.sent(body))
    assert found[bodies[number]] == []
    assert len(found[bodies[4]]) == 1  # the last line follows a whole one


def test_a_line_from_another_record_or_place_does_not_count():
    for name in ("one.jsonl", "two.jsonl"):
        one = guard(audit=AuditLog(name))
        bodies = [one.prepare(chat(f"note {each} in {name}")).body for each in range(3)]
    first, second = (Path(name).read_bytes().splitlines(keepends=True) for name in ("one.jsonl", "two.jsonl"))
    for forged in ([*first, second[2]], [second[0], second[2], second[1]]):
        Path("forged.jsonl").write_bytes(b"".join(forged))
        with pytest.raises(AuditError):
            list(AuditLog("forged.jsonl").sent(bodies[2]))


def test_no_line_names_a_session_and_lines_of_one_session_are_alike():
    one = guard()
    for session in ("Jane Roe", "Jane Roe", "Ann Poe", MAIL):
        one.prepare(chat(**{"x-ctxguard-session": session}))
    told = Path("audit.jsonl").read_text(encoding="utf-8")
    assert not any(name in told for name in ("Jane", "Roe", "Ann", "zora"))
    sessions = [line["session"] for line in lines()]
    assert sessions[0] == sessions[1]
    assert len(set(sessions)) == 3
    assert hashlib.sha256(b"Jane Roe").hexdigest()[:16] not in sessions


@pytest.mark.parametrize("user", [None, "jane@mailhost.org"])
@pytest.mark.parametrize("mode", ["enforce", "observe"])
def test_header_and_record_name_one_number_of_tokens(user, mode):
    request = chat()
    if user is not None:
        body = {**json.loads(request.body), "user": user, "metadata": {"mail": user}}
        request = WireRequest("POST", request.path, {}, json.dumps(body).encode())
    sent = Guard(Stabilizer(9_000, mode=mode), audit=AuditLog("audit.jsonl")).prepare(request)
    (line,) = lines()
    told = {name.replace("_", "-"): str(count) for name, count in line["decisions"].items()}
    assert {name.removeprefix("x-ctxguard-"): count for name, count in sent.headers.items()} == {
        **told,
        **({"observed": "1"} if mode == "observe" else {}),
    }


def test_the_key_file_of_the_vault_keys_the_record_too(monkeypatch, tmp_path):
    monkeypatch.delenv("CTXGUARD_AUDIT_KEY")
    key = new_key()
    Path("vault.key").write_text(key, encoding="ascii")
    options = Guarding(store="vault.db", vault_key_file="vault.key", audit=tmp_path / "audit.jsonl")
    guarded = guard_of(StabilizerOptions(), options, StabilizerConfig(), workers=1)
    Path("body.json").write_bytes(guarded.prepare(chat()).body)
    assert cli("audit", "verify", "audit.jsonl", "body.json", "--vault-key-file", "vault.key").returncode == 0
    without = cli("audit", "verify", "audit.jsonl", "body.json")
    assert without.returncode == 2
    assert "give --vault-key-file FILE, or set CTXGUARD_AUDIT_KEY or CTXGUARD_VAULT_KEY" in without.stderr
    monkeypatch.setenv("CTXGUARD_VAULT_KEY", key)
    assert cli("audit", "verify", "audit.jsonl", "body.json").returncode == 0
    monkeypatch.setenv("CTXGUARD_AUDIT_KEY", KEY)  # it comes first, so here it is another one
    other = cli("audit", "verify", "audit.jsonl", "body.json", "--vault-key-file", "vault.key")
    assert (other.returncode, "was written with another key" in other.stderr) == (2, True)


@pytest.mark.parametrize("place", [".", "no/such/audit.jsonl"])
def test_a_place_that_can_hold_no_record_is_refused_at_the_start(place):
    with pytest.raises(ConfigError, match="an audit needs a file"):
        AuditLog(place)


def test_another_key_verifies_nothing(monkeypatch):
    body = guard().prepare(chat()).body
    monkeypatch.setenv("CTXGUARD_AUDIT_KEY", KEY + "!")
    with pytest.raises(AuditError, match="1 such lines prove nothing"):
        list(AuditLog("audit.jsonl").sent(body))
    monkeypatch.delenv("CTXGUARD_AUDIT_KEY")
    with pytest.raises(ConfigError, match=r"16 characters or more, .* CTXGUARD_AUDIT_KEY"):
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
            assert may_end.wait(PATIENCE)

    upstream = httpx.MockTransport(lambda request: sent.append(request.content) or httpx.Response(200))
    guarded = AsyncTransport(Guard(Stabilizer(9_000), audit=sink), transport=upstream)
    async with httpx.AsyncClient(base_url="http://p", transport=guarded) as client:
        slow = asyncio.ensure_future(client.post("/v1/chat/completions", content=chat("slow").body))
        assert await asyncio.to_thread(begun.wait, PATIENCE)
        await client.post("/v1/chat/completions", content=chat("quick").body)
        assert [b"slow" in body for body in sent] == [False]  # what is not recorded yet is not sent either
        may_end.set()
        await slow
    assert len(sent) == 2


def test_what_was_counted_in_an_earlier_body_is_not_searched_again_and_nothing_is_written(monkeypatch):
    written, searched = [], []
    monkeypatch.setattr("ctxguard.wire.audit.json.dumps", lambda value, **_: written.append(value) or str(value))
    search = SimpleNamespace(finditer=lambda text: searched.append(text) or PLACEHOLDER.finditer(text))
    monkeypatch.setattr("ctxguard.wire.audit.PLACEHOLDER", search)
    hidden, messages = HiddenValues(), []
    for number in range(1, 6):
        messages.append({"role": "user", "content": f"<EMAIL_{number}> <EMAIL_1>"})
        assert hidden.of({"messages": messages}) == {"EMAIL": {"messages.user": 2 * number}}
    assert len(searched) == 5
    assert not written


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text("<EMAIL_1>[é\n\\", max_size=70),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("<IP_2>", max_size=70), inner, max_size=4),
    max_leaves=8,
)


@given(JSON, st.integers(50, 70))
def test_placeholders_are_counted_as_in_the_body_that_is_written(value, size):
    member = [value, "<EMAIL_1>", "x" * size, "EMAIL_1>", ["<EMAIL_1_00>"], {"<IP_2>": "[REDACTED_IP]"}]
    told = [match[0] for match in PLACEHOLDER.finditer(json.dumps(member, ensure_ascii=False))]
    counts = HiddenValues().of({"input": [member]})
    assert sum(sum(places.values()) for places in counts.values()) == len(told)


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
