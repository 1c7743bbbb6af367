"""The protocols that stores implement, and the usage statistics that stores return."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol, TypeAlias, runtime_checkable

Clock: TypeAlias = Callable[[], float]
"""Function that returns the time in seconds since 1970. All processes that share a store must use the same time."""


@runtime_checkable
class Store(Protocol):
    """A store of bytes by namespace and key. It must be safe for all threads and processes that share it.

    A damaged record, whose checksum does not match, and a record in the unknown format of a newer ctxguard are logged
    to `ctxguard.stores` and treated as absent: `get` returns None, and `put` and `put_new` overwrite the record.
    """

    def get(self, namespace: str, key: str) -> bytes | None:
        """Return the value of a key, or None if there is none or it has expired."""
        ...

    def put(self, namespace: str, key: str, value: bytes, *, ttl: float | None = None) -> None:
        """Write a value, replacing any earlier one. It expires after `ttl` seconds; None means never."""
        ...

    def put_new(self, namespace: str, key: str, value: bytes, *, ttl: float | None = None) -> bytes:
        """Write a value unless the key already has one, and return the value that is stored now."""
        ...

    def delete(self, namespace: str, key: str) -> bool:
        """Delete the value of a key, and return whether there was one that had not expired."""
        ...

    def delete_namespace(self, namespace: str) -> int:
        """Delete all values of a namespace, and return how many of them had not expired."""
        ...

    def keys(self, namespace: str) -> Iterator[str]:
        """Return an iterator over a snapshot of the keys of a namespace, the least recently written first."""
        ...


@dataclass(frozen=True, slots=True)
class NamespaceUsage:
    """The number, size, and age of the values in one namespace.

    Attributes:
        namespace: Name of the namespace.
        records: Number of values that have not expired.
        size: Number of bytes of these values with their keys and namespaces.
        oldest: Time at which the oldest of these values was written, in seconds since 1970.
        newest: Time at which the newest of these values was written, in seconds since 1970.
    """

    namespace: str
    records: int
    size: int
    oldest: float
    newest: float


@dataclass(frozen=True, slots=True)
class Swept:
    """The number of records that a sweep removed.

    Attributes:
        expired: Number of records that had expired.
        evicted: Number of records that were evicted, oldest first, to keep the store within its size limit.
    """

    expired: int
    evicted: int


@runtime_checkable
class ManagedStore(Store, AbstractContextManager["ManagedStore"], Protocol):
    """A store with usage statistics, a size limit, and a `close` method, as `open_store` returns it.

    As a context manager, it closes itself at the end of the `with` block. `StoreConformance` in `ctxguard.testing`
    tests any store against this protocol.

    Attributes:
        max_bytes: Maximum size of the store in bytes: all values with their keys and namespaces. None means no limit.
    """

    max_bytes: int | None

    def usage(self) -> list[NamespaceUsage]:
        """Return usage statistics of each namespace, sorted by its name."""
        ...

    def sweep(self) -> Swept:
        """Remove expired records and the oldest records beyond `max_bytes`, and return how many were removed."""
        ...

    def close(self) -> None:
        """Close files and connections; the next call opens them again."""
        ...
