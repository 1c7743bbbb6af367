"""Base classes of the stores: validated records, and the SQL table in which SQLite and PostgreSQL keep them."""

from __future__ import annotations

import hashlib
import logging
from abc import abstractmethod
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypeVar

from ctxguard.errors import ConfigError, StoreError
from ctxguard.settings import OfOneProcess, seconds
from ctxguard.stores.protocol import Clock, NamespaceUsage

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager


FORMAT: Final = 1
"""Version of the record format; readers skip records of a later version."""
MAX_NAME_BYTES: Final = 1_024
"""Bytes a namespace or a key may have; PostgreSQL's index takes 2,704 for both together."""
MAX_VALUE_BYTES: Final = 900_000_000
"""Bytes a value may have; SQLite takes 1,000,000,000 for a record, PostgreSQL 1 GiB."""

_log: Final = logging.getLogger("ctxguard.stores")


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """One stored value with its metadata.

    Attributes:
        namespace: the namespace of its key.
        key: its key in the namespace.
        value: the stored bytes.
        expires: when it expires, in seconds since 1970; None means never.
        format: version of the format in which it was written.
        checksum: BLAKE2b hash of all other attributes.
    """

    namespace: str
    key: str
    value: bytes
    expires: float | None
    format: int
    checksum: bytes

    @property
    def size(self) -> int:
        """Bytes that it counts toward `max_bytes`."""
        return size_of(self.namespace, self.key, self.value)

    def live(self, now: float) -> bytes | None:
        """Return the value, or None if it has expired or is invalid; an invalid record is logged."""
        fault = self._fault()
        if fault is None:
            return None if self.expires is not None and self.expires <= now else self.value
        _log.warning("skipped record %.80r of namespace %.80r: %s", self.key, self.namespace, fault)
        return None

    def _fault(self) -> str | None:
        if isinstance(self.format, int) and self.format > FORMAT:
            return f"its format is {self.format} and this version reads up to {FORMAT}; update ctxguard-stabilizer"
        if not isinstance(self.value, bytes) or self.checksum != _checksum(
            self.namespace, self.key, self.value, self.expires, self.format
        ):
            return "it is damaged (its checksum does not fit); it will be written anew, or delete it"
        return None


def new_record(
    namespace: str, key: str, value: bytes, expires: float | None, max_bytes: int | None = None
) -> StoredRecord:
    """Return the record of a value in the current format."""
    check_names(namespace, key)
    check_limit(max_bytes, size_of(namespace, key, value))
    value = bytes(value)  # not every driver accepts a bytearray or a memoryview
    return StoredRecord(namespace, key, value, expires, FORMAT, _checksum(namespace, key, value, expires, FORMAT))


def _checksum(namespace: str, key: str, value: bytes, expires: float | None, number: int) -> bytes:
    digest = hashlib.blake2b(repr((number, namespace, key, expires)).encode(), digest_size=16)
    digest.update(value)
    return digest.digest()


def size_of(namespace: str, key: str, value: bytes) -> int:
    """Return the size of a record in bytes (value, key, and namespace); reject a value that no database accepts."""
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise StoreError(f"a value is bytes, not {type(value).__name__}; encode a text first")
    if len(value) > MAX_VALUE_BYTES:
        raise StoreError(f"a value has at most {MAX_VALUE_BYTES:,} bytes, not {len(value):,}; keep it in a file")
    return len(value) + len(key.encode()) + len(namespace.encode())


def check_names(*names: str) -> None:
    """Reject a namespace or key that some database cannot store."""
    for name in names:
        if not isinstance(name, str):
            raise StoreError(f"a namespace or key is a text, not {type(name).__name__}")
        try:
            length = len(name.encode())
        except UnicodeEncodeError as error:
            raise StoreError(f"name {name[:80]!r} has a lone surrogate in it; use what UTF-8 can write") from error
        if not 0 < length <= MAX_NAME_BYTES or "\0" in name:
            raise StoreError(
                f"name {name[:80]!r} has {length} bytes; a namespace or key has 1 to {MAX_NAME_BYTES} and no NUL"
            )


def expiry(now: float, ttl: float | None) -> float | None:
    """Return when a record written now expires; `ttl` is in seconds and above 0, None means never."""
    seconds(ttl, "ttl")
    return None if ttl is None else float(now + ttl)


def check_limit(max_bytes: int | None, size: int | None = None) -> None:
    """Reject an invalid size limit, or a single record above the limit."""
    if max_bytes is None:
        return
    if max_bytes <= 0:
        raise ConfigError(f"max_bytes must be above 0, not {max_bytes}; None means no limit", setting="max_bytes")
    if size is not None and size > max_bytes:
        raise StoreError(f"a record of {size} bytes does not fit into a store of {max_bytes}; raise max_bytes")


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
