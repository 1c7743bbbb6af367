"""`ctxguard run`: a client finds the guard by what it reads, and the guard finds the provider by what was set before."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import textwrap

import pytest
from forked import Command
from test_cli import cli
from wire_server import WireProvider, provider_at

from ctxguard.report.telemetry import Metrics
from ctxguard.wire.metering import Billed

httpx = pytest.importorskip("httpx")
pytest.importorskip("uvicorn")

MAIL = "ann@example.com"
ASK = """
    import json, os, sys, urllib.request

    def ask(url, body):
        request = urllib.request.Request(url, json.dumps(body).encode(), {"content-type": "application/json"})
        with urllib.request.urlopen(request, timeout=240) as answer:
            return answer.read().decode()
"""


@pytest.fixture
def run(tmp_path):
    """Run a program of a name by `ctxguard run`; give what it printed, what the guard said, and the exit code."""

    def run(source, *arguments, name="client", options=(), **environment):
        program = tmp_path / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(f"#!{sys.executable}\n{textwrap.dedent(ASK)}{textwrap.dedent(source)}", encoding="utf-8")
        program.chmod(0o755)
        unset = {key: value for key, value in os.environ.items() if not key.upper().endswith(("_PROXY", "_BASE_URL"))}
        given = {**unset, "PATH": f"{program.parent}:{os.environ['PATH']}", "HOME": str(tmp_path), **environment}
        started = Command("run", *options, "--", name, *arguments, cwd=tmp_path, env=given)
        if "wait" in source:  # it says when it is ready to be told to end
            started.wait_for("ready\n")
            started.send_signal(signal.SIGTERM)
        return started.ended()

    return run


def test_a_client_is_guarded_by_the_usual_variables_for_several_providers(run):
    openai, anthropic = WireProvider(steps=0), WireProvider(steps=0)
    source = f"""
        message = {{"role": "user", "content": "Find {MAIL}."}}
        body = {{"model": "gpt-5", "messages": [message]}}
        print(ask(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body))
        print(ask(os.environ["OPENAI_API_BASE"] + "/chat/completions", body))
        body = {{"model": "claude-sonnet-4-5", "max_tokens": 9, "messages": [message]}}
        print(ask(os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages", body))
        sys.exit(7)
    """
    with provider_at(openai) as one, provider_at(anthropic) as other:
        out, told, status = run(source, OPENAI_BASE_URL=f"{one}/v1/", ANTHROPIC_BASE_URL=other)
    assert status == 7, told
    assert out.count(f"All done, {MAIL}.") == 3
    assert openai.paths == ["/v1/chat/completions"] * 2
    assert anthropic.paths == ["/v1/messages"]
    assert MAIL not in json.dumps([openai.bodies, anthropic.bodies])
    assert "3 requests" in told
    assert "masked in 3 requests; 0 cuts" in told
    assert "input tokens: " in told
    assert "the provider reported" in told
    assert "Traceback" not in told


def test_a_guard_that_observes_says_that_it_changed_nothing(run):
    source = f"""
        body = {{"model": "gpt-5", "messages": [{{"role": "user", "content": "Find {MAIL}."}}]}}
        ask(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body)
    """
    openai = WireProvider(steps=0)
    with provider_at(openai) as one:
        _, told, status = run(source, options=["--mode", "observe"], OPENAI_BASE_URL=f"{one}/v1/")
    assert status == 0, told
    assert MAIL in json.dumps(openai.bodies)
    assert "personal data was masked" not in told
    assert "nothing was changed; enforced, personal data would be masked in 1 request; 0 cuts" in told


SHOW = "print(json.dumps([sys.argv[1:], dict(os.environ)]))"


def test_codex_learns_the_address_by_its_arguments(run):
    arguments, _ = json.loads(run(SHOW, "exec", "do it", name="codex")[0])
    assert arguments[0] == "-c"
    assert arguments[1].startswith('openai_base_url="http://127.0.0.1:')
    assert arguments[1].endswith('/api.openai.com/v1"')
    assert arguments[2:] == ["exec", "do it"]


def test_codex_with_a_login_is_sent_to_the_backend_of_chatgpt(run, tmp_path):
    (tmp_path / "auth.json").write_text(json.dumps({"tokens": {"id_token": "x"}}))
    arguments, _ = json.loads(run(SHOW, "exec", name="codex", CODEX_HOME=str(tmp_path))[0])
    assert arguments[1].endswith('/chatgpt.com/backend-api/./codex"')
    base, backend = (json.loads(one.partition("=")[2]) for one in (arguments[1], arguments[3]))
    assert arguments[3].startswith("chatgpt_base_url=")
    assert base != f"{backend}/codex"  # Codex would leave the guard for where its workspace is
    assert base.replace("/./", "/") == f"{backend}/codex"
    arguments, _ = json.loads(run(SHOW, name="codex", CODEX_HOME=str(tmp_path), OPENAI_API_KEY="sk-mock")[0])
    assert arguments[1].endswith('/api.openai.com/v1"')


def test_settings_in_a_variable_keep_what_they_held(run):
    before = json.dumps({"model": "m", "provider": {"openai": {"options": {"timeout": 5}}}})
    _, environment = json.loads(run(SHOW, name="opencode", OPENCODE_CONFIG_CONTENT=before)[0])
    settings = json.loads(environment["OPENCODE_CONFIG_CONTENT"])
    assert settings["model"] == "m"
    assert settings["provider"]["openai"]["options"]["timeout"] == 5
    assert settings["provider"]["openai"]["options"]["baseURL"].endswith("/api.openai.com/v1")
    assert settings["provider"]["google"]["options"]["baseURL"].endswith("/generativelanguage.googleapis.com/v1beta")


def test_the_way_to_the_guard_leads_through_no_other_proxy(run):
    _, environment = json.loads(run(SHOW, NO_PROXY="intranet")[0])
    assert environment["NO_PROXY"] == "intranet,127.0.0.1,localhost"


@pytest.mark.parametrize(
    ("source", "status"),
    [
        (
            "import signal\nsignal.signal(15, lambda *_: sys.exit(5))\nprint('ready', flush=True)\nsignal.pause()  # wait",
            5,
        ),
        ("import signal\nprint('ready', flush=True)\nsignal.pause()  # wait", 128 + 15),
    ],
)
def test_signals_reach_the_client_and_its_exit_code_is_ours(run, source, status):
    assert run(source)[2] == status


def test_a_client_that_is_not_there_is_one_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = cli("run", "--", "nobody")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "nobody" in done.stderr


ANSWERS = {
    "chat": (
        b'{"usage": {"prompt_tokens": 90, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 64}}}',
        (90, 64, 7),
    ),
    "anthropic": (
        b'data: {"usage": {"input_tokens": 10, "cache_read_input_tokens": 80, "cache_creation_input_tokens": 5,'
        b'"output_tokens": 1}}\n\ndata: {"usage": {"output_tokens": 7}}\n\n',
        (95, 80, 7),
    ),
    "gemini": (
        b'{"usageMetadata": {"promptTokenCount": 90, "candidatesTokenCount": 7, "cachedContentTokenCount": 3}}',
        (90, 3, 7),
    ),
    "what the model says": (b'{"text": "\\"input_tokens\\": 99", "usage": {"input_tokens": 4}}', (4, 0, 0)),
}


@pytest.mark.parametrize("name", ANSWERS)
@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_what_was_billed_is_read_from_answers_however_they_are_cut(name, size):
    answer, expected = ANSWERS[name]
    metrics = Metrics()
    billed = Billed(metrics)
    for at in range(0, len(answer), size):
        billed.feed(answer[at : at + size])
    billed.close()
    assert tuple(metrics.get("billed.tokens", kind=kind) for kind in ("input", "cached", "output")) == expected


def test_a_port_in_use_is_named_in_one_line_that_says_what_to_do():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = cli("run", "--port", port, "--", sys.executable, "-V")
    assert done.returncode == 2
    assert done.stderr == f"ctxguard: 127.0.0.1:{port}: address already in use; name another port or host\n"


def test_a_client_that_did_not_use_the_guard_is_told_apart_from_one_that_did(run):
    _, told, status = run("print('hello')")
    assert status == 0
    assert "0 requests: the client did not use the guard" in told
    assert "personal data" not in told


def test_a_provider_that_is_down_names_no_option_that_run_lacks(run):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    source = """
        body = {"model": "gpt-5", "messages": [{"role": "user", "content": "Hi."}]}
        try:
            ask(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body)
        except urllib.error.HTTPError as error:
            print(error.code, error.read().decode())
    """
    out, told, _ = run(source, OPENAI_BASE_URL=f"http://127.0.0.1:{port}/v1")
    assert out.startswith("502 ")
    assert f"cannot reach http://127.0.0.1:{port}" in out
    assert "--" not in out + told
