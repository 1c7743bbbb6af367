"""What can happen to a file: damage, newer records, no room, no rights, a lock that stays, a fork."""

from __future__ import annotations

import os
import random
import resource
import signal
import sqlite3
import stat
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxguard.errors import StoreError
from ctxguard.stores import SQLiteStore
from ctxguard.stores.database import FORMAT

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


def alter(path: Path, assignment: str) -> None:
    """Change every record behind the store's back."""
    connection = sqlite3.connect(path)
    with connection:
        connection.execute(f"UPDATE ctxguard_records SET {assignment}")
    connection.close()


def test_one_file_that_only_its_owner_may_read(path: Path) -> None:
    with SQLiteStore(path) as store:
        store.put("n", "k", b"v")
        modes = {stat.S_IMODE(found.stat().st_mode) for found in path.parent.iterdir()}
    assert modes == {0o600}
    assert [found.name for found in path.parent.iterdir()] == ["store.db"]


def test_what_was_deleted_is_nowhere_in_the_files(path: Path) -> None:
    secret = b"the secret of " + random.Random(1).randbytes(20).hex().encode()
    with SQLiteStore(path) as store:
        store.put("n", "k", secret * 500)
        store.put("other", "stays", b"v")
        store.delete_namespace("n")
        assert store.get("other", "stays") == b"v"
        assert not [found for found in path.parent.iterdir() if secret in found.read_bytes()]


def test_a_sweep_gives_space_back_to_the_disk(path: Path) -> None:
    with SQLiteStore(path) as store:
        for number in range(50):
            store.put("n", str(number), bytes(20_000))
        store.delete_namespace("n")
        store.sweep()
    assert path.stat().st_size < 100_000


@pytest.mark.parametrize(
    "assignment",
    [
        "value = zeroblob(5)",
        "value = substr(value, 1, 3)",
        "value = 'text'",
        "checksum = zeroblob(16)",
        "checksum = 7",
        "expires = 9e99",
        "expires = 'soon'",
        "format = 0",
        "format = 'one'",
        "key = 'moved'",
        "namespace = 'moved'",
    ],
)
def test_a_damaged_record_is_reported_skipped_and_written_anew(
    path: Path, caplog: pytest.LogCaptureFixture, assignment: str
) -> None:
    with SQLiteStore(path) as store:
        store.put("n", "k", b"value")
        alter(path, assignment)
        moved = {"key": ("n", "moved"), "namespace": ("moved", "k")}.get(assignment.split(maxsplit=1)[0], ("n", "k"))
        assert store.get(*moved) is None
        assert "it is damaged" in caplog.text
        assert store.put_new(*moved, b"anew") == b"anew"
        assert store.get(*moved) == b"anew"


def test_a_newer_record_is_reported_skipped_and_written_anew(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with SQLiteStore(path) as store:
        store.put("n", "k", b"value")
        alter(path, f"format = {FORMAT + 1}")
        assert store.get("n", "k") is None
        assert "update ctxguard-stabilizer" in caplog.text
        assert list(store.keys("n")) == ["k"]
        assert not store.delete("n", "k")
        assert list(store.keys("n")) == []


def test_the_log_names_the_record_and_never_its_value(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with SQLiteStore(path) as store:
        store.put("n", "k", b"secret")
        alter(path, "checksum = zeroblob(16)")
        store.get("n", "k")
    assert [record.name for record in caplog.records] == ["ctxguard.stores"]
    assert "'k' of namespace 'n'" in caplog.text
    assert "secret" not in caplog.text


@pytest.mark.parametrize("seed", [*range(14), *(pytest.param(n, marks=pytest.mark.slow) for n in range(14, 40))])
def test_flipped_bytes_never_give_a_wrong_value(path: Path, seed: int) -> None:
    """Every value is right, absent, or an error that names the file."""
    values = {str(number): random.Random(number).randbytes(700) for number in range(40)}
    with SQLiteStore(path) as store:
        for key, value in values.items():
            store.put("n", key, value)
    data = bytearray(path.read_bytes())
    dice = random.Random(seed)
    for _ in range(20):
        data[dice.randrange(100, len(data))] ^= 1 << dice.randrange(8)
    path.write_bytes(data)
    for key, value in values.items():
        with suppress(StoreError), SQLiteStore(path) as store:
            assert store.get("n", key) in {None, value}
            assert store.put_new("n", key, b"anew") in {b"anew", value}


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda path: path.write_bytes(b"no database at all" * 100), "move it away"),
        (lambda path: path.mkdir(), "unable to open"),
    ],
)
def test_what_is_no_database_is_refused_in_one_line(path: Path, make: Callable[[Path], object], reason: str) -> None:
    make(path)
    with pytest.raises(StoreError, match=f"store .*store.db cannot be opened: .*{reason}") as raised:
        SQLiteStore(path)
    assert "\n" not in str(raised.value)


