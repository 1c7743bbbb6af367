"""`ctxguard store` on real stores."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from test_cli import cli
from typer.testing import CliRunner

from ctxguard.cli.store import app
from ctxguard.stores import SQLiteStore, open_store

if TYPE_CHECKING:
    from pathlib import Path

runner = CliRunner()


@pytest.fixture
def filled(shared_place: str) -> str:
    with open_store(shared_place, clock=lambda: time.time() - 100) as store:
        store.put("handles", "b", b"first")
        store.put("handles", "a", bytes(range(256)))
        store.put("vault", "k", b"over", ttl=50)
    return shared_place


def test_ls_lists_namespaces_and_keys(filled: str) -> None:
    listed = runner.invoke(app, ["ls", filled])
    assert listed.exit_code == 0
    assert listed.stdout.startswith("handles\t2 records\t277 bytes\t")
    assert runner.invoke(app, ["ls", filled, "handles"]).stdout == "b\na\n"


def test_a_namespace_that_holds_nothing_is_named(filled: str) -> None:
    nothing = cli("store", "ls", filled, "nothing")
    assert (nothing.returncode, nothing.stdout) == (2, "")
    assert "no records in namespace 'nothing'; `ctxguard store ls` lists" in nothing.stderr


def test_show_writes_the_bytes_as_they_are(filled: str) -> None:
    assert runner.invoke(app, ["show", filled, "handles", "a"]).stdout_bytes == bytes(range(256))


def test_gc_deletes_what_is_over_and_what_is_too_much(filled: str) -> None:
    assert (
        "deleted 1 expired record and 0 records beyond the size limit; 277 bytes left"
        in runner.invoke(app, ["gc", filled]).stdout
    )
    swept = runner.invoke(app, ["gc", filled, "--max-bytes", "270"])
    assert "deleted 0 expired records and 1 record beyond the size limit; 264 bytes left" in swept.stdout


@pytest.mark.parametrize(
    "command",
    [["ls", "missing.db"], ["gc", "redis://x"], ["ls", "sqlite:///missing.db"], ["show", "missing.db", "n", "k"]],
)
def test_trouble_is_one_line_and_exit_code_2(command: list[str], tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    failed = cli("store", *command)
    assert failed.returncode == 2
    assert failed.stderr.startswith("ctxguard: ")
    assert failed.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", [["ls"], ["show", "handles", "k"], ["gc"]])
def test_the_database_of_another_program_is_refused_and_not_changed(command: list[str], tmp_path: Path) -> None:
    place = tmp_path / "other.db"
    with closing(sqlite3.connect(place)) as connection:
        connection.execute("CREATE TABLE customers (name)")
    before = place.read_bytes()
    name, *rest = command
    run = runner.invoke(app, [name, str(place), *rest])
    assert "a database, but not of a store" in str(run.exception)
    assert place.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["other.db"]


def test_a_record_that_is_not_there_is_named(filled: str) -> None:
    failed = cli("store", "show", filled, "handles", "zzz")
    assert failed.returncode == 2
    assert "no record 'zzz' in namespace 'handles'" in failed.stderr


@pytest.mark.parametrize("command", [["ls", "nothing"], ["show", "n", "k"]])
def test_no_error_shows_the_password_of_a_url(postgres_url: str, command: list[str]) -> None:
    url = postgres_url.replace("ctxguard@", "ctxguard:hunter2@")
    failed = cli("store", command[0], url, *command[1:])
    assert failed.returncode == 2
    assert "hunter2" not in failed.stdout + failed.stderr
    assert failed.stderr.count("\n") == 1


def test_a_mistyped_url_does_not_show_its_password() -> None:
    failed = cli("store", "ls", "postgresql:/user:hunter2@host/db")
    assert failed.returncode == 2
    assert "…@host/db: no such store" in failed.stderr
    assert "hunter2" not in failed.stdout + failed.stderr


@pytest.mark.parametrize("written", ["9e99", "-9e99", "'NaN'", "'Infinity'"])
def test_a_time_that_is_none_hides_nothing_else(sql_place: str, written: str) -> None:
    with open_store(sql_place) as store:
        store.put("n", "k", b"value")
        alter(store, f"UPDATE ctxguard_records SET written = {written}")
    listed = runner.invoke(app, ["ls", sql_place])
    assert (listed.exit_code, listed.exception) == (0, None)
    assert listed.stdout.startswith("n\t1 record\t7 bytes\t")


def alter(store, statement: str) -> None:
    if isinstance(store, SQLiteStore):
        with store._using("written") as connection:
            connection.execute(statement)
        return
    from sqlalchemy import text

    with store._engine.begin() as connection:
        connection.execute(text(statement))
