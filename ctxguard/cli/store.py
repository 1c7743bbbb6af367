"""The command `ctxguard store`, which lists, shows, and deletes the records of a store."""

from __future__ import annotations

import sys
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from ctxguard.cli.options import spread
from ctxguard.cli.program import Command, command_group
from ctxguard.errors import StoreError
from ctxguard.report.printing import counted, out, working
from ctxguard.stores import ManagedStore, open_store
from ctxguard.stores.sqlite import may_be_store

if TYPE_CHECKING:
    from collections.abc import Iterator

app = command_group("store", "Inspect a store of results, summaries, and checkpoints, and clean it up.")


@contextmanager
def existing_store(place: str, *, max_bytes: int | None = None) -> Iterator[ManagedStore]:
    """Open a store, but never create one: a mistyped path must leave no empty file, and no tables in a database."""
    path = place.removeprefix("sqlite:///")
    if "://" not in path and not (Path(path).is_file() and Path(path).stat().st_size):
        raise StoreError(f"{_without_password(place)}: no such store; name an SQLite file or a URL")
    if "://" not in path and not may_be_store(path):
        raise StoreError(f"{path}: a database, but not of a store; name a file that a store has written")
    with working("reading the store"), open_store(place, max_bytes=max_bytes) as store:
        yield store


def _without_password(place: str) -> str:
    """Hide everything before the last @ in a mistyped URL, because it may contain a password."""
    before, sign, after = place.rpartition("@")
    return f"…@{after}" if before else sign + after


def _when(seconds: float) -> str:
    """Format a time, even if a wrong clock wrote it or it was damaged."""
    with suppress(ValueError, OverflowError, OSError, TypeError):
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    return f"no time ({seconds})"


@app.command("ls", cls=Command)
@spread("store ls")
def list_records(
    place: str,
    namespace: str | None = None,
) -> None:
    """List the namespaces of a store, or the keys of one namespace, the oldest first."""
    with existing_store(place) as store:
        if namespace is not None:
            keys = list(store.keys(namespace))
            if not keys:
                raise StoreError(f"no records in namespace {namespace!r}; `ctxguard store ls` lists namespaces")
            out("\n".join(keys))
            return
        for usage in store.usage():
            span = f"{_when(usage.oldest)} .. {_when(usage.newest)}"
            out(f"{usage.namespace}\t{counted(usage.records, 'record')}\t{counted(usage.size, 'byte')}\t{span}")


@app.command("show", cls=Command)
@spread("store show")
def show_record(
    place: str,
    namespace: str,
    key: str,
) -> None:
    """Write the value of a record to standard output: unchanged to a file or a pipe, as text to a terminal."""
    with existing_store(place) as store:
        value = store.get(namespace, key)
        if value is None:
            raise StoreError(f"no record {key!r} in namespace {namespace!r}; `ctxguard store ls` lists them")
        if sys.stdout.isatty():  # `out` removes escape sequences, which a terminal would interpret
            out(value.decode("utf-8", "replace"))
            return
        sys.stdout.buffer.write(value)
        sys.stdout.buffer.flush()


@app.command("gc", cls=Command)
@spread("store gc")
def collect_garbage(
    place: str,
    max_bytes: int | None = None,
) -> None:
    """Delete expired records, and the oldest records beyond a size limit."""
    with existing_store(place, max_bytes=max_bytes) as store:
        swept = store.sweep()
        left = sum(usage.size for usage in store.usage())
    gone = f"{counted(swept.expired, 'expired record')} and {counted(swept.evicted, 'record')} beyond the size limit"
    out(f"deleted {gone}; {counted(left, 'byte')} left")