def test_a_folder_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"missing/store.db cannot be opened: .*its folder must be there"):
        SQLiteStore(tmp_path / "missing" / "store.db")


@pytest.mark.parametrize("left", [0, 1, 100, 512, 4_095])
def test_a_file_that_was_cut_off_is_no_new_store(path: Path, left: int) -> None:
    with SQLiteStore(path) as store:
        store.put("n", "k", b"v")
    os.truncate(path, left)
    for _ in range(2):  # nothing is mended behind one's back
        with pytest.raises(StoreError, match=r"empty or cut off; restore it|not a database|malformed"):
            SQLiteStore(path)
    assert path.stat().st_size == left


@given(left=st.floats(0, 1, exclude_max=True))
def test_of_a_file_that_was_cut_off_nothing_is_silently_missing(left: float) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store.db"
        values = {f"k{n}": bytes([n]) * 3_000 for n in range(20)}
        with SQLiteStore(path) as store:
            for key, value in values.items():
                store.put("n", key, value)
        os.truncate(path, int(left * path.stat().st_size))
        refused = 0
        for key, value in values.items():
            try:
                with SQLiteStore(path) as store:
                    # what was cut in the middle is reported as damaged, and still listed
                    assert store.get("n", key) == value or key in list(store.keys("n"))
            except StoreError:
                refused += 1
        assert refused == len(values) or left > 0.1


def test_a_file_that_is_gone_while_its_log_is_there_is_no_new_store(path: Path) -> None:
    with SQLiteStore(path) as store:
        store.put("n", "k", b"v")
        path.rename(path.with_name("away"))
        with pytest.raises(StoreError, match=r"is gone, but its log is there; put it back, or delete .*-wal"):
            SQLiteStore(path)
        path.with_name("away").rename(path)
        assert store.get("n", "k") == b"v"


@pytest.mark.parametrize("name", ["file:store.db", "file:store.db?mode=memory", "100%25.db"])
def test_a_name_that_looks_like_a_uri_is_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    with SQLiteStore(name) as store:
        store.put("n", "k", b"value")
    assert [file.name for file in tmp_path.iterdir()] == [name]
    with SQLiteStore(name) as store:
        assert store.get("n", "k") == b"value"


