"""The default store: one SQLite file, shared by threads and processes, with nothing to set up.

Write-ahead logging lets readers go on while one process writes (https://sqlite.org/wal.html). A commit outlives the
process; the last ones before a power cut may be lost, never torn (`synchronous=NORMAL`). What lies in a store may be
personal: the file is made readable for its owner alone, and what is deleted is overwritten with zeros
(`secure_delete`), in the log too after `delete_namespace`, `sweep` and the last `close`.
"""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Final

from ctxguard.errors import StoreError
from ctxguard.stores.database import DELETE, EXPIRE, DatabaseStore
from ctxguard.stores.protocol import Clock, Swept
from ctxguard.stores.records import Record

if TYPE_CHECKING:
    from collections.abc import Iterator

IN_MEMORY: Final = ":memory:"
"""The path of a database without a file, which ends with the store that opened it."""

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS ctxguard_records (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    namespace TEXT NOT NULL, key TEXT NOT NULL,
    format INTEGER NOT NULL, written REAL NOT NULL, expires REAL,
    size INTEGER NOT NULL, checksum BLOB NOT NULL, value BLOB NOT NULL,
    UNIQUE (namespace, key)
);
CREATE INDEX IF NOT EXISTS ctxguard_expires ON ctxguard_records (expires) WHERE expires IS NOT NULL;
CREATE TABLE IF NOT EXISTS ctxguard_total (id INTEGER PRIMARY KEY CHECK (id = 1), bytes INTEGER NOT NULL);
INSERT OR IGNORE INTO ctxguard_total VALUES (1, 0);
CREATE TRIGGER IF NOT EXISTS ctxguard_added AFTER INSERT ON ctxguard_records
    BEGIN UPDATE ctxguard_total SET bytes = bytes + new.size; END;
CREATE TRIGGER IF NOT EXISTS ctxguard_removed AFTER DELETE ON ctxguard_records
    BEGIN UPDATE ctxguard_total SET bytes = bytes - old.size; END;
