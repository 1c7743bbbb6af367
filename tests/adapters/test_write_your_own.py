"""The worked example of adapters/README.md runs, and its adapter passes the suite."""

from __future__ import annotations

import subprocess
import sys

import pytest
from markdown_pages import ROOT, Reader

PAGE = ROOT / "adapters" / "README.md"


@pytest.fixture
def example(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_the_worked_example_runs(example, monkeypatch):
    monkeypatch.delitem(sys.modules, "magpie", raising=False)
    assert Reader(PAGE).follow() == 3
    lines = (example / "magpie.py").read_text(encoding="utf-8").splitlines()
    code = [line for line in lines if line.strip()]
    assert f"{len(code)} lines of code" in PAGE.read_text(encoding="utf-8"), "the page says how many lines it takes"


@pytest.mark.slow
def test_its_adapter_passes_the_suite(example):
    Reader(PAGE).follow()
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_magpie.py"]
    done = subprocess.run(command, cwd=example, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "passed" in done.stdout


def test_every_adapter_has_a_row():
    table = PAGE.read_text(encoding="utf-8")
    assert not [folder.name for folder in PAGE.parent.glob("ctxguard_*") if f"`{folder.name}`" not in table]
