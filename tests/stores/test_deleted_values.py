"""What is deleted leaves no trace on the disk, or the caller is told."""

from __future__ import annotations

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
from patience import PATIENCE, until

from ctxguard.errors import StoreError
from ctxguard.stores import SQLiteStore


def test_deleting_a_namespace_while_another_connection_reads_says_that_the_log_still_holds_it(tmp_path):
    path = tmp_path / "store.db"
    store = SQLiteStore(path, busy_timeout=0.05)
    store.put("vault", "a", b"a secret of somebody")
    reader = sqlite3.connect(path, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM ctxguard_records").fetchone()

    with pytest.raises(StoreError, match="log still holds"):
        store.delete_namespace("vault")
    assert store.get("vault", "a") is None

    reader.close()
    store.sweep()
    assert not any(b"a secret" in file.read_bytes() for file in tmp_path.iterdir())


def test_two_that_delete_at_once_wait_for_each_other(tmp_path):
    """SQLite refuses at once to truncate a log that another connection truncates, whatever time it may wait."""
    path = tmp_path / "store.db"
    stores = [SQLiteStore(path, busy_timeout=PATIENCE) for _ in range(2)]
    stores[0].put("vault", "a", b"a secret of somebody")
    reader = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM ctxguard_records").fetchone()
    stores[0].put("vault", "b", b"a secret of somebody else")

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(stores[0].delete_namespace, "vault")
        probe = sqlite3.connect(path, isolation_level=None)
        assert until(lambda: probe.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()[0])  # the first waits
        second = pool.submit(stores[1].sweep)
        with suppress(TimeoutError):
            second.exception(0.2)  # it is refused at once, or waits
        reader.execute("COMMIT")
        assert first.result(PATIENCE) == 2
        second.result(PATIENCE)
    probe.close()
    reader.close()
    assert not any(b"a secret" in file.read_bytes() for file in tmp_path.iterdir())
