"""`ctxguard read` shows a view, or says in one line why there is none."""

from __future__ import annotations

import json

import pytest
from test_cli import cli


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text("".join(f"line {n}\n" for n in range(1, 101)))
    (tmp_path / "a.csv").write_text("id,name\n" + "".join(f"{n},x\n" for n in range(1, 101)))
    return lambda *arguments: cli("read", *arguments)


def test_view_is_printed(run):
    done = run("a.txt", "--max-tokens", "60", "--counter", "estimate")
    assert done.returncode == 0
    assert done.stdout.startswith("line 1\n")
    assert "of 100 shown" in done.stdout


def test_ranges(run):
    assert run("a.txt", "--lines", "3:4").stdout == "line 3\nline 4\n"
    assert run("a.txt", "--lines", "99:").stdout == "line 99\nline 100\n"
    assert run("a.csv", "--rows", "7").stdout == "id,name\n7,x\n"
    assert "has no lines from 101 on, only 100" in run("a.txt", "--lines", "101:").stderr


def test_json_holds_the_numbers(run):
    values = json.loads(run("a.txt", "--json", "--max-tokens", "60").stdout)
    assert values["success"] is True
    assert values["file_type"] == "text"
    assert values["truncation_info"]["lines_total"] == 100


def test_unreadable_file_is_one_line_and_exit_code_2(run):
    done = run("none.txt")
    assert done.returncode == 2
    assert done.stderr == "ctxguard: none.txt: no such file or directory\n"


def test_bad_range_is_bad_usage(run):
    assert run("a.txt", "--lines", "9:3").returncode == 2
    assert run("a.txt", "--lines", "x").returncode == 2


def test_lines_and_rows_together_are_bad_usage(run):
    done = run("a.csv", "--lines", "1:2", "--rows", "1:2")
    assert done.returncode == 2
    assert "--lines" in done.stderr
    assert done.stdout == ""


def test_rows_of_what_is_no_table_are_one_line_and_exit_code_2(run):
    done = run("a.txt", "--rows", "1:3")
    assert done.returncode == 2
    assert done.stderr == "ctxguard: a.txt: is text, which has no rows; ask for lines, or for all of it\n"


def test_nothing_is_read_outside_of_the_root(run, tmp_path):
    (tmp_path / "inside").mkdir()
    done = run("../a.txt", "--root", "inside")
    assert done.returncode == 2
    assert "outside" in done.stderr
