"""Stores for full tool results, summaries, vault entries, and checkpoints.

The library works without a store. With a store, results survive the end of the process and are shared among processes.
"""

from __future__ import annotations

import os
import time

from ctxguard.errors import StoreError
from ctxguard.stores.postgres import PostgresStore
from ctxguard.stores.protocol import Clock, ManagedStore, NamespaceUsage, Store, Swept
from ctxguard.stores.redis import RedisStore
from ctxguard.stores.sqlite import MemoryStore, SQLiteStore

__all__ = [
    "Clock",
    "ManagedStore",
    "MemoryStore",
    "NamespaceUsage",
    "PostgresStore",
    "RedisStore",
    "SQLiteStore",
    "Store",
    "Swept",
    "open_store",
]


def open_store(
    place: str | os.PathLike[str], *, max_bytes: int | None = None, clock: Clock = time.time
) -> ManagedStore:
    """Open the store at a path or a URL.

    Args:
        place: One of:

            * the path of an SQLite file, `sqlite:///relative.db`, or `sqlite:////absolute.db`
            * `:memory:` for a store in memory
            * `postgresql://user:password@host/database`, with any option of SQLAlchemy's psycopg dialect
            * `redis://user:password@host:6379/0` (`rediss://` for TLS), with any option of redis-py
        max_bytes: Maximum size of the store in bytes: all values with their keys and namespaces. Beyond it, the oldest
            values are evicted first. None means no limit.
        clock: Function that returns the time in seconds since 1970.

    Raises:
        StoreError: If `place` is not a path or a URL, there is no store for such URLs, or the store cannot be opened.
        ConfigError: If `max_bytes` is not above 0.
        ImportError: If the extra `postgres` or `redis` that the URL requires is not installed.
    """
    if not isinstance(place, (str, os.PathLike)):
        raise StoreError(f"expected a path or a URL, got {type(place).__name__}; ':memory:' opens a store in memory")
    name = os.fspath(place)
    scheme, separator, rest = name.partition("://")
    if name in {":memory:", "sqlite://", "sqlite:///:memory:"}:
        return MemoryStore(max_bytes=max_bytes, clock=clock)
    if not separator:
        return SQLiteStore(name, max_bytes=max_bytes, clock=clock)
    if scheme == "sqlite" and rest.startswith("/"):
        return SQLiteStore(rest[1:], max_bytes=max_bytes, clock=clock)
    if scheme.partition("+")[0] in {"postgresql", "postgres"}:
        return PostgresStore(name, max_bytes=max_bytes, clock=clock)
    if scheme in {"redis", "rediss", "unix"}:
        return RedisStore(name, max_bytes=max_bytes, clock=clock)
    raise StoreError(
        f"no store for {scheme}:// URLs; use a path, sqlite:///file.db, postgresql://user@host/database or redis://host"
    )
