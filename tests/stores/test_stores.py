"""What holds for every store of ours, beside the suite that yours can pass, too."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from ctxguard.errors import ConfigError, StoreError
from ctxguard.settings import install_command
from ctxguard.stores import ManagedStore, MemoryStore, PostgresStore, RedisStore, SQLiteStore, open_store
from ctxguard.testing import StoreConformance

if TYPE_CHECKING:
    from collections.abc import Callable


class TestEveryStore(StoreConformance):
    @pytest.fixture(autouse=True)
    def _empty_place(self, place: str) -> None:
        self.place = place

    def open(self, *, clock, max_bytes=None) -> ManagedStore:
        return open_store(self.place, clock=clock, max_bytes=max_bytes)


def test_a_limit_that_is_none_is_refused(opening: Callable[..., ManagedStore]) -> None:
    with pytest.raises(ConfigError, match="max_bytes"):
        opening(max_bytes=0)


def test_it_closes_as_a_context_manager(opening: Callable[..., ManagedStore], monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[ManagedStore] = []
    close = type(opening()).close
    with opening() as store:
        monkeypatch.setattr(type(store), "close", lambda self: (closed.append(self), close(self)))
    assert closed == [store]


def test_values_outlive_the_store_where_they_are_shared(shared_place: str) -> None:
    with open_store(shared_place) as store:
        store.put("n", "k", b"v")
    with open_store(shared_place) as store:
        assert store.get("n", "k") == b"v"
        store.close()
        assert store.get("n", "k") == b"v"


@pytest.mark.parametrize(
    ("place", "kind"),
    [(":memory:", MemoryStore), ("sqlite://", MemoryStore), ("sqlite:///:memory:", MemoryStore)],
)
def test_places_in_memory(place: str, kind: type) -> None:
    assert isinstance(open_store(place), kind)


def test_paths_and_sqlite_urls_are_files(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    for place in ("a.db", tmp_path / "b.db", "sqlite:///c.db", f"sqlite:///{tmp_path}/d.db"):
        with open_store(place) as store:
            assert isinstance(store, SQLiteStore)
    assert {path.name for path in tmp_path.iterdir()} == {"a.db", "b.db", "c.db", "d.db"}


def test_a_postgres_url_is_postgres(postgres_url: str) -> None:
    for prefix in ("postgresql", "postgres", "postgresql+psycopg"):
        with open_store(postgres_url.replace("postgresql", prefix)) as store:
            assert isinstance(store, PostgresStore)


def test_other_urls_are_refused() -> None:
    with pytest.raises(StoreError, match="no store for mongodb:// URLs"):
        open_store("mongodb://localhost")


def test_a_redis_that_is_not_there_is_one_clear_line_without_its_password() -> None:
    with pytest.raises(StoreError, match=r"store 127\.0\.0\.1:1/0 cannot be opened: .*; check the server") as caught:
        open_store("redis://user:hunter2@127.0.0.1:1/0")
    assert "hunter2" not in str(caught.value)
    with pytest.raises(StoreError, match="the store's URL cannot be read"):
        open_store("redis://localhost/first?socket_timeout=soon")


def test_a_damaged_redis_record_counts_as_absent_and_is_written_anew(redis_url: str) -> None:
    store = open_store(redis_url)
    assert isinstance(store, RedisStore)
    store.put("n", "k", b"value")
    store._client.hset("{ctxguard}:record:1:n:k", "value", b"other")
    assert store.get("n", "k") is None
    assert store.put_new("n", "k", b"again") == b"again"
    assert store.get("n", "k") == b"again"


def test_importing_stores_loads_no_database_driver() -> None:
    program = (
        "import sys, ctxguard.stores; sys.exit(bool({'sqlalchemy', 'psycopg', 'redis', 'typer'} & set(sys.modules)))"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize(
    ("missing", "url", "extra"),
    [
        ("sqlalchemy", "postgresql://localhost/x", "postgres"),
        ("psycopg", "postgresql://localhost/x", "postgres"),
        ("redis", "redis://localhost", "redis"),
    ],
)
def test_a_missing_driver_names_the_extra(missing: str, url: str, extra: str) -> None:
    program = (
        f"import sys; sys.modules[{missing!r}] = None\n"
        "from ctxguard.stores import open_store\n"
        f"try: open_store({url!r})\n"
        "except ImportError as error: print(error)\n"
    )
    said = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
    assert said.endswith(f" store needs an extra: {install_command(extra)}\n")


@pytest.mark.parametrize("place", [None, 5, b"x.db"])
def test_a_place_that_is_none_is_refused(place: object) -> None:
    with pytest.raises(StoreError, match="expected a path or a URL, got"):
        open_store(place)  # type: ignore[arg-type]


def test_a_value_larger_than_any_database_takes_is_refused(store: ManagedStore) -> None:
    with pytest.raises(StoreError, match="a value has at most 900,000,000 bytes, not 1,000,000,000"):
        store.put("n", "k", bytes(1_000_000_000))  # zeros that nobody touches take no memory


@pytest.mark.parametrize("kind", [bytearray, memoryview])
def test_any_kind_of_bytes_is_kept_as_bytes(store: ManagedStore, kind: type) -> None:
    store.put("n", "k", kind(b"value"))
    assert store.put_new("n", "new", kind(b"value")) == b"value"
    assert [type(store.get("n", key)) for key in ("k", "new")] == [bytes, bytes]
    assert store.get("n", "k") == store.get("n", "new") == b"value"
