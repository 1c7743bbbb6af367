"""`check --pii` misses no text of a row, whatever it understands of it; files are named as for a replay."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_cli import cli

from ctxguard.harness.recordings import Unread, read_rows
from ctxguard.pii import STANDARD

MAIL = "ann@corp-mail.net"
NAMES = st.sampled_from(
    [MAIL, "instruction", "input", "output", "conversations", "from", "value", "prompt", "text", "note"]
)
TEXTS = st.sampled_from(["", "fine", f"I am {MAIL}.", "order 17"])
VALUES = st.recursive(
    TEXTS | st.none() | st.integers(0, 99),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)
ROWS = st.lists(st.dictionaries(NAMES, VALUES, min_size=1, max_size=4), min_size=1, max_size=4)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=3 * settings.default.max_examples)
@given(rows=ROWS)
def test_no_value_of_a_row_is_passed_over_and_no_clean_file_is_refused(rows, tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    run = cli("check", path, "--pii")
    assert run.returncode == int(MAIL in path.read_text()), (run.stdout, run.stderr)
    unread = [row for row in read_rows(path) if isinstance(row, Unread)]
    assert run.stderr.count("not understood, and searched as text") >= len(unread)
    assert MAIL not in run.stdout + run.stderr


@pytest.mark.parametrize(
    "row",
    [
        {"instruction": "Write.", "input": "To whom?", "output": f"To {MAIL}."},
        {"conversations": [{"from": "human", "value": f"I am {MAIL}."}, {"from": "gpt", "value": "Hi."}]},
        {"messages": [{"role": "user", "content": "Hi."}], "metadata": {"author": MAIL}},
        {"input": [{"role": "user", "content": "Hi."}], "instructions": f"Serve {MAIL}."},
        {"chosen": [{"role": "user", "content": MAIL}], "rejected": []},
        {MAIL: 1},
    ],
)
def test_rows_of_other_shapes_are_searched_and_told(row, tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(row))
    run = cli("check", path, "--pii")
    assert run.returncode == 1
    assert "EMAIL" in run.stdout
    assert not STANDARD.find(run.stdout + run.stderr)


def test_a_folder_a_glob_and_dumps_are_read_as_a_replay_reads_them(tmp_path):
    messages = [{"role": "user", "content": "Hi."}, {"role": "assistant", "content": "Yes?"}]
    for name, value in {
        "a.json": messages,
        "b.json": [{"type": "human", "data": {"content": "Hi."}}, {"type": "ai", "data": {"content": "Yes?"}}],
    }.items():
        (tmp_path / name).write_text(json.dumps(value))
    for named in (tmp_path, tmp_path / "*.json", tmp_path / "b.json"):
        assert cli("check", named).stdout == "ok\n", named
        replayed = json.loads(cli("replay", named, "--budget", 900, "-r", "json").stdout)
        assert replayed["skipped_count"] == 0
        context = cli("stabilize", named, "--budget", 900)
        assert context.returncode == 0, context.stderr
        assert len(context.stdout.splitlines()) == len(replayed["runs"][0]["sessions"])
