"""The protocols that stores implement, and their usage statistics."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol, TypeAlias, runtime_checkable

Clock: TypeAlias = Callable[[], float]
"""Return the time in seconds since 1970; every process that shares a store must use the same one."""


@runtime_checkable
class Store(Protocol):
    """A store of bytes by namespace and key. It is thread-safe, and safe for all processes that share it.

    An invalid record (its checksum does not match, or a newer ctxguard wrote it in an unknown format) is logged to
    `ctxguard.stores` and treated as absent: `get` returns None, and `put` and `put_new` overwrite it.
    """

    def get(self, namespace: str, key: str) -> bytes | None:
        """Return the value, or None if there is none or it has expired."""
        ...

    def put(self, namespace: str, key: str, value: bytes, *, ttl: float | None = None) -> None:
        """Write the value, replacing any earlier one; it expires after `ttl` seconds, None means never."""
        ...

    def put_new(self, namespace: str, key: str, value: bytes, *, ttl: float | None = None) -> bytes:
        """Write the value unless there is one; return the value that is stored now (first writer wins)."""
        ...

    def delete(self, namespace: str, key: str) -> bool:
        """Delete one value; return whether there was one."""
        ...

    def delete_namespace(self, namespace: str) -> int:
        """Delete every value of a namespace; return how many there were."""
        ...

    def keys(self, namespace: str) -> Iterator[str]:
        """Yield a snapshot of the keys of a namespace, the least recently written first."""
        ...


@dataclass(frozen=True, slots=True)
class NamespaceUsage:
    """The number, size, and age of the values in one namespace.

    Attributes:
        namespace: its name.
        records: number of values, without expired ones.
        size: bytes of the values, their keys, and the namespace.
        oldest: when the oldest was written, in seconds since 1970.
        newest: when the newest was written, in seconds since 1970.
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
        expired: records that had expired.
        evicted: the oldest records, evicted to stay within the size limit.
    """

    expired: int
    evicted: int


@runtime_checkable
class ManagedStore(Store, AbstractContextManager["ManagedStore"], Protocol):
    """A store with usage statistics, a size limit, and a `close` method: what `open_store` returns.

    It is a context manager that closes itself. `StoreConformance` in `ctxguard.testing` tests any store against this
    protocol.

    Attributes:
        max_bytes: bytes of values, keys and namespaces to hold at most; None means no limit.
    """

    max_bytes: int | None

    def usage(self) -> list[NamespaceUsage]:
        """Return the usage of each namespace, sorted by name."""
        ...

    def sweep(self) -> Swept:
        """Remove expired records and the oldest beyond `max_bytes`."""
        ...

    def close(self) -> None:
        """Close files and connections; the next call opens them again."""
        ...
