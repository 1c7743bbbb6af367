"""Where full results, summaries, vault entries and checkpoints live.

Nothing needs a store to be correct; a store makes things remembered and shared.
"""

from __future__ import annotations

import os
import time
from typing import TypeAlias

from ctxguard.errors import StoreError
from ctxguard.stores.memory import MemoryStore
from ctxguard.stores.postgres import PostgresStore
from ctxguard.stores.protocol import Clock, NamespaceUsage, Store, Swept
from ctxguard.stores.sqlite import SQLiteStore

__all__ = [
    "AnyStore",
    "Clock",
    "MemoryStore",
    "NamespaceUsage",
    "PostgresStore",
    "SQLiteStore",
    "Store",
    "Swept",
    "open_store",
]

AnyStore: TypeAlias = SQLiteStore | PostgresStore
"""Name what `open_store` returns: a store in a file, in memory, or in PostgreSQL."""


def open_store(place: str | os.PathLike[str], *, max_bytes: int | None = None, clock: Clock = time.time) -> AnyStore:
    """Open the store at a path or a URL.

    Args:
        place: `:memory:`, the path of an SQLite file, `sqlite:///relative.db` (or `sqlite:////absolute.db`), or
            `postgresql://user:password@host/database`, with any option that SQLAlchemy's psycopg dialect takes.
        max_bytes: bytes of values, keys and namespaces to hold at most; the oldest go first. None means no limit.
        clock: tells the time in seconds.

    Raises:
        StoreError: the place is not a path or a URL, cannot be opened, or the URL is of another kind.
        ConfigError: `max_bytes` is not above 0.
        ImportError: the URL is PostgreSQL's and the extra `postgres` is not installed.
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
    raise StoreError(f"no store for {scheme}:// URLs; use a path, sqlite:///file.db or postgresql://user@host/database")
