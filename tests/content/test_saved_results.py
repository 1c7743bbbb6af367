"""What tools returned is saved for its owner alone, and nothing else of a folder can be recalled."""

from __future__ import annotations

import os
import stat

import pytest

from ctxguard.content import context_result, handle_of, recall, recall_tool
from ctxguard.errors import StoreError
from ctxguard.stores import MemoryStore, SQLiteStore, open_store

LARGE = "a line of the result\n" * 3_000


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture(autouse=True)
def any_umask():
    before = os.umask(0)
    yield
    os.umask(before)


def test_a_workspace_is_readable_for_its_owner_alone(tmp_path):
    context_result(workspace=tmp_path / "saved")(lambda: LARGE)()
    (file,) = (tmp_path / "saved").iterdir()
    assert (mode(tmp_path / "saved"), mode(file)) == (0o700, 0o600)
    assert recall(file.stem, workspace=tmp_path / "saved").startswith("[lines 1-")


@pytest.mark.parametrize(
    ("result", "extension"),
    [
        (LARGE, "txt"),
        ("id,name,age\n" + "1,Ann,31\n" * 3_000, "csv"),
        ([{"id": n} for n in range(3_000)], "json"),
        ("2026-01-02 10:00:00 INFO started\n" * 3_000, "log"),
    ],
)
def test_a_saved_result_has_the_extension_of_its_type(tmp_path, result, extension):
    context_result(workspace=tmp_path)(lambda: result)()
    (file,) = tmp_path.iterdir()
    assert file.suffix == f".{extension}"
    assert recall(file.stem, workspace=tmp_path, max_tokens=100)


def test_other_files_and_links_of_a_workspace_are_not_recalled(tmp_path):
    workspace, secret = tmp_path / "saved", tmp_path / "secret.txt"
    workspace.mkdir()
    secret.write_text("the secret")
    (workspace / "notes.txt").write_text("private notes")
    (workspace / "abcdefghijklmnopabcd.txt").write_text("private notes")
    (workspace / f"{handle_of(b'the secret')}.txt").symlink_to(secret)
    for name in ("notes", "abcdefghijklmnopabcd", handle_of(b"the secret"), "../secret", "*", "a" * 300, "a\0b", ""):
        assert recall(name, workspace=workspace).startswith("[nothing is saved under handle")


@pytest.mark.parametrize("handle", [None, 5, "", "a" * 300, ["x"], "\x1b]0;x\x07"])
def test_what_is_not_a_handle_is_answered_in_one_line(tmp_path, handle):
    for answer in (recall(handle), recall(handle, workspace=tmp_path), recall_tool(MemoryStore())(handle)):
        assert answer.startswith("[nothing is saved under handle")
        assert len(answer) < 140
        assert answer.isprintable()


def test_lines_that_are_not_numbers_are_answered_in_one_line(tmp_path):
    context_result(workspace=tmp_path)(lambda: LARGE)()
    (file,) = tmp_path.iterdir()
    assert "line numbers" in recall(file.stem, "first", workspace=tmp_path)


def test_a_workspace_that_cannot_be_used_is_a_store_error(tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(StoreError, match=r"not a folder|cannot be used"):
        context_result(workspace=file)(lambda: LARGE)()


def test_a_database_that_others_could_read_is_closed_to_them(tmp_path):
    path = tmp_path / "s.db"
    with SQLiteStore(path) as store:
        store.put("n", "k", b"v")
    path.chmod(0o666)
    with SQLiteStore(path) as store:
        store.put("n", "k", b"w")
        assert {mode(file) for file in tmp_path.iterdir()} == {0o600}


def test_a_store_in_memory_makes_no_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for store in (SQLiteStore(":memory:"), MemoryStore(), open_store(":memory:")):
        store.put("n", "k", b"v")
        assert store.get("n", "k") == b"v"
        store.close()
        assert store.get("n", "k") is None
        store.close()
    assert not list(tmp_path.iterdir())
