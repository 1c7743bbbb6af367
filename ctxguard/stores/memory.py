"""A store in memory: for tests, and for processes that keep nothing after they end."""

from __future__ import annotations

import time

from ctxguard.stores.protocol import Clock
from ctxguard.stores.sqlite import IN_MEMORY, SQLiteStore


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
