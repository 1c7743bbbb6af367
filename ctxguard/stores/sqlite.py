"""The default store: one SQLite file, shared by threads and processes, with nothing to set up.

Write-ahead logging lets other processes read while one writes (https://sqlite.org/wal.html). A commit survives a crash
of the process; a power failure may lose the last commits, but never leaves half of one (`synchronous=NORMAL`). Since
stored values may be personal data, only the owner can read the file, and deleted values are overwritten with zeros
(`secure_delete`), in the log too after `delete_namespace`, `sweep`, and the last `close`.
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
from typing import TYPE_CHECKING, Final

from ctxguard.errors import StoreError, reason_of
from ctxguard.stores.database import DELETE, EXPIRE, SQLStore, StoredRecord
from ctxguard.stores.protocol import Clock, Swept

if TYPE_CHECKING:
    from collections.abc import Iterator

IN_MEMORY: Final = ":memory:"
"""The path of a database without a file."""

_SCHEMA: Final = files(__package__).joinpath("sqlite.sql").read_text(encoding="utf-8")
_OBJECTS: Final = _SCHEMA.count("IF NOT EXISTS")
_NO_RIGHT: Final = frozenset({sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN})
"""Error codes of SQLite if the file, or the folder of its log, is not writable."""
_REMEDIES: Final = (
    (("locked", "busy"), "another process holds it for long; raise busy_timeout"),
    (("full",), "free some space on the disk, or set max_bytes"),
    (("readonly", "unable to open"), "its folder must be there, and both writable for this user"),
    (("not a database", "malformed"), "it is damaged or something else; move it away to start anew"),
)
_INHERITED: Final[list[sqlite3.Connection]] = []
"""Connections that a forked child inherited; SQLite forbids the child even to close them."""


@dataclass(frozen=True, slots=True)
class _Session:
    """The connection of one process, and the lock that its threads share."""

    connection: sqlite3.Connection
    file: tuple[object, ...]
    is_read_only: bool = False
    pid: int = field(default_factory=os.getpid)
    lock: RLock = field(default_factory=RLock)


class SQLiteStore(SQLStore[sqlite3.Connection]):
    """A store in one SQLite file; safe for threads and processes, and across a fork.

    Args:
        path: the file; it is created if missing (its folder is not). `:memory:` means no file. If this user cannot
            write the file or its folder, the store is read-only, and writing raises `StoreError`.
        max_bytes: bytes of values, keys and namespaces to hold at most, over all namespaces; beyond it, expired
            values are removed first and then the oldest. Keep a vault, which must lose nothing, in a file of its own.
            None means no limit.
        busy_timeout: seconds to wait while another process writes.
        clock: returns the time in seconds since 1970.

    Raises:
        StoreError: the file cannot be opened, is not an SQLite database, or is empty or truncated; in later calls, the
            file was deleted. If it was replaced by another file, that one is opened.
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

    def _put(self, record: StoredRecord) -> None:
        with self._writing() as connection:
            self._write(connection, record)

    def _put_new(self, record: StoredRecord) -> bytes:
        with self._reading() as connection:  # what is there needs no lock, unless this thread has it already
            stored = None if connection.in_transaction else self._live(connection, record.namespace, record.key)
        if stored is not None:
            return stored
        with self._writing() as connection:
            if self._insert(connection, record, " ON CONFLICT DO NOTHING").rowcount:
                self._enforce_limit(connection)
                return record.value
            stored = self._live(connection, record.namespace, record.key)
            if stored is None:  # expired, or damaged
                self._write(connection, record)
            return record.value if stored is None else stored

    def delete_namespace(self, namespace: str) -> int:
        """Delete every value of a namespace and erase it from the disk; return how many there were.

        Raises:
            StoreError: the file cannot be written, or another connection read for longer than `busy_timeout`, so that
                the log still contains the deleted values.
        """
        deleted = super().delete_namespace(namespace)
        self._shrink()
        return deleted

    def sweep(self) -> Swept:
        """Remove expired records and those beyond the size limit, and shrink the file.

        Raises:
            StoreError: the file cannot be written.
        """
        with self._writing() as connection:
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
        """Return whether this process may use a connection: a forked child must not use its parent's."""
        return self._in_memory or session.pid == os.getpid()

    @contextmanager
    def _using(self, done: str) -> Iterator[sqlite3.Connection]:
        try:
            session = self._session
            if (
                session is not None
                and self._is_ours(session)
                and session.file != self._file(is_read_only=session.is_read_only)
            ):
                self.close()  # the file was replaced, or a read-only file was changed
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
            if connection.in_transaction:  # an outer one of this thread, which holds the lock
                yield connection
                return
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):  # a full disk rolls back by itself; the first error matters
                    connection.execute("ROLLBACK")
                raise

    together = _writing
    """Read and write in one transaction: all of it is written or nothing, at a fraction of the time."""

    def _open(self, earlier: _Session | None) -> _Session:
        if earlier is not None:
            _INHERITED.append(earlier.connection)
        if not self._in_memory:
            self._create()
            self._make_private()
        is_read_only = False
        try:
            connection = self._connected(os.fspath(self.path))
        except sqlite3.Error as error:
            is_file = os.access(self.path, os.R_OK) and self.path.is_file()
            if error.sqlite_errorcode & 0xFF not in _NO_RIGHT or not is_file:
                raise
            # `immutable` is safe if there is no log: `_file` detects any change of the file itself
            frozen = "" if os.access(self._log, os.F_OK) else "&immutable=1"
            connection, is_read_only = self._connected(f"{self.path.absolute().as_uri()}?mode=ro{frozen}"), True
        self._session = session = _Session(connection, self._file(is_read_only=is_read_only), is_read_only)
        return session

    def _connected(self, place: str) -> sqlite3.Connection:
        is_uri = place.startswith("file:")
        connection = sqlite3.connect(
            place, timeout=self.busy_timeout, isolation_level=None, check_same_thread=False, uri=is_uri
        )
        try:
            self._prepare(connection, is_read_only=is_uri)
        except BaseException:
            connection.close()
            raise
        return connection

    @property
    def _log(self) -> Path:
        return Path(f"{self.path}-wal")

    def _create(self) -> None:
        """Create a missing file under a temporary name first, so that an empty file always means a truncated store."""
        has_log = os.access(self._log, os.F_OK)  # checked first: another process may be creating the file
        if os.access(self.path, os.F_OK):
            return
        if has_log:
            raise StoreError(f"store {self.path} is gone, but its log is there; put it back, or delete {self._log}")
        place = Path(os.path.realpath(self.path))
        draft = Path(f"{place}.{os.urandom(8).hex()}.new")
        try:
            os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        except OSError:
            return  # SQLite reports the reason better when it opens the file
        try:
            with closing(sqlite3.connect(draft, isolation_level=None)) as connection:
                # write-ahead logging is a property of the file: processes that open it need not agree on it later
                settings = "PRAGMA auto_vacuum=INCREMENTAL; PRAGMA journal_mode=WAL;"
                connection.executescript(f"{settings} BEGIN; {_SCHEMA} COMMIT;")
            try:
                os.link(draft, place)
            except FileExistsError:
                pass  # another process was faster
            except OSError:  # the file system does not support hard links
                draft.replace(place)
        finally:
            draft.unlink(missing_ok=True)

    def _make_private(self) -> None:
        """Let only the owner read the file.

        It changes the mode by path: opening and closing the file would drop the locks of other connections
        (https://sqlite.org/howtocorrupt.html#_posix_advisory_locks_canceled_by_a_separate_thread_doing_close_).
        """
        for suffix in ("", "-wal", "-shm"):
            with suppress(OSError):
                file = Path(f"{self.path}{suffix}")
                file.chmod(file.stat().st_mode & 0o600)  # a read-only file stays read-only

    def _file(self, *, is_read_only: bool) -> tuple[object, ...]:
        """Return the identity of the file at the path, to notice when it was deleted or replaced."""
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
        # one damaged name must not hide the other records
        connection.text_factory = lambda data: data.decode("utf-8", "replace")
        if not self._in_memory and connection.execute("PRAGMA page_count").fetchone()[0] == 0:
            raise StoreError(f"store {self.path} is empty or cut off; restore it, or delete it to begin a new one")
        if is_read_only:
            connection.execute("SELECT 1 FROM ctxguard_records").fetchone()
            return
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=NORMAL")
        connection.execute("PRAGMA secure_delete=ON")
        found = connection.execute("SELECT count(*) FROM sqlite_schema WHERE name LIKE 'ctxguard\\_%' ESCAPE '\\'")
        if found.fetchone()[0] < _OBJECTS:
            connection.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} COMMIT;")

    def _failure(self, done: str, error: sqlite3.Error) -> StoreError:
        text = " ".join(str(error).split())
        remedy = next((remedy for words, remedy in _REMEDIES if any(word in text for word in words)), "see the cause")
        return StoreError(f"store {self.path} cannot be {done}: {text}; {remedy}")

    def _write(self, connection: sqlite3.Connection, record: StoredRecord) -> None:
        self._run(connection, DELETE, namespace=record.namespace, key=record.key)
        self._insert(connection, record)
        self._enforce_limit(connection)

    def _enforce_limit(self, connection: sqlite3.Connection) -> Swept:
        expired = self._run(connection, EXPIRE, now=self._clock()).rowcount
        return Swept(expired, 0 if self.max_bytes is None else self._evict(connection, self.max_bytes))

    def _shrink(self) -> None:
        """Shrink the file, and truncate the log, which still contains deleted values."""
        with self._using("written") as connection:
            # `execute` would run one step, which frees one page; `executescript` runs all of them
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


class MemoryStore(SQLiteStore):
    """A store in this process's memory, empty again after `close`.

    It is an SQLite database without a file, so it behaves as `SQLiteStore` does.

    Args:
        max_bytes: bytes of values, keys and namespaces to hold at most; the oldest are evicted first. None means no
            limit.
        clock: returns the time in seconds since 1970.

    Raises:
        ConfigError: `max_bytes` is not above 0.
    """

    def __init__(self, *, max_bytes: int | None = None, clock: Clock = time.time) -> None:
        super().__init__(IN_MEMORY, max_bytes=max_bytes, clock=clock)

    def __repr__(self) -> str:
        return f"MemoryStore({sum(usage.records for usage in self.usage())} records)"
