"""A store in PostgreSQL, for workers on many machines.

It uses one table, `ctxguard_records`, in the first schema of the search path, and creates it if it is missing and the
user may do so. Expiry uses the clock of each worker, so the workers' clocks should agree.
"""

from __future__ import annotations

import os
import time
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, Final

from ctxguard.errors import StoreError
from ctxguard.settings import install_command
from ctxguard.stores.database import EXPIRE, READ, SQLStore, StoredRecord
from ctxguard.stores.protocol import Clock, Swept

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import URL, Connection, CursorResult, Engine
    from sqlalchemy.exc import SQLAlchemyError

_LOCK: Final = 0x637478_67  # "ctxg": the advisory lock for creating the table and for sweeping
_SCHEMA: Final = (
    """CREATE TABLE IF NOT EXISTS ctxguard_records (
        namespace text NOT NULL, key text NOT NULL, seq bigserial NOT NULL,
        format integer NOT NULL, written double precision NOT NULL, expires double precision,
        size bigint NOT NULL, checksum bytea NOT NULL, value bytea NOT NULL,
        PRIMARY KEY (namespace, key))""",
    "CREATE UNIQUE INDEX IF NOT EXISTS ctxguard_records_seq ON ctxguard_records (seq)",
    "CREATE INDEX IF NOT EXISTS ctxguard_records_expires ON ctxguard_records (expires) WHERE expires IS NOT NULL",
)
_SWEEP_EVERY: Final = 4 * 1024 * 1024
"""Bytes a process writes between two sweeps for expired records, if there is no limit."""
_NOTHING: Final = " ON CONFLICT (namespace, key) DO NOTHING"
_OVERWRITE: Final = """ ON CONFLICT (namespace, key) DO UPDATE SET
    seq = nextval(pg_get_serial_sequence('ctxguard_records', 'seq')),
    format = excluded.format, written = excluded.written, expires = excluded.expires,
    size = excluded.size, checksum = excluded.checksum, value = excluded.value"""
_EVICT: Final = """DELETE FROM ctxguard_records WHERE seq IN (
    SELECT seq FROM (SELECT seq, sum(size) OVER (ORDER BY seq DESC) AS total FROM ctxguard_records) AS newest_first
    WHERE total > :limit)"""


