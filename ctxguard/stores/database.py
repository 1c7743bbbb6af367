"""Base classes of the stores, and the SQL that SQLite and PostgreSQL have in common."""

from __future__ import annotations

import hashlib
import logging
from abc import abstractmethod
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, Self, TypeVar

from ctxguard.errors import ConfigError, StoreError
from ctxguard.settings import DISTRIBUTION, OfOneProcess, seconds
from ctxguard.stores.protocol import Clock, NamespaceUsage

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager


FORMAT: Final = 1
"""Version of the record format. Records of a later version are skipped."""
MAX_NAME_BYTES: Final = 1_024
"""Maximum length of a namespace or a key; PostgreSQL's index holds 2,704 bytes for both."""
MAX_VALUE_BYTES: Final = 900_000_000
"""Maximum length of a value; SQLite stores up to 1,000,000,000 bytes in a record, PostgreSQL 1 GiB."""

_log: Final = logging.getLogger("ctxguard.stores")


@dataclass(slots=True)
class StoredRecord:
    """One stored value with its metadata.

    Attributes:
        namespace: The namespace of the key.
        key: The key in the namespace.
        value: The stored bytes.
        expires: Time at which the record expires, in seconds since 1970; None means never.
        format: Version of the format in which the record was written.
        checksum: The `digest` of the record when it was written.
    """

    namespace: str
    key: str
    value: bytes
    expires: float | None
    format: int
    checksum: bytes = b""

    @property
    def size(self) -> int:
        """Number of bytes that the record counts toward `max_bytes`."""
        return len(self.value) + len(self.key.encode()) + len(self.namespace.encode())

    def digest(self) -> bytes:
        """Return the BLAKE2b hash of all attributes but `checksum`."""
        digest = hashlib.blake2b(repr((self.format, self.namespace, self.key, self.expires)).encode(), digest_size=16)
        digest.update(self.value)
        return digest.digest()

    def live(self, now: float) -> bytes | None:
        """Return the value, or None if the record has expired or is invalid; an invalid record is logged."""
        if isinstance(self.format, int) and self.format > FORMAT:
            fault = f"its format is {self.format} and this version reads up to {FORMAT}; update {DISTRIBUTION}"
        elif not isinstance(self.value, bytes) or self.checksum != self.digest():
            fault = "it is damaged (its checksum does not fit); it will be written anew, or delete it"
        else:
            return None if self.expires is not None and self.expires <= now else self.value
        _log.warning("skipped record %.80r of namespace %.80r: %s", self.key, self.namespace, fault)
        return None


def check_names(*names: str) -> None:
    """Raise `StoreError` for a namespace or key that some database cannot store."""
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


def failure(
    place: object,
    done: str,
    error: BaseException,
    remedy: str = "check the server, the user's rights and the URL",
) -> StoreError:
    """Return the one-line error for an operation of a database that failed.

    Args:
        place: The file, or the URL without its password.
        done: What could not be done with the store: `opened`, `read`, or `written`.
        error: The error of the database.
        remedy: What the user can do.
    """
    return StoreError(f"store {place} cannot be {done}: {' '.join(str(error).split())}; {remedy}")


