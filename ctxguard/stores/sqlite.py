"""The default store: one SQLite file that threads and processes share and that needs no setup.

Write-ahead logging lets other processes read while one writes (https://sqlite.org/wal.html). A commit survives a crash
of the process; a power failure may lose the last commits, but never leaves half of one (`synchronous=NORMAL`). Since
stored values may be personal data, only the owner can read the file, and deleted values are overwritten with zeros
(`secure_delete`). The write-ahead log is also cleared by `delete_namespace`, by `sweep`, and when the last connection
is closed.
"""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Final, Literal

from ctxguard.errors import StoreError, reason_of
from ctxguard.stores.database import DELETE, EXPIRE, SQLStore, StoredRecord, failure
from ctxguard.stores.protocol import Clock, Swept

if TYPE_CHECKING:
    from collections.abc import Iterator

IN_MEMORY: Final = ":memory:"
"""The path of a database without a file."""

_SCHEMA: Final = files(__package__).joinpath("sqlite.sql").read_text(encoding="utf-8")
_OBJECTS: Final = _SCHEMA.count("IF NOT EXISTS")
_OWN_OBJECTS: Final = "SELECT count(*) FROM sqlite_schema WHERE name LIKE 'ctxguard\\_%' ESCAPE '\\'"
_NO_RIGHT: Final = frozenset({sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN})
"""SQLite's error codes if it cannot write the file or the file's folder, in which it keeps the write-ahead log."""
_REMEDIES: Final = (
    # words of SQLite's message, and the remedy
    (("locked", "busy"), "another process holds it for long; raise busy_timeout"),
    (("full",), "free some space on the disk, or set max_bytes"),
    (("readonly", "unable to open"), "its folder must be there, and both writable for this user"),
    (("not a database", "malformed"), "it is damaged or something else; move it away to start anew"),
)
_INHERITED: Final[list[sqlite3.Connection]] = []
"""Connections that a forked child process inherited. They are kept so that the child never closes them, because SQLite
forbids that."""


@dataclass(frozen=True, slots=True)
class _Session:
    """The connection of one process.

    Attributes:
        connection: The connection, which all threads share.
        file: Identity of the file, as `SQLiteStore._file` returns it.
        is_read_only: Whether the file could only be opened for reading.
        pid: Id of the process that opened the connection.
        lock: The lock that a thread holds while it uses the connection.
    """

    connection: sqlite3.Connection
    file: tuple[object, ...]
    is_read_only: bool = False
    pid: int = field(default_factory=os.getpid)
    lock: RLock = field(default_factory=RLock)


_PAUSE: Final = 0.02
"""Number of seconds between two attempts to truncate the log."""


def may_be_store(path: str | os.PathLike[str]) -> bool:
    """Return whether opening a file as a store changes nothing in it: it holds one, or is no SQLite database at all."""
    place = f"{Path(path).absolute().as_uri()}?mode=ro"
    with suppress(sqlite3.Error), closing(sqlite3.connect(place, uri=True)) as connection:
        return bool(connection.execute(_OWN_OBJECTS).fetchone()[0])
    return True