class PostgresStore(SQLStore["Connection"]):
    """A store in one PostgreSQL table; safe for threads, processes, and machines, and across a fork.

    Args:
        url: `postgresql://user:password@host:port/database`, with any option of SQLAlchemy's psycopg dialect.
        max_bytes: bytes of values, keys and namespaces to hold, over all namespaces; beyond it, expired values are
            removed first and then the oldest. So that writers do not wait for each other, each process sweeps after
            writing a sixty-fourth of the limit, and at `sweep()`; in between it may exceed the limit by that much.
            None means no limit.
        connect_timeout: seconds to wait for the server, unless the URL sets it.
        clock: returns the time in seconds since 1970.

    Raises:
        StoreError: the server cannot be reached, or the table is missing and cannot be created.
        ConfigError: `max_bytes` is not above 0.
        ImportError: the extra `postgres` is not installed.
    """

    _for_update = " FOR UPDATE"

    def __init__(
        self, url: str, *, max_bytes: int | None = None, connect_timeout: int = 10, clock: Clock = time.time
    ) -> None:
        super().__init__(max_bytes, clock)
        self._engine = _create_engine(url, connect_timeout)
        self._pid = os.getpid()
        self._unswept = 0
        with self._transaction("opened") as connection:
            self._prepare(connection)

    def _put(self, record: StoredRecord) -> None:
        with self._writing() as connection:
            self._insert(connection, record, _OVERWRITE)
        self._sweep_if_due(record.size)

    def _put_new(self, record: StoredRecord) -> bytes:
        stored: bytes | None = None
        while stored is None:  # retry if the conflicting record was deleted in between
            with self._writing() as connection:
                stored = self._add(connection, record)
        if stored is record.value:
            self._sweep_if_due(record.size)
        return stored

    def sweep(self) -> Swept:
        """Remove expired records and those beyond the size limit; do nothing while another process is sweeping.

        Raises:
            StoreError: the table cannot be written.
        """
        self._unswept = 0
        with self._writing() as connection:
            if not self._run(connection, "SELECT pg_try_advisory_xact_lock(:lock)", lock=_LOCK).scalar_one():
                return Swept(0, 0)
            over = self._run(connection, EXPIRE, now=self._clock()).rowcount
            beyond = 0 if self.max_bytes is None else self._run(connection, _EVICT, limit=self.max_bytes).rowcount
            return Swept(over, beyond)

    def close(self) -> None:
        """Close the connections; the next call opens new ones."""
        self._engine.dispose(close=self._pid == os.getpid())

    def __repr__(self) -> str:
        return f"PostgresStore({self._engine.url.render_as_string(hide_password=True)!r})"

    def _reading(self) -> AbstractContextManager[Connection]:
        return self._transaction("read")

    def _writing(self) -> AbstractContextManager[Connection]:
        return self._transaction("written")

    def _run(self, connection: Connection, statement: str, **parameters: object) -> CursorResult[Any]:
        from sqlalchemy import text

        return connection.execute(text(statement), parameters)

    @contextmanager
    def _transaction(self, done: str) -> Iterator[Connection]:
        from sqlalchemy.exc import SQLAlchemyError

        if self._pid != os.getpid():  # a fork: a socket shared with the parent would mix both sessions
            self._engine.dispose(close=False)
            self._pid = os.getpid()
        try:
            with self._engine.begin() as connection:
                yield connection
        except SQLAlchemyError as error:
            raise self._failure(done, error) from error

    def _failure(self, done: str, error: SQLAlchemyError) -> StoreError:
        """Return a one-line error without the SQL statement, whose parameters contain the values."""
        cause = getattr(error, "orig", None) or error
        text = " ".join(str(cause).split())
        place = self._engine.url.render_as_string(hide_password=True)
        return StoreError(f"store {place} cannot be {done}: {text}; check the server, the user's rights and the URL")

    def _prepare(self, connection: Connection) -> None:
        if self._run(connection, "SELECT to_regclass('ctxguard_records')").scalar_one() is not None:
            return
        self._run(connection, "SELECT pg_advisory_xact_lock(:lock)", lock=_LOCK)
        for statement in _SCHEMA:
            self._run(connection, statement)

    def _add(self, connection: Connection, record: StoredRecord) -> bytes | None:
        """Return the stored value, or None if the conflicting record was deleted meanwhile."""
        if self._insert(connection, record, _NOTHING).rowcount:
            return record.value
        query = READ + self._for_update
        row = self._run(connection, query, namespace=record.namespace, key=record.key).one_or_none()
        if row is None:
            return None
        stored = StoredRecord(record.namespace, record.key, *tuple(row)).live(self._clock())
        if stored is None:
            self._insert(connection, record, _OVERWRITE)
        return record.value if stored is None else stored

    def _sweep_if_due(self, size: int) -> None:
        """Sweep after every sixty-fourth of the limit; a lost update of the counter only delays the next sweep."""
        self._unswept += size
        step = _SWEEP_EVERY if self.max_bytes is None else self.max_bytes // 64
        if self._unswept >= step:
            self.sweep()


def _create_engine(url: str, connect_timeout: int) -> Engine:
    try:
        from sqlalchemy import create_engine
        from sqlalchemy.exc import ArgumentError

        parsed = _url(url)
        waiting = {} if "connect_timeout" in parsed.query else {"connect_timeout": connect_timeout}
        return create_engine(parsed, pool_pre_ping=True, hide_parameters=True, connect_args=waiting)
    except ImportError as error:
        raise ImportError(f"a PostgreSQL store needs an extra: {install_command('postgres')}") from error
    except (ArgumentError, ValueError) as error:
        raise StoreError(
            "the store's URL cannot be read; it looks like postgresql://user:password@host/database, with %40, %3A and "
            "%2F for @, : and / in a password"
        ) from error


def _url(url: str) -> URL:
    from sqlalchemy import make_url

    parsed = make_url(url).set(drivername="postgresql+psycopg")
    if "@" in (parsed.host or ""):
        raise ValueError("a host has no @; the part before it is the end of a password")
    return parsed
