"""`ctxguard serve`: it starts, guards, and ends when it is told to."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time

import pytest
from typer.testing import CliRunner
from wire_server import WireProvider, provider_at

from ctxguard.cli import app
from ctxguard.errors import ConfigError

httpx = pytest.importorskip("httpx")
pytest.importorskip("uvicorn")

MAIL = "ann@example.com"


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return taken.getsockname()[1]


def test_it_serves_until_it_is_stopped(tmp_path):
    provider, port = WireProvider(steps=0), free_port()
    body = {"model": "m", "messages": [{"role": "user", "content": f"Find {MAIL}."}]}
    with (
        provider_at(provider) as upstream,
        httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False) as client,
    ):
        command = [
            sys.executable,
            "-m",
            "ctxguard",
            "serve",
            "--upstream",
            upstream,
            "--port",
            str(port),
            "--grace",
            "1",
        ]
        with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
            for _ in range(300):
                try:
                    if client.get("/healthz").text == "ok\n":
                        break
                except httpx.TransportError:
                    time.sleep(0.1)
            answer = client.post("/v1/chat/completions", json=body, headers={"authorization": "Bearer sk-secret"})
            process.send_signal(signal.SIGTERM)
            told = process.communicate(timeout=30)[1]
    assert answer.json()["choices"][0]["message"]["content"] == f"All done, {MAIL}."
    assert MAIL not in json.dumps(provider.bodies)
    assert "sk-secret" not in told
    assert "Traceback" not in told


@pytest.mark.parametrize(
    "options",
    [
        ["--upstream", "nowhere"],
        ["--upstream", "http://x", "--budget", "80%"],
        ["--upstream", "http://x", "--policy", "no"],
    ],
)
def test_settings_that_cannot_be_used_are_one_typed_error(options):
    result = CliRunner().invoke(app, ["serve", *options])
    assert isinstance(result.exception, ConfigError)