def invalid_url(example: str) -> StoreError:
    """Return the error for an unreadable URL. It does not quote the URL, which may contain a password."""
    return StoreError(
        f"the store's URL cannot be read; it looks like {example}, with %40, %3A and %2F for @, : and / in a password"
    )


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
    """Base of all stores: validates names and values, and wraps values in records."""

    def __init__(self, max_bytes: int | None, clock: Clock) -> None:
        if max_bytes is not None and max_bytes <= 0:
            raise ConfigError(f"max_bytes must be above 0, not {max_bytes}; None means no limit", setting="max_bytes")
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
        """Write a value, replacing any earlier one.

        Args:
            namespace: The namespace of the key.
            key: The key in the namespace.
            value: The value, at most 900 MB long.
            ttl: Number of seconds after which the value expires; None means never.

        Raises:
            StoreError: If the value cannot be written, a name is invalid, or the record alone exceeds `max_bytes`.
            ConfigError: If `ttl` is not above 0.
        """
        self._put(self._new(namespace, key, value, ttl))

    def put_new(self, namespace: str, key: str, value: bytes, *, ttl: float | None = None) -> bytes:
        """Write a value unless the key already has one, and return the value that is stored now.

        Takes the arguments of `put`. If several processes write at the same time, the first one wins.

        Raises:
            StoreError: As for `put`.
            ConfigError: If `ttl` is not above 0.
        """
        return self._put_new(self._new(namespace, key, value, ttl))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _new(self, namespace: str, key: str, value: bytes, ttl: float | None) -> StoredRecord:
        """Return the record of a value in the current format."""
        check_names(namespace, key)
        seconds(ttl, "ttl")
        if not isinstance(value, (bytes, bytearray, memoryview)):
            raise StoreError(f"a value is bytes, not {type(value).__name__}; encode a text first")
        if len(value) > MAX_VALUE_BYTES:
            raise StoreError(f"a value has at most {MAX_VALUE_BYTES:,} bytes, not {len(value):,}; keep it in a file")
        expires = None if ttl is None else float(self._clock() + ttl)
        record = StoredRecord(namespace, key, bytes(value), expires, FORMAT)  # some drivers accept nothing but bytes
        if self.max_bytes is not None and record.size > self.max_bytes:
            raise StoreError(
                f"a record of {record.size} bytes does not fit into a store of {self.max_bytes}; raise max_bytes"
            )
        record.checksum = record.digest()
        return record


class SQLStore(RecordStore, Generic[Connection]):
    """Base of the SQL stores, which keep records in one table. Subclasses open the database and enforce `max_bytes`."""

    _for_update = ""
    """SQL clause that locks the rows of a query until the transaction ends, for databases that need one."""

    @abstractmethod
    def _transaction(self, done: Literal["read", "written"]) -> AbstractContextManager[Connection]: ...

    @abstractmethod
    def _run(self, connection: Connection, statement: str, **parameters: object) -> Iterable[Sequence[object]]: ...

    def get(self, namespace: str, key: str) -> bytes | None:
        """Return the value of a key, or None if there is none or it has expired.

        Raises:
            StoreError: If the database cannot be read, or a name is invalid.
        """
        check_names(namespace, key)
        with self._transaction("read") as connection:
            return self._live(connection, namespace, key)

    def delete(self, namespace: str, key: str) -> bool:
        """Delete the value of a key, and return whether there was one that had not expired.

        Raises:
            StoreError: If the database cannot be written, or a name is invalid.
        """
        check_names(namespace, key)
        with self._transaction("written") as connection:
            was_live = self._live(connection, namespace, key, self._for_update) is not None
            self._run(connection, DELETE, namespace=namespace, key=key)
            return was_live

    def delete_namespace(self, namespace: str) -> int:
        """Delete all values of a namespace, and return how many of them had not expired.

        Raises:
            StoreError: If the database cannot be written, or the name is invalid.
        """
        check_names(namespace)
        with self._transaction("written") as connection:
            return sum(bool(live) for (live,) in self._run(connection, _CLEAR, namespace=namespace, now=self._clock()))

    def keys(self, namespace: str) -> Iterator[str]:
        """Return an iterator over a snapshot of the keys of a namespace, the least recently written first.

        Raises:
            StoreError: If the database cannot be read, or the name is invalid.
        """
        check_names(namespace)
        with self._transaction("read") as connection:
            return iter([str(key) for (key,) in self._run(connection, _KEYS, namespace=namespace, now=self._clock())])

    def usage(self) -> list[NamespaceUsage]:
        """Return usage statistics of each namespace, sorted by its name.

        Raises:
            StoreError: If the database cannot be read.
        """
        with self._transaction("read") as connection:
            found = [NamespaceUsage(*row) for row in self._run(connection, _USAGE, now=self._clock())]  # type: ignore[arg-type]
        return sorted(found, key=lambda usage: usage.namespace)

    def _insert(self, connection: Connection, record: StoredRecord, on_conflict: str = "") -> Any:  # noqa: ANN401 - a cursor
        values = {name: getattr(record, name) for name in _FIELDS} | {"size": record.size, "written": self._clock()}
        return self._run(connection, INSERT + on_conflict, **values)

    def _live(self, connection: Connection, namespace: str, key: str, for_update: str = "") -> bytes | None:
        rows = self._run(connection, READ + for_update, namespace=namespace, key=key)
        return next((StoredRecord(namespace, key, *row).live(self._clock()) for row in rows), None)  # type: ignore[arg-type]
