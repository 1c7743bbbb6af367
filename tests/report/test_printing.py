"""Nothing that is read reaches a terminal as a command to it."""

from __future__ import annotations

import json

import pytest
from test_cli import cli

from ctxguard.report.printing import printable

ESCAPES = {
    "title": "\x1b]0;owned\x07",
    "clipboard": "\x1b]52;c;cm0gLXJm\x07",
    "color": "\x1b[31mred\x1b[0m",
    "one byte": "\x9b31m",
    "overwritten line": "secret\rnothing",
    "direction": "abc\u202edef",
    "backspace": "a\x08b",
}


@pytest.mark.parametrize("text", ESCAPES.values(), ids=ESCAPES)
def test_controls_are_spelled_out(text):
    shown = printable(f"before {text}\n\tafter\r\n")
    assert shown.replace("\n", "").replace("\t", "").replace("\r", "").isprintable()
    assert "before" in shown
    assert json.loads(f'"{printable(text)}"') == text


@pytest.mark.parametrize("text", ESCAPES.values(), ids=ESCAPES)
def test_read_and_check_send_no_escapes(tmp_path, text):
    file = tmp_path / "notes.txt"
    file.write_text(f"line one\n{text}\nline three\n", encoding="utf-8", newline="")
    session = tmp_path / "session.json"
    message = {"role": "tool", "content": "x", "tool_call_id": text}
    session.write_text(json.dumps({"id": f"s {text}\nok", "messages": [message]}), encoding="utf-8")
    checked = cli("check", session)
    for done in (cli("read", file), cli("read", file, "--json"), checked, cli("check", f"no {text[1:3]}")):
        shown = done.stdout + done.stderr
        assert not any(sign in shown for sign in ("\x1b", "\x07", "\x9b", "\u202e", "\x08", "\r"))
        assert "Traceback" not in shown
    assert "\nok" not in checked.stdout