"""
_OBJECTS: Final = _SCHEMA.count("IF NOT EXISTS")
_WRITE: Final = (
    "INSERT INTO ctxguard_records (namespace, key, format, written, expires, size, checksum, value) "
    "VALUES (:namespace, :key, :format, :written, :expires, :size, :checksum, :value)"
)
_REMEDIES: Final = (
    (("locked", "busy"), "another process holds it for long; raise busy_timeout"),
    (("full",), "free some space on the disk, or set max_bytes"),
    (("readonly", "unable to open"), "its folder must be there, and both writable for this user"),
    (("not a database", "malformed"), "it is damaged or something else; move it away to start anew"),
)
_INHERITED: Final[list[sqlite3.Connection]] = []
"""Connections a forked child got from its parent; SQLite forbids the child even to close them."""


@dataclass(frozen=True, slots=True)
class _Session:
    """Hold what belongs to one process: its connection, and the lock its threads take turns by."""

    connection: sqlite3.Connection
    file: int
    pid: int = field(default_factory=os.getpid)
    lock: RLock = field(default_factory=RLock)


def _read_text(data: bytes) -> str:
    """Read a name even where it is damaged, so that one record cannot hide the others."""
    return data.decode("utf-8", "replace")


class SQLiteStore(DatabaseStore[sqlite3.Connection]):
    """Keep values in one SQLite file; safe for many threads and processes, and across a fork.

    Args:
        path: the file; it is created if missing (its folder is not). `:memory:` means no file at all.
        max_bytes: bytes of values, keys and namespaces to hold at most, over all namespaces; beyond that, expired
            values go first and then the oldest. Give values that must stay (a vault) a file of their own. None means
            no limit.
        busy_timeout: seconds to wait for a process that is writing.
        clock: tells the time in seconds.

    Raises:
        StoreError: the file cannot be opened or is not an SQLite database; in later calls, that it was deleted. If
            another file was put in its place, that one is opened.
        ConfigError: `max_bytes` is not above 0.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        max_bytes: int | None = None,
        busy_timeout: float = 30.0,
        clock: Clock = time.time,
    ) -> None:
        super().__init__(max_bytes, clock)
        self.path = Path(path)
        self.busy_timeout = busy_timeout
        self._in_memory = os.fspath(path) == IN_MEMORY
        self._session: _Session | None = None
        with self._using("opened"):
            pass

    def _put(self, record: Record) -> None:
        with self._writing() as connection:
            self._write(connection, record)

    def _put_new(self, record: Record) -> bytes:
        with self._reading() as connection:
            standing = self._live(connection, record.namespace, record.key)
        if standing is not None:
            return standing
        with self._writing() as connection:
            standing = self._live(connection, record.namespace, record.key)
            if standing is None:
                self._write(connection, record)
            return record.value if standing is None else standing

    def delete_namespace(self, namespace: str) -> int:
        """Delete every value of a namespace, so that the disk has no trace of it; return how many there were.

        Raises:
            StoreError: the file cannot be written, or another connection kept reading for `busy_timeout`, so that the
                log still holds the deleted values.
        """
        deleted = super().delete_namespace(namespace)
        self._give_back()
        return deleted

    def sweep(self) -> Swept:
        """Remove expired records and those beyond the size limit, and give the space back to the disk.

        Raises:
            StoreError: the file cannot be written.
        """
        with self._writing() as connection:
            swept = self._make_room(connection)
        self._give_back()
        return swept

    def close(self) -> None:
        """Close the file; the next call opens it again."""
        session, self._session = self._session, None
        if session is None:
            return
        if not self._is_ours(session):
            _INHERITED.append(session.connection)
            return
        with session.lock:
            session.connection.close()

    def __del__(self) -> None:
        # Nobody could handle an error here: `__init__` may have failed, or Python may be shutting down.
        try:  # noqa: SIM105 - `suppress` may be gone by then
            self.close()
        except Exception:  # noqa: BLE001, S110
            pass

    def __repr__(self) -> str:
        return f"SQLiteStore({str(self.path)!r})"

    def _is_ours(self, session: _Session) -> bool:
        """Return whether a connection may be used in this process: a forked child must not use one to a file."""
        return self._in_memory or session.pid == os.getpid()

    @contextmanager
    def _using(self, done: str) -> Iterator[sqlite3.Connection]:
        try:
            session = self._session
            if session is not None and self._is_ours(session) and session.file != self._file():
                self.close()  # another file lies there now
                session = None
            if session is None or not self._is_ours(session):
                session = self._open(session)
            with session.lock:
                yield session.connection
        except sqlite3.Error as error:
            raise self._failure(done, error) from error

    def _reading(self) -> AbstractContextManager[sqlite3.Connection]:
        return self._using("read")

    def _run(self, connection: sqlite3.Connection, statement: str, **parameters: object) -> sqlite3.Cursor:
        return connection.execute(statement, parameters)

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with self._using("written") as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):  # a full disk has rolled it back already; the first error matters
                    connection.execute("ROLLBACK")
                raise

    def _open(self, earlier: _Session | None) -> _Session:
        if earlier is not None:
            _INHERITED.append(earlier.connection)
        if not self._in_memory:
            self._make_private()
        connection = sqlite3.connect(
            self.path, timeout=self.busy_timeout, isolation_level=None, check_same_thread=False
        )
        try:
            self._prepare(connection)
        except BaseException:
            connection.close()
            raise
        self._session = session = _Session(connection, self._file())
        return session

    def _make_private(self) -> None:
        """Create the file readable for its owner alone; make an existing one of ours so, too.

        An existing file is not opened for that: closing it again would drop the locks of other connections
        (https://sqlite.org/howtocorrupt.html#_posix_advisory_locks_canceled_by_a_separate_thread_doing_close_).
        """
        with suppress(OSError):  # SQLite names the trouble better, when it opens the file
            os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        for suffix in ("", "-wal", "-shm"):
            with suppress(OSError):
                Path(f"{self.path}{suffix}").chmod(0o600)

    def _file(self) -> int:
        """Return which file lies at the path: in one that was deleted nobody would find what is written."""
        if self._in_memory:
            return 0
        try:
            return self.path.stat().st_ino
        except OSError as error:
            reason = error.strerror or str(error)
            raise StoreError(
                f"store {self.path} is gone: {reason.lower()}; put it back, or open the store anew"
            ) from error

    def _prepare(self, connection: sqlite3.Connection) -> None:
        connection.text_factory = _read_text
        if connection.execute("PRAGMA page_count").fetchone()[0] == 0:  # later it would only wait for the write lock
            connection.execute("PRAGMA auto_vacuum=INCREMENTAL")
        self._log_ahead(connection)
        connection.execute("PRAGMA synchronous=NORMAL")
        connection.execute("PRAGMA secure_delete=ON")
        found = connection.execute("SELECT count(*) FROM sqlite_schema WHERE name LIKE 'ctxguard\\_%' ESCAPE '\\'")
        if found.fetchone()[0] < _OBJECTS:
            connection.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} COMMIT;")

    def _log_ahead(self, connection: sqlite3.Connection) -> None:
        """Turn write-ahead logging on; SQLite does not wait by itself while several processes do so at once."""
        until = time.monotonic() + self.busy_timeout
        while True:
            try:
                connection.execute("PRAGMA journal_mode=WAL").fetchone()
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or time.monotonic() > until:
                    raise
                time.sleep(0.01)
            else:
                return

    def _failure(self, done: str, error: sqlite3.Error) -> StoreError:
        text = " ".join(str(error).split())
        remedy = next((remedy for words, remedy in _REMEDIES if any(word in text for word in words)), "see the cause")
        return StoreError(f"store {self.path} cannot be {done}: {text}; {remedy}")

    def _write(self, connection: sqlite3.Connection, record: Record) -> None:
        self._run(connection, DELETE, namespace=record.namespace, key=record.key)
        self._run(connection, _WRITE, **asdict(record), written=self._clock(), size=record.size)
        self._make_room(connection)

    def _make_room(self, connection: sqlite3.Connection) -> Swept:
        expired = self._run(connection, EXPIRE, now=self._clock()).rowcount
        return Swept(expired, 0 if self.max_bytes is None else self._evict(connection, self.max_bytes))

    def _give_back(self) -> None:
        """Shrink the file, and empty the log, where deleted values would still be found."""
        with self._using("written") as connection:
            # As a script: `execute` would step once, and each step gives back one page.
            connection.executescript("PRAGMA incremental_vacuum;")
            is_busy = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
        if is_busy and not self._in_memory:
            raise StoreError(
                f"store {self.path}: the records are deleted, but another connection is reading, so that its log still "
                "holds them; call sweep() when it has ended"
            )

    def _evict(self, connection: sqlite3.Connection, limit: int) -> int:
        (total,) = connection.execute("SELECT bytes FROM ctxguard_total").fetchone()
        last, evicted = 0, 0
        oldest = connection.execute("SELECT seq, size FROM ctxguard_records ORDER BY seq")
        while total > limit and (row := oldest.fetchone()) is not None:
            last, evicted, total = row[0], evicted + 1, total - row[1]
        oldest.close()
        connection.execute("DELETE FROM ctxguard_records WHERE seq <= ?", (last,))
        return evicted
