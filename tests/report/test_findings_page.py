"""`--html FILE`: one page of a replay, and one of a scan, that need no other file and hold no value."""

from __future__ import annotations

import json
import re

import pytest
from test_cli import cli

pytest.importorskip("jinja2", reason="Jinja2 is not installed (extra html)")

MAIL = "ann.poe@mailhost.org"
TALK = [
    {"role": "user", "content": f"I am {MAIL}."},
    {"role": "assistant", "content": "Hello."},
    {"role": "user", "content": "<script>alert(1)</script> and again " + MAIL},
    {"role": "assistant", "content": "Yes."},
]


@pytest.fixture
def session(tmp_path):
    path = tmp_path / "<b>session.json"
    path.write_text(json.dumps(TALK))
    return path


@pytest.mark.parametrize("command", [("replay",), ("pii", "scan")])
def test_both_commands_write_one_page_beside_what_they_print(session, tmp_path, command):
    page, plain = tmp_path / "page.of-any-name", cli(*command, session)
    run = cli(*command, session, "--html", page)
    assert run.returncode == plain.returncode
    assert run.stdout.splitlines()[0] == plain.stdout.splitlines()[0]
    shown = page.read_text(encoding="utf-8")
    assert shown.startswith("<!doctype html>")
    assert MAIL not in shown
    assert "<script>alert" not in shown
    assert "<b>session" not in shown
    assert not re.search(r"""(?:src|href)=|url\(|@import|https?://""", shown)
    assert 'name="viewport"' in shown
    assert "prefers-color-scheme:dark" in shown
    assert "@media print" in shown


def test_a_page_of_a_scan_names_types_and_places(session, tmp_path):
    page, clean = tmp_path / "page.html", tmp_path / "clean.txt"
    clean.write_text("order 24813")
    assert cli("pii", "scan", session, clean, "--html", page, "-r", "json").returncode == 1
    shown = page.read_text(encoding="utf-8")
    assert "2 values were found in 1 of 2 files." in shown
    assert "the text of message 2 (user)" in shown
    assert cli("pii", "scan", clean, "--html", page).returncode == 0
    assert "Nothing was found in 1 file." in page.read_text(encoding="utf-8")


@pytest.mark.parametrize("command", [("replay",), ("pii", "scan")])
def test_a_page_never_overwrites_what_was_read(session, command):
    run = cli(*command, session, "--html", session)
    assert run.returncode == 2
    assert json.loads(session.read_text()) == TALK
