"""A store in memory: for tests, and for a process that need not remember anything."""

from __future__ import annotations

import time

from ctxguard.stores.protocol import Clock
from ctxguard.stores.sqlite import IN_MEMORY, SQLiteStore


class MemoryStore(SQLiteStore):
    """Keep values in this process, until the store is closed or the process ends.

    It is an SQLite database without a file, so all stores share one behavior.

    Args:
        max_bytes: bytes of values, keys and namespaces to hold at most; the oldest go first. None means no limit.
        clock: tells the time in seconds.

    Raises:
        ConfigError: `max_bytes` is not above 0.
    """

    def __init__(self, *, max_bytes: int | None = None, clock: Clock = time.time) -> None:
        super().__init__(IN_MEMORY, max_bytes=max_bytes, clock=clock)

    def __repr__(self) -> str:
        return f"MemoryStore({sum(usage.records for usage in self.usage())} records)"
