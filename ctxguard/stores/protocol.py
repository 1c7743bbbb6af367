"""The protocol of stores, and what they report about themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol, TypeAlias, runtime_checkable

Clock: TypeAlias = Callable[[], float]
"""Return the time in seconds since 1970; every process that shares a store must use the same one."""


@runtime_checkable
class Store(Protocol):
    """Keep bytes under a namespace and a key. Safe for many threads, and for many processes where it is shared.

    A record that cannot be trusted (its checksum does not fit, or a newer ctxguard wrote it in a format this one does
    not know) is reported through the logger `ctxguard.stores` and counts as absent: `get` returns None, and `put` and
    `put_new` write over it, so that all readers agree again.
    """

    def get(self, namespace: str, key: str) -> bytes | None:
        """Return the value, or None if there is none (or it has expired)."""
        ...

    def put(self, namespace: str, key: str, value: bytes, *, ttl: float | None = None) -> None:
        """Write the value, over any earlier one; `ttl` is in seconds; None means forever."""
        ...

    def put_new(self, namespace: str, key: str, value: bytes, *, ttl: float | None = None) -> bytes:
        """Write the value unless there is one; return the value that is stored now (first writer wins)."""
        ...

    def delete(self, namespace: str, key: str) -> bool:
        """Delete one value; True where there was one."""
        ...

    def delete_namespace(self, namespace: str) -> int:
        """Delete every value of a namespace; return how many there were."""
        ...

    def keys(self, namespace: str) -> Iterator[str]:
        """Yield the keys of a namespace as they are now, the one written longest ago first."""
        ...


@dataclass(frozen=True, slots=True)
class NamespaceUsage:
    """Describe what a namespace holds.

    Attributes:
        namespace: its name.
        records: how many values it holds, those whose time is over left out.
        size: bytes of their values, keys and namespace.
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
    """Describe what a sweep took out.

    Attributes:
        expired: records whose time was over.
        evicted: the oldest records, beyond the size limit.
    """

    expired: int
    evicted: int
