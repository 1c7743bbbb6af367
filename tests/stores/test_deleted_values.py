"""What is deleted leaves no trace on the disk, or the caller is told."""

from __future__ import annotations

import sqlite3

import pytest

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