class SQLiteStore(SQLStore[sqlite3.Connection]):
    """A store in one SQLite file; safe for threads and processes, and across a fork.

    If the file is deleted while the store is open, calls raise `StoreError`. If it is replaced by another file, the
    store opens the new file.

    Args:
        path: The file, which is created if it is missing (its folder is not). `:memory:` means no file. If the current
            user cannot write the file or its folder, the store is read-only, and writing raises `StoreError`.
        max_bytes: Maximum size of the store in bytes: all values with their keys and namespaces. Beyond it, expired
            values are removed first and then the oldest. A vault must not lose any value, so give it a file of its own
            without a limit. None means no limit.
        busy_timeout: Number of seconds to wait while another process writes.
        clock: Function that returns the time in seconds since 1970.

    Raises:
        StoreError: If the file cannot be opened, is not an SQLite database, or is empty or truncated.
        ConfigError: If `max_bytes` is not above 0.
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

    def _put(self, record: StoredRecord) -> None:
        with self.together() as connection:
            self._write(connection, record)

    def _put_new(self, record: StoredRecord) -> bytes:
        # first without the write lock, unless this thread is in a transaction and already has it
        with self._using("read") as connection:
            stored = None if connection.in_transaction else self._live(connection, record.namespace, record.key)
        if stored is not None:
            return stored
        with self.together() as connection:
            if self._insert(connection, record, " ON CONFLICT DO NOTHING").rowcount:
                self._enforce_limit(connection)
                return record.value
            stored = self._live(connection, record.namespace, record.key)
            if stored is None:  # the conflicting record has expired or is damaged
                self._write(connection, record)
            return record.value if stored is None else stored

    def delete_namespace(self, namespace: str) -> int:
        """Delete all values of a namespace, erase them from the disk, and return how many of them had not expired.

        Raises:
            StoreError: If the file cannot be written, or another connection was reading for longer than `busy_timeout`,
                so that the log still contains the deleted values.
        """
        deleted = super().delete_namespace(namespace)
        self._shrink()
        return deleted

    def sweep(self) -> Swept:
        """Remove expired records and the oldest records beyond `max_bytes`, and shrink the file.

        Raises:
            StoreError: If the file cannot be written, or the log still contains deleted values because another
                connection was reading for longer than `busy_timeout`.
        """
        with self.together() as connection:
            swept = self._enforce_limit(connection)
        self._shrink()
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
        # No caller could handle an error here: `__init__` may have failed, or Python may be shutting down.
        try:  # noqa: SIM105 - `suppress` may no longer exist at shutdown
            self.close()
        except Exception:  # noqa: BLE001, S110
            pass

    def __repr__(self) -> str:
        return f"SQLiteStore({str(self.path)!r})"

    def _is_ours(self, session: _Session) -> bool:
        """Return whether this process may use a connection; a forked child must not use its parent's file."""
        return self._in_memory or session.pid == os.getpid()

    @contextmanager
    def _using(self, done: str) -> Iterator[sqlite3.Connection]:
        try:
            session = self._session
            if session is not None and not (
                self._is_ours(session) and session.file == self._file(is_read_only=session.is_read_only)
            ):
                self.close()  # inherited by a fork, the file was replaced, or a read-only file was changed
                session = None
            session = session or self._open()
            with session.lock:
                yield session.connection
        except sqlite3.Error as error:
            text = str(error)
            known = (remedy for words, remedy in _REMEDIES if any(word in text for word in words))
            raise failure(self.path, done, error, next(known, "see the cause")) from error

    def _transaction(self, done: Literal["read", "written"]) -> AbstractContextManager[sqlite3.Connection]:
        return self._using("read") if done == "read" else self.together()

    def _run(self, connection: sqlite3.Connection, statement: str, **parameters: object) -> sqlite3.Cursor:
        return connection.execute(statement, parameters)

    @contextmanager
    def together(self) -> Iterator[sqlite3.Connection]:
        """Run all calls inside a `with` block in one transaction.

        The transaction is committed as a whole, and is much faster than one transaction for each call.
        """
        with self._using("written") as connection:
            if connection.in_transaction:  # of an outer block in this thread
                yield connection
                return
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):  # after a full disk, SQLite has already rolled back
                    connection.execute("ROLLBACK")
                raise

    def _open(self) -> _Session:
        if not self._in_memory:
            self._create()
            self._make_private()
        is_read_only = False
        try:
            # an absolute path, because SQLite may take a relative one that begins with `file:` as a URI
            connection = self._connect(IN_MEMORY if self._in_memory else str(self.path.absolute()))
        except sqlite3.Error as error:
            is_file = os.access(self.path, os.R_OK) and self.path.is_file()
            if error.sqlite_errorcode & 0xFF not in _NO_RIGHT or not is_file:
                raise
            # `immutable` is safe without a log, because `_file` detects any change of the file itself
            frozen = "" if os.access(self._log, os.F_OK) else "&immutable=1"
            place, is_read_only = f"{self.path.absolute().as_uri()}?mode=ro{frozen}", True
            connection = self._connect(place, is_read_only=True)
        self._session = session = _Session(connection, self._file(is_read_only=is_read_only), is_read_only)
        return session

    def _connect(self, place: str, *, is_read_only: bool = False) -> sqlite3.Connection:
        """Open and prepare a connection to a path or, for a read-only connection, to a URI with options."""
        connection = sqlite3.connect(
            place, timeout=self.busy_timeout, isolation_level=None, check_same_thread=False, uri=is_read_only
        )
        try:
            self._prepare(connection, is_read_only=is_read_only)
        except BaseException:
            connection.close()
            raise
        return connection

    @property
    def _log(self) -> Path:
        return Path(f"{self.path}-wal")

    def _create(self) -> None:
        """Create a missing file, under a temporary name first, so that an empty file always means a truncated store."""
        has_log = os.access(self._log, os.F_OK)  # checked before the file, which another process may be creating
        if os.access(self.path, os.F_OK):
            return
        if has_log:
            raise StoreError(f"store {self.path} is gone, but its log is there; put it back, or delete {self._log}")
        place = Path(os.path.realpath(self.path))
        draft = Path(f"{place}.{os.urandom(8).hex()}.new")
        try:
            os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        except OSError:
            return  # opening the file fails next, with SQLite's clearer message
        try:
            with closing(sqlite3.connect(draft, isolation_level=None)) as connection:
                # write-ahead logging is a property of the file, so set it before other processes open the file
                settings = "PRAGMA auto_vacuum=INCREMENTAL; PRAGMA journal_mode=WAL;"
                connection.executescript(f"{settings} BEGIN; {_SCHEMA} COMMIT;")
            try:
                os.link(draft, place)
            except FileExistsError:
                pass  # another process created the file first
            except OSError:  # the file system does not support hard links
                draft.replace(place)
        finally:
            draft.unlink(missing_ok=True)

    def _make_private(self) -> None:
        """Let only the owner access the file and its log.

        The mode is changed by path, because opening and closing the file would release the locks of other connections
        (https://sqlite.org/howtocorrupt.html#_posix_advisory_locks_canceled_by_a_separate_thread_doing_close_).
        """
        for suffix in ("", "-wal", "-shm"):
            with suppress(OSError):
                file = Path(f"{self.path}{suffix}")
                file.chmod(file.stat().st_mode & 0o600)  # a read-only file stays read-only

    def _file(self, *, is_read_only: bool) -> tuple[object, ...]:
        """Return the identity of the file at the path, by which a replaced file is noticed.

        Raises:
            StoreError: If the file was deleted.
        """
        if self._in_memory:
            return ()
        try:
            found = self.path.stat()
        except OSError as error:
            reason = f"store {self.path} is gone: {reason_of(error)}; put it back, or open the store anew"
            raise StoreError(reason) from error
        state = (found.st_mtime_ns, found.st_size, os.access(self._log, os.F_OK)) if is_read_only else ()
        return (found.st_ino, *state)

    def _prepare(self, connection: sqlite3.Connection, *, is_read_only: bool) -> None:
        # a damaged name must not make the query for all records fail
        connection.text_factory = lambda data: data.decode("utf-8", "replace")
        if not self._in_memory and connection.execute("PRAGMA page_count").fetchone()[0] == 0:
            raise StoreError(f"store {self.path} is empty or cut off; restore it, or delete it to begin a new one")
        if is_read_only:
            connection.execute("SELECT 1 FROM ctxguard_records").fetchone()
            return
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=NORMAL")
        connection.execute("PRAGMA secure_delete=ON")
        if connection.execute(_OWN_OBJECTS).fetchone()[0] < _OBJECTS:
            connection.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} COMMIT;")

    def _write(self, connection: sqlite3.Connection, record: StoredRecord) -> None:
        self._run(connection, DELETE, namespace=record.namespace, key=record.key)
        self._insert(connection, record)
        self._enforce_limit(connection)

    def _enforce_limit(self, connection: sqlite3.Connection) -> Swept:
        expired = self._run(connection, EXPIRE, now=self._clock()).rowcount
        return Swept(expired, 0 if self.max_bytes is None else self._evict(connection, self.max_bytes))

    def _shrink(self) -> None:
        """Shrink the file, and truncate the write-ahead log, which still contains deleted values."""
        with self._using("written") as connection:
            # `execute` would free a single page, because it runs only one step of the statement
            connection.executescript("PRAGMA incremental_vacuum;")
            until = time.monotonic() + self.busy_timeout
            # SQLite itself waits for readers, but not for another connection that truncates the log at the same time
            # (https://sqlite.org/c3ref/wal_checkpoint_v2.html)
            while (is_busy := connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]) and (
                time.monotonic() < until
            ):
                time.sleep(_PAUSE)
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


class MemoryStore(SQLiteStore):
    """A store in the memory of this process; `close` empties it.

    It is an SQLite database without a file, and otherwise behaves like `SQLiteStore`.

    Args:
        max_bytes: Maximum size of the store in bytes: all values with their keys and namespaces. Beyond it, the oldest
            values are evicted first. None means no limit.
        clock: Function that returns the time in seconds since 1970.

    Raises:
        ConfigError: If `max_bytes` is not above 0.
    """

    def __init__(self, *, max_bytes: int | None = None, clock: Clock = time.time) -> None:
        super().__init__(IN_MEMORY, max_bytes=max_bytes, clock=clock)

    def __repr__(self) -> str:
        return f"MemoryStore({sum(usage.records for usage in self.usage())} records)"
