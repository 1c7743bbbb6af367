"""A store in memory: for tests, and for one process that needs nothing remembered."""

from __future__ import annotations

import time
from collections import OrderedDict
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Self

from ctxguard.settings import OfOneProcess
from ctxguard.stores.protocol import Clock, NamespaceUsage, Swept
from ctxguard.stores.records import check_limit, check_names, expiry, size_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

__all__ = ["MemoryStore"]


@dataclass(frozen=True, slots=True)
class _Kept:
    value: bytes
    size: int
    written: float
    expires: float | None


class MemoryStore(OfOneProcess):
    """Keep values in this process, until it ends.

    Args:
        max_bytes: bytes of values, keys and namespaces to hold at most; the oldest go first. None means no limit.
        clock: tells the time in seconds.

    Raises:
        ConfigError: `max_bytes` is not above 0.
    """

    def __init__(self, *, max_bytes: int | None = None, clock: Clock = time.time) -> None:
        check_limit(max_bytes)
        self.max_bytes = max_bytes
        self._clock = clock
        self._lock = Lock()
        self._kept: OrderedDict[tuple[str, str], _Kept] = OrderedDict()
        self._keys: dict[str, dict[str, None]] = {}
        self._bytes = 0
        self._writes_since_sweep = 0

    def get(self, namespace: str, key: str) -> bytes | None:
        """Return the value, or None where there is none (or its time is over)."""
        check_names(namespace, key)
        with self._lock:
            return self._live(namespace, key)

    def put(self, namespace: str, key: str, value: bytes, *, ttl: float | None = None) -> None:
        """Write the value, over any earlier one.

        Raises:
            StoreError: the name cannot be used, or the record alone is over `max_bytes`.
            ConfigError: `ttl` is not above 0 seconds.
        """
        with self._lock:
            self._write(namespace, key, value, ttl)

    def put_new(self, namespace: str, key: str, value: bytes, *, ttl: float | None = None) -> bytes:
        """Write the value unless there is one; return the value that stands there now.

        Raises:
            StoreError: the name cannot be used, or the record alone is over `max_bytes`.
            ConfigError: `ttl` is not above 0 seconds.
        """
        check_names(namespace, key)
        with self._lock:
            standing = self._live(namespace, key)
            if standing is None:
                self._write(namespace, key, value, ttl)
            return value if standing is None else standing

    def delete(self, namespace: str, key: str) -> bool:
        """Delete one value; True where there was one."""
        check_names(namespace, key)
        with self._lock:
            was_live = self._live(namespace, key) is not None
            self._drop(namespace, key)
            return was_live

    def delete_namespace(self, namespace: str) -> int:
        """Delete every value of a namespace; return how many there were."""
        check_names(namespace)
        with self._lock:
            keys = list(self._keys.get(namespace, ()))
            live = sum(self._live(namespace, key) is not None for key in keys)
            for key in keys:
                self._drop(namespace, key)
            return live

    def keys(self, namespace: str) -> Iterator[str]:
        """Walk the keys of a namespace as they are now, the one written longest ago first."""
        check_names(namespace)
        with self._lock:
            return iter([key for key in self._keys.get(namespace, ()) if self._live(namespace, key) is not None])

    def usage(self) -> list[NamespaceUsage]:
        """Return what each namespace holds, by name."""
        with self._lock:
            self._expire()
            return [self._usage_of(namespace) for namespace in sorted(self._keys)]

    def sweep(self) -> Swept:
        """Take out what is over its time or over the size limit; return how many records that were."""
        with self._lock:
            return Swept(self._expire(), self._evict())

    def close(self) -> None:
        """Let go of every value."""
        with self._lock:
            self._kept.clear()
            self._keys.clear()
            self._bytes = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"MemoryStore({len(self._kept)} records, {self._bytes} bytes)"

    def _live(self, namespace: str, key: str) -> bytes | None:
        kept = self._kept.get((namespace, key))
        return kept.value if kept is not None and not self._is_over(kept) else None

    def _is_over(self, kept: _Kept) -> bool:
        return kept.expires is not None and kept.expires <= self._clock()

    def _write(self, namespace: str, key: str, value: bytes, ttl: float | None) -> None:
        check_names(namespace, key)
        size = size_of(namespace, key, value)
        check_limit(self.max_bytes, size)
        now = self._clock()
        kept = _Kept(bytes(value), size, now, expiry(now, ttl))
        self._drop(namespace, key)
        self._kept[namespace, key] = kept
        self._keys.setdefault(namespace, {})[key] = None
        self._bytes += size
        self._make_room()

    def _make_room(self) -> None:
        """Sweep once in as many writes as there are records: constant work a write, at most half of them over."""
        self._writes_since_sweep += 1
        if self._writes_since_sweep > len(self._kept):
            self._expire()
            self._writes_since_sweep = 0
        self._evict()

    def _is_too_large(self) -> bool:
        return self.max_bytes is not None and self._bytes > self.max_bytes

    def _expire(self) -> int:
        over = [name for name, kept in self._kept.items() if self._is_over(kept)]
        for namespace, key in over:
            self._drop(namespace, key)
        return len(over)

    def _evict(self) -> int:
        evicted = 0
        while self._is_too_large():
            self._drop(*next(iter(self._kept)))
            evicted += 1
        return evicted

    def _drop(self, namespace: str, key: str) -> None:
        kept = self._kept.pop((namespace, key), None)
        if kept is None:
            return
        self._bytes -= kept.size
        keys = self._keys[namespace]
        del keys[key]
        if not keys:
            del self._keys[namespace]

    def _usage_of(self, namespace: str) -> NamespaceUsage:
        records = [self._kept[namespace, key] for key in self._keys[namespace]]
        sizes, times = [kept.size for kept in records], [kept.written for kept in records]
        return NamespaceUsage(namespace, len(records), sum(sizes), min(times), max(times))
