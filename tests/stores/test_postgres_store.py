"""What can happen to a server: away, back again, no rights, damage, a fork."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ctxguard.errors import StoreError
from ctxguard.stores import PostgresStore
from ctxguard.stores.database import FORMAT

if TYPE_CHECKING:
    from collections.abc import Iterator

pytest.importorskip("sqlalchemy", reason="PostgresStore: sqlalchemy is not installed")
pytest.importorskip("psycopg", reason="PostgresStore: psycopg is not installed")


@pytest.fixture
def store(postgres_url: str) -> Iterator[PostgresStore]:
    with PostgresStore(postgres_url) as store:
        yield store


def execute(store: PostgresStore, statement: str) -> None:
    from sqlalchemy import text

    with store._engine.begin() as connection:
        connection.execute(text(statement))


@pytest.mark.parametrize("assignment", ["value = 'x'", "checksum = 'x'", "expires = 9e99", "format = 0"])
def test_a_damaged_record_is_reported_skipped_and_written_anew(
    store: PostgresStore, caplog: pytest.LogCaptureFixture, assignment: str
) -> None:
    store.put("n", "k", b"value")
    execute(store, f"UPDATE ctxguard_records SET {assignment}")
    assert store.get("n", "k") is None
    assert "it is damaged" in caplog.text
    assert store.put_new("n", "k", b"anew") == b"anew"
    assert store.get("n", "k") == b"anew"


def test_a_newer_record_is_reported_skipped_and_written_anew(
    store: PostgresStore, caplog: pytest.LogCaptureFixture
) -> None:
    store.put("n", "k", b"value")
    execute(store, f"UPDATE ctxguard_records SET format = {FORMAT + 1}")
    assert store.get("n", "k") is None
    assert "update ctxguard-stabilizer" in caplog.text
    assert store.put_new("n", "k", b"anew") == b"anew"


def test_a_server_that_comes_back_is_used_again(postgres_server, store: PostgresStore) -> None:
    store.put("n", "k", b"v")
    postgres_server.stop()
    with pytest.raises(StoreError, match="cannot be read: ") as raised:
        store.get("n", "k")
    assert "\n" not in str(raised.value)
    postgres_server.start()
    assert store.get("n", "k") == b"v"


def test_an_error_tells_neither_password_nor_value(tmp_path) -> None:
    url = f"postgresql://user:hunter2@/db?host={tmp_path}"
    with pytest.raises(StoreError, match="cannot be opened: ") as raised:
        PostgresStore(url, connect_timeout=2)
    assert "hunter2" not in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("url", ["postgresql://user:hunter2@host:port/db", "postgresql://user:pa@hunter2@host/db"])
def test_a_url_that_cannot_be_read_is_not_shown(url: str) -> None:
    with pytest.raises(StoreError, match=r"URL cannot be read.*%40, %3A and %2F for @") as raised:
        PostgresStore(url)
    assert "hunter2" not in str(raised.value)


def test_the_time_to_wait_for_a_server_may_stand_in_the_url(tmp_path) -> None:
    with pytest.raises(StoreError, match=r"cannot be opened: .*connect_timeout"):
        PostgresStore(f"postgresql://user@/db?host={tmp_path}&connect_timeout=soon")


def test_a_store_does_not_show_its_password(store: PostgresStore) -> None:
    store._engine.url = store._engine.url.set(password="hunter2")
    assert "hunter2" not in repr(store)


def test_a_user_who_may_only_read_and_write_needs_no_right_to_make_tables(
    store: PostgresStore, postgres_url: str
) -> None:
    execute(store, "DROP ROLE IF EXISTS worker; CREATE ROLE worker LOGIN; REVOKE CREATE ON SCHEMA public FROM PUBLIC")
    as_worker = postgres_url.replace("ctxguard@", "worker@")
    with pytest.raises(StoreError, match="permission denied"), PostgresStore(as_worker) as refused:
        refused.put("n", "k", b"v")
    execute(
        store,
        "GRANT SELECT, INSERT, UPDATE, DELETE ON ctxguard_records TO worker; "
        "GRANT USAGE ON SEQUENCE ctxguard_records_seq_seq TO worker",
    )
    with PostgresStore(as_worker) as allowed:
        allowed.put("n", "k", b"v")
        assert allowed.get("n", "k") == b"v"
    execute(store, "DROP OWNED BY worker; DROP ROLE worker")


def test_a_forked_child_gets_connections_of_its_own(store: PostgresStore, in_child) -> None:
    store.put("n", "parent", b"v")

    def use() -> None:
        assert store.get("n", "parent") == b"v"
        store.put("n", "child", b"v")

    in_child(use)
    assert store.get("n", "parent") == b"v"
    assert store.get("n", "child") == b"v"


def test_expired_records_go_without_a_sweep_by_hand(postgres_url: str, clock) -> None:
    with PostgresStore(postgres_url, clock=clock) as store:
        store.put("n", "over", b"v", ttl=1)
        clock.now += 2
        for number in range(5):
            store.put("n", str(number), bytes(1_000_000))
        assert store.sweep().expired == 0
