"""The pytest plugin: a test for each recorded session, and a fixture that fails with the call at which a law broke."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from test_cli import MESSAGES

TESTS = """
from ctxguard import Stabilizer

def test_each(ctxguard_session, assert_stable):
    assert assert_stable(ctxguard_session, Stabilizer(600)).served

def test_fault(assert_stable):
    leak = lambda draft: draft.revise([*draft.artifacts[:-1], draft.artifacts[-1].revised(content="a@example.org")])
    from ctxguard.policies import agent_stages
    assert_stable([{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yes"}],
                  Stabilizer(600, stages=[*agent_stages(), leak], checks=()))

def test_nothing(assert_stable):
    assert_stable([{"role": "user", "content": "hi"}])
"""


@pytest.mark.slow
def test_sessions_become_tests_and_a_broken_law_a_failure(tmp_path):
    (tmp_path / "good.json").write_text(json.dumps(MESSAGES))
    (tmp_path / "bad.json").write_text("{")
    (tmp_path / "test_it.py").write_text(TESTS)
    plugins = ("-p", "no:cacheprovider")
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *plugins, "--ctxguard-sessions", tmp_path, tmp_path / "test_it.py"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert "2 failed, 1 passed, 1 error" in run.stdout, run.stdout
    assert "call 1: personal data: EMAIL was found" in run.stdout
    assert "nothing was judged: it has no model call" in run.stdout
    assert "bad.json:1: not valid JSON" in run.stdout


@pytest.mark.slow
def test_a_run_that_does_not_use_the_plugin_loads_nothing_else_of_ours(tmp_path):
    (tmp_path / "test_it.py").write_text(
        "import sys\n\n"
        "def test_it():\n"
        "    ours = {m for m in sys.modules if m.startswith('ctxguard')}\n"
        "    assert ours == {'ctxguard_pytest'}\n"
    )
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", tmp_path / "test_it.py"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert "1 passed" in run.stdout, run.stdout