def test_a_new_store_leaves_no_draft_behind(path: Path) -> None:
    SQLiteStore(path).close()
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_without_links_a_store_is_created_too(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(os, "link", refuse)
    with SQLiteStore(path) as store:
        store.put("n", "k", b"v")
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def as_nobody(path: Path, in_child: Callable[[Callable[[], None]], None], work: Callable[[], None]) -> None:
    """Run in a process of a user who may read whatever is there."""
    for folder in (path.parent, *path.parent.parents):
        if folder.stat().st_uid == os.geteuid() and folder != Path("/"):
            folder.chmod(folder.stat().st_mode | 0o055)

    def run() -> None:
        os.seteuid(65_534)
        work()

    in_child(run)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become a user without rights")
@pytest.mark.parametrize("is_open", [False, True])
def test_a_store_that_may_only_be_read_is_read(
    path: Path, in_child: Callable[[Callable[[], None]], None], is_open: bool
) -> None:
    with SQLiteStore(path) as store:
        store.put("n", "k", b"v")
        if not is_open:
            store.close()
        for file in path.parent.iterdir():
            file.chmod(0o644)

        def read() -> None:
            with SQLiteStore(path) as reading:
                assert reading.get("n", "k") == reading.put_new("n", "k", b"w") == b"v"
                assert list(reading.keys("n")) == ["k"]
                for change in (lambda: reading.put("n", "k", b"w"), lambda: reading.delete("n", "k")):
                    with pytest.raises(StoreError, match=r"readonly database; .* both writable for this user"):
                        change()

        as_nobody(path, in_child, read)
        assert store.get("n", "k") == b"v"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become a user without rights")
def test_whoever_may_only_read_sees_what_is_written_later(
    path: Path, in_child: Callable[[Callable[[], None]], None]
) -> None:
    with SQLiteStore(path) as store:
        store.put("n", "k", b"v")
    path.chmod(0o644)

    def read() -> None:
        with SQLiteStore(path) as reading:
            assert reading.get("n", "k") == b"v"
            os.seteuid(0)
            with SQLiteStore(path) as writing:
                writing.put("n", "k", b"later")
            path.chmod(0o644)
            os.seteuid(65_534)
            assert reading.get("n", "k") == b"later"

    as_nobody(path, in_child, read)


def test_what_its_owner_made_read_only_stays_so(path: Path) -> None:
    SQLiteStore(path).close()
    path.chmod(0o444)
    SQLiteStore(path).close()
    assert path.stat().st_mode & 0o777 == 0o400


def test_it_lives_beside_the_tables_of_others(path: Path) -> None:
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE theirs (x)")
    other.close()
    with SQLiteStore(path) as store:
        store.put("n", "k", b"v")
        assert store.get("n", "k") == b"v"


def test_a_full_disk_is_one_clear_line_and_loses_nothing(
    path: Path, in_child: Callable[[Callable[[], None]], None]
) -> None:
    def fill_up() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        store = SQLiteStore(path)
        store.put("n", "before", b"v")
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
        with pytest.raises(StoreError, match=r"store .*store.db cannot be written: ") as raised:
            store.put("n", "big", bytes(1_000_000))
        assert "\n" not in str(raised.value)
        assert store.get("n", "before") == b"v"
        assert store.get("n", "big") is None

    in_child(fill_up)
    with SQLiteStore(path) as store:
        assert store.get("n", "before") == b"v"


def test_no_more_pages_says_to_make_room(path: Path) -> None:
    with SQLiteStore(path) as store, store._using("opened") as connection:
        connection.execute("PRAGMA max_page_count=20")
        with pytest.raises(StoreError, match="full; free some space on the disk, or set max_bytes"):
            store.put("n", "big", bytes(1_000_000))
        store.put("n", "small", b"v")
        assert store.get("n", "small") == b"v"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become a user without rights")
def test_a_file_without_rights_is_one_clear_line(path: Path, in_child: Callable[[Callable[[], None]], None]) -> None:
    SQLiteStore(path).close()
    for folder in (path.parent, *path.parent.parents):
        if folder.stat().st_uid == os.geteuid() and folder != Path("/"):
            folder.chmod(folder.stat().st_mode | 0o055)

    def read_and_write() -> None:
        os.setuid(65_534)
        with pytest.raises(StoreError, match=r"cannot be opened: .*writable for this user"):
            SQLiteStore(path)

    in_child(read_and_write)


def test_a_writer_that_does_not_end_is_named(path: Path) -> None:
    with SQLiteStore(path) as store, SQLiteStore(path, busy_timeout=0.05) as waiting, store.together():
        with pytest.raises(StoreError, match="locked; another process holds it for long; raise busy_timeout"):
            waiting.put("n", "k", b"v")
        assert waiting.get("n", "k") is None


def test_a_forked_child_opens_the_file_itself(path: Path, in_child: Callable[[Callable[[], None]], None]) -> None:
    store = SQLiteStore(path)
    store.put("n", "parent", b"v")

    def use() -> None:
        assert store.get("n", "parent") == b"v"
        store.put("n", "child", b"v")
        store.close()

    with store.together():  # the child must not wait for a lock that only its parent's thread can let go
        in_child(lambda: store.get("n", "parent"))
    in_child(use)
    assert store.get("n", "child") == b"v"
    store.close()


def interrupt(connection: sqlite3.Connection) -> None:
    raise KeyboardInterrupt


def test_a_failure_inside_a_write_undoes_it(path: Path) -> None:
    with SQLiteStore(path) as store:
        store.put("n", "k", b"old")
        store._enforce_limit = interrupt  # after the old value was deleted and the new one written
        with pytest.raises(KeyboardInterrupt):
            store.put("n", "k", b"lost")
        del store._enforce_limit
        assert store.get("n", "k") == b"old"
        store.put("n", "k", b"new")
        assert store.get("n", "k") == b"new"


def test_a_file_that_was_deleted_takes_no_value_that_nobody_would_find(path: Path) -> None:
    with SQLiteStore(path) as store:
        store.put("n", "k", b"v")
        kept = path.rename(path.with_suffix(".kept"))
        for call in (lambda: store.put("n", "lost", b"v"), lambda: store.get("n", "k"), store.sweep):
            with pytest.raises(StoreError, match=r"store .*store.db is gone: .*put it back, or open the store anew"):
                call()
        kept.rename(path)
        assert store.get("n", "k") == b"v"


def test_a_file_that_was_replaced_is_opened_anew(path: Path) -> None:
    with SQLiteStore(path) as store:
        store.put("n", "k", b"old")
        with SQLiteStore(path.with_suffix(".new")) as other:
            other.put("n", "k", b"new")
        path.with_suffix(".new").replace(path)
        for left in path.parent.glob("store.db-*"):
            left.unlink()
        assert store.get("n", "k") == b"new"
        store.put("n", "after", b"v")
    with SQLiteStore(path) as store:
        assert list(store.keys("n")) == ["k", "after"]
