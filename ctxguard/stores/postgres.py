"""A store in PostgreSQL, for workers on many machines.

The store is one table, `ctxguard_records`, in the first schema of the search path. The table is created if it is
missing and the user has the right to create it. Each worker uses its own clock to decide what has expired, so the
clocks should agree.
"""

from __future__ import annotations

import os
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from ctxguard.settings import extra
from ctxguard.stores.database import EXPIRE, READ, SQLStore, StoredRecord, failure, invalid_url
from ctxguard.stores.protocol import Clock, Swept

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Connection, CursorResult, Engine

_LOCK: Final = 0x637478_67  # "ctxg": key of the advisory lock for creating the table and for sweeping
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
"""Number of bytes that a process writes between two sweeps for expired records, if there is no size limit."""
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
        max_bytes: Maximum size of the store in bytes: all values with their keys and namespaces. Beyond it, expired
            values are removed first and then the oldest. So that writers do not wait for each other, each process
            removes values only in `sweep()` and after it has written 1/64 of the limit. In between, each process may
            exceed the limit by that much. None means no limit.
        connect_timeout: Number of seconds to wait for the server, unless the URL sets this option.
        clock: Function that returns the time in seconds since 1970.

    Raises:
        StoreError: If the URL is invalid, the server cannot be reached, or the table is missing and cannot be created.
        ConfigError: If `max_bytes` is not above 0.
        ImportError: If the extra `postgres` is not installed.
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
            if self._run(connection, "SELECT to_regclass('ctxguard_records')").scalar_one() is None:
                self._run(connection, "SELECT pg_advisory_xact_lock(:lock)", lock=_LOCK)
                for statement in _SCHEMA:
                    self._run(connection, statement)

    def _put(self, record: StoredRecord) -> None:
        with self._transaction("written") as connection:
            self._insert(connection, record, _OVERWRITE)
        self._sweep_if_due(record.size)

    def _put_new(self, record: StoredRecord) -> bytes:
        query, names = READ + self._for_update, {"namespace": record.namespace, "key": record.key}
        while True:  # try again if the conflicting record was deleted between the two statements
            with self._transaction("written") as connection:
                if self._insert(connection, record, _NOTHING).rowcount:
                    break
                row = self._run(connection, query, **names).one_or_none()
                if row is not None:
                    stored = StoredRecord(record.namespace, record.key, *tuple(row)).live(self._clock())
                    if stored is not None:
                        return stored
                    self._insert(connection, record, _OVERWRITE)
                    break
        self._sweep_if_due(record.size)
        return record.value

    def sweep(self) -> Swept:
        """Remove expired records and the oldest records beyond `max_bytes`, unless another process is sweeping now.

        Raises:
            StoreError: If the table cannot be written.
        """
        self._unswept = 0
        with self._transaction("written") as connection:
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

    def _run(self, connection: Connection, statement: str, **parameters: object) -> CursorResult[Any]:
        from sqlalchemy import text

        return connection.execute(text(statement), parameters)

    @contextmanager
    def _transaction(self, done: str) -> Iterator[Connection]:
        from sqlalchemy.exc import SQLAlchemyError

        if self._pid != os.getpid():  # after a fork, a connection shared with the parent would mix both sessions
            self._engine.dispose(close=False)
            self._pid = os.getpid()
        try:
            with self._engine.begin() as connection:
                yield connection
        except SQLAlchemyError as error:
            # the driver's own error: SQLAlchemy's contains the SQL statement, whose parameters contain the value
            place = self._engine.url.render_as_string(hide_password=True)
            raise failure(place, done, getattr(error, "orig", None) or error) from error

    def _sweep_if_due(self, size: int) -> None:
        """Count `size` written bytes, and sweep once 1/64 of the limit (4 MB without a limit) was written.

        If threads count at the same time, a lost update of the counter only delays a sweep.
        """
        self._unswept += size
        step = _SWEEP_EVERY if self.max_bytes is None else self.max_bytes // 64
        if self._unswept >= step:
            self.sweep()


def _create_engine(url: str, connect_timeout: int) -> Engine:
    with extra("postgres", "a PostgreSQL store needs an extra"):
        from sqlalchemy import create_engine, make_url
        from sqlalchemy.exc import ArgumentError

        example = "postgresql://user:password@host/database"
        try:
            parsed = make_url(url).set(drivername="postgresql+psycopg")
            waiting = {} if "connect_timeout" in parsed.query else {"connect_timeout": connect_timeout}
            engine = create_engine(parsed, pool_pre_ping=True, hide_parameters=True, connect_args=waiting)
        except (ArgumentError, ValueError) as error:
            raise invalid_url(example) from error
        if "@" in (parsed.host or ""):  # the part before the @ is the end of a password that is not escaped
            raise invalid_url(example)
        return engine
