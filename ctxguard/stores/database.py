"""Base classes of the stores: validated records, and the SQL table in which SQLite and PostgreSQL keep them."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypeVar

from ctxguard.settings import OfOneProcess
from ctxguard.stores.protocol import Clock, NamespaceUsage
from ctxguard.stores.records import StoredRecord, check_limit, check_names, expiry, new_record

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager

DELETE: Final = "DELETE FROM ctxguard_records WHERE namespace = :namespace AND key = :key"
EXPIRE: Final = "DELETE FROM ctxguard_records WHERE expires <= :now"
READ: Final = (
    "SELECT value, expires, format, checksum FROM ctxguard_records WHERE namespace = :namespace AND key = :key"
)
_KEYS: Final = """SELECT key FROM ctxguard_records
    WHERE namespace = :namespace AND (expires IS NULL OR expires > :now) ORDER BY seq"""
_USAGE: Final = """SELECT namespace, count(*), CAST(sum(size) AS bigint), min(written), max(written)
    FROM ctxguard_records WHERE expires IS NULL OR expires > :now GROUP BY namespace"""
_CLEAR: Final = "DELETE FROM ctxguard_records WHERE namespace = :namespace RETURNING expires IS NULL OR expires > :now"

INSERT: Final = """INSERT INTO ctxguard_records (namespace, key, format, written, expires, size, checksum, value)
    VALUES (:namespace, :key, :format, :written, :expires, :size, :checksum, :value)"""

Connection = TypeVar("Connection")
_FIELDS: Final = tuple(field.name for field in fields(StoredRecord))


class RecordStore(OfOneProcess):
    """Base of all stores: validates names and values, and turns values into records."""

    def __init__(self, max_bytes: int | None, clock: Clock) -> None:
        check_limit(max_bytes)
        self.max_bytes = max_bytes
        self._clock = clock

    @abstractmethod
    def _put(self, record: StoredRecord) -> None: ...

    @abstractmethod
    def _put_new(self, record: StoredRecord) -> bytes: ...

    @abstractmethod
    def close(self) -> None:
        """Close the database; the next call reopens it."""

    def put(self, namespace: str, key: str, value: bytes, *, ttl: float | None = None) -> None:
        """Write the value, replacing any earlier one; it expires after `ttl` seconds, None means never.

        Raises:
            StoreError: it cannot be written, the name is invalid, or the record alone exceeds `max_bytes`.
            ConfigError: `ttl` is not above 0.
        """
        self._put(self._new(namespace, key, value, ttl))

    def put_new(self, namespace: str, key: str, value: bytes, *, ttl: float | None = None) -> bytes:
        """Write the value unless there is one; return the value that is stored now (first writer wins).

        Raises:
            StoreError: as for `put`.
            ConfigError: `ttl` is not above 0.
        """
        return self._put_new(self._new(namespace, key, value, ttl))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _new(self, namespace: str, key: str, value: bytes, ttl: float | None) -> StoredRecord:
        return new_record(namespace, key, value, expiry(self._clock(), ttl), self.max_bytes)


class SQLStore(RecordStore, Generic[Connection]):
    """Base of the SQL stores: one table of records. Subclasses open the database and enforce `max_bytes`."""

    _for_update = ""
    """Clause that locks the rows of a query until the transaction ends, if the database needs one."""

    @abstractmethod
    def _reading(self) -> AbstractContextManager[Connection]: ...

    @abstractmethod
    def _writing(self) -> AbstractContextManager[Connection]: ...

    @abstractmethod
    def _run(self, connection: Connection, statement: str, **parameters: object) -> Iterable[Sequence[object]]: ...

    def get(self, namespace: str, key: str) -> bytes | None:
        """Return the value, or None if there is none or it has expired.

        Raises:
            StoreError: the database cannot be read, or the name is invalid.
        """
        check_names(namespace, key)
        with self._reading() as connection:
            return self._live(connection, namespace, key)

    def delete(self, namespace: str, key: str) -> bool:
        """Delete one value; return whether there was one.

        Raises:
            StoreError: the database cannot be written, or the name is invalid.
        """
        check_names(namespace, key)
        with self._writing() as connection:
            was_live = self._live(connection, namespace, key, self._for_update) is not None
            self._run(connection, DELETE, namespace=namespace, key=key)
            return was_live

    def delete_namespace(self, namespace: str) -> int:
        """Delete every value of a namespace; return how many there were.

        Raises:
            StoreError: the database cannot be written, or the name is invalid.
        """
        check_names(namespace)
        with self._writing() as connection:
            return sum(bool(live) for (live,) in self._run(connection, _CLEAR, namespace=namespace, now=self._clock()))

    def keys(self, namespace: str) -> Iterator[str]:
        """Yield a snapshot of the keys of a namespace, the least recently written first.

        Raises:
            StoreError: the database cannot be read, or the name is invalid.
        """
        check_names(namespace)
        with self._reading() as connection:
            return iter([str(key) for (key,) in self._run(connection, _KEYS, namespace=namespace, now=self._clock())])

    def usage(self) -> list[NamespaceUsage]:
        """Return the usage of each namespace, sorted by name.

        Raises:
            StoreError: the database cannot be read.
        """
        with self._reading() as connection:
            found = [NamespaceUsage(*row) for row in self._run(connection, _USAGE, now=self._clock())]  # type: ignore[arg-type]
        return sorted(found, key=lambda usage: usage.namespace)

    def _insert(self, connection: Connection, record: StoredRecord, on_conflict: str = "") -> Any:  # noqa: ANN401 - a cursor
        values = {name: getattr(record, name) for name in _FIELDS} | {"size": record.size, "written": self._clock()}
        return self._run(connection, INSERT + on_conflict, **values)

    def _live(self, connection: Connection, namespace: str, key: str, for_update: str = "") -> bytes | None:
        rows = self._run(connection, READ + for_update, namespace=namespace, key=key)
        return next((StoredRecord(namespace, key, *row).live(self._clock()) for row in rows), None)  # type: ignore[arg-type]
