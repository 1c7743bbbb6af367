"""What holds for every store."""

from __future__ import annotations

import math
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ctxguard.errors import ConfigError, StoreError
from ctxguard.settings import install_command
from ctxguard.stores import AnyStore, MemoryStore, PostgresStore, SQLiteStore, Store, open_store

if TYPE_CHECKING:
    from collections.abc import Callable

SAME_STORE = settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])


def test_it_is_a_store(store: AnyStore) -> None:
    assert isinstance(store, Store)


def test_a_value_comes_back_until_it_is_deleted(store: AnyStore) -> None:
    assert store.get("a", "k") is None
    store.put("a", "k", b"value")
    assert store.get("a", "k") == b"value"
    assert store.get("b", "k") is None
    assert store.delete("a", "k")
    assert not store.delete("a", "k")
    assert store.get("a", "k") is None


def test_put_writes_over_and_put_new_does_not(store: AnyStore) -> None:
    store.put("a", "k", b"one")
    store.put("a", "k", b"two")
    assert store.put_new("a", "k", b"three") == b"two"
    assert store.get("a", "k") == b"two"
    assert store.put_new("a", "new", b"four") == b"four"
    assert store.get("a", "new") == b"four"


@SAME_STORE
@given(
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=200),
    st.binary(max_size=5_000),
)
def test_any_name_and_any_bytes_come_back(store: AnyStore, name: str, value: bytes) -> None:
    store.put(name, name, value)
    assert store.get(name, name) == value
    assert name in set(store.keys(name))


@pytest.mark.parametrize("name", ["", "a\0b", "\ud800", "x" * 1_025, "ä" * 513])
def test_a_name_no_database_takes_is_refused_by_every_call(store: AnyStore, name: str) -> None:
    calls: list[Callable[[], object]] = [
        lambda: store.get(name, "k"),
        lambda: store.get("n", name),
        lambda: store.put("n", name, b""),
        lambda: store.put_new(name, "k", b""),
        lambda: store.delete("n", name),
        lambda: store.delete_namespace(name),
        lambda: store.keys(name),
    ]
    for call in calls:
        with pytest.raises(StoreError, match=r"name .* has"):
            call()


def test_keys_come_oldest_first_and_a_rewrite_makes_one_the_newest(store: AnyStore) -> None:
    for key in ("c", "a", "b"):
        store.put("n", key, key.encode())
    store.put("n", "c", b"again")
    store.put_new("n", "a", b"ignored")
    store.put("other", "x", b"")
    assert list(store.keys("n")) == ["a", "b", "c"]


def test_keys_are_a_snapshot_so_the_walk_may_delete(store: AnyStore) -> None:
    for number in range(50):
        store.put("n", str(number), b"")
    assert sum(store.delete("n", key) for key in store.keys("n")) == 50
    assert list(store.keys("n")) == []


def test_deleting_a_namespace_leaves_the_others(store: AnyStore) -> None:
    store.put("n", "a", b"1")
    store.put("n", "b", b"2")
    store.put("n2", "a", b"3")
    assert store.delete_namespace("n") == 2
    assert store.delete_namespace("n") == 0
    assert store.get("n2", "a") == b"3"


def test_a_value_is_gone_when_its_time_is_over(store: AnyStore, clock) -> None:
    store.put("n", "k", b"short", ttl=10)
    clock.now += 9.9
    assert store.get("n", "k") == b"short"
    clock.now += 0.1
    assert store.get("n", "k") is None
    assert list(store.keys("n")) == []
    assert not store.delete("n", "k")
    assert store.usage() == []


def test_a_later_write_sets_the_time_anew(store: AnyStore, clock) -> None:
    store.put("n", "k", b"one", ttl=10)
    store.put("n", "k", b"two")
    clock.now += 100
    assert store.get("n", "k") == b"two"


def test_put_new_takes_the_place_of_a_value_whose_time_is_over(store: AnyStore, clock) -> None:
    store.put_new("n", "k", b"first", ttl=10)
    clock.now += 10
    assert store.put_new("n", "k", b"second", ttl=10) == b"second"
    assert store.put_new("n", "k", b"third") == b"second"
    assert store.get("n", "k") == b"second"


def test_delete_namespace_does_not_count_what_was_over(store: AnyStore, clock) -> None:
    store.put("n", "a", b"1", ttl=1)
    store.put("n", "b", b"2")
    clock.now += 1
    assert store.delete_namespace("n") == 1


@pytest.mark.parametrize("ttl", [0, -1, math.nan])
def test_a_ttl_that_is_no_time_is_refused(store: AnyStore, ttl: float) -> None:
    with pytest.raises(ConfigError, match="ttl is a number of seconds above 0"):
        store.put("n", "k", b"", ttl=ttl)
    assert store.get("n", "k") is None


def test_an_endless_ttl_is_for_ever(store: AnyStore, clock) -> None:
    store.put("n", "k", b"v", ttl=math.inf)
    clock.now += 1e12
    assert store.get("n", "k") == b"v"


def test_the_oldest_go_when_the_limit_is_passed(opening: Callable[..., AnyStore]) -> None:
    store = opening(max_bytes=1_000)
    for number in range(20):
        store.put("n", f"{number:02}", b"x" * 97)
    store.sweep()
    assert list(store.keys("n")) == [f"{number:02}" for number in range(10, 20)]
    assert store.usage()[0].size == 1_000


def test_overwriting_does_not_count_twice(opening: Callable[..., AnyStore]) -> None:
    store = opening(max_bytes=1_000)
    store.put("n", "stays", b"x" * 500)
    for _ in range(20):
        store.put("n", "k", b"x" * 400)
    store.sweep()
    assert list(store.keys("n")) == ["stays", "k"]


def test_what_was_deleted_no_longer_counts(opening: Callable[..., AnyStore]) -> None:
    store = opening(max_bytes=1_000)
    store.put("gone", "a", b"x" * 600)
    store.put("gone", "b", b"x" * 300)
    store.delete_namespace("gone")
    store.put("n", "a", b"x" * 500)
    store.put("n", "b", b"x" * 400)
    store.sweep()
    assert list(store.keys("n")) == ["a", "b"]


def test_a_value_over_the_limit_is_refused_and_evicts_nothing(opening: Callable[..., AnyStore]) -> None:
    store = opening(max_bytes=100)
    store.put("n", "a", b"x" * 50)
    with pytest.raises(StoreError, match="does not fit"):
        store.put("n", "b", b"x" * 101)
    assert store.get("n", "a") is not None


def test_a_limit_that_is_none_is_refused(opening: Callable[..., AnyStore]) -> None:
    with pytest.raises(ConfigError, match="max_bytes"):
        opening(max_bytes=0)


def test_sweep_says_what_it_took(opening: Callable[..., AnyStore], clock) -> None:
    store = opening()
    for number in range(5):
        store.put("n", str(number), b"x" * 98, ttl=10 if number < 2 else None)
    clock.now += 10
    swept = store.sweep()
    assert (swept.expired, swept.evicted) == (2, 0)
    assert list(store.keys("n")) == ["2", "3", "4"]
    store.max_bytes = 250
    assert store.sweep().evicted == 1
    assert list(store.keys("n")) == ["3", "4"]


def test_usage_tells_records_bytes_and_times_by_namespace(store: AnyStore, clock) -> None:
    store.put("b", "k", b"12345")
    clock.now += 5
    store.put("b", "kk", "ü".encode())
    store.put("a", "k", b"")
    found = {usage.namespace: usage for usage in store.usage()}
    assert list(found) == ["a", "b"]
    assert (found["b"].records, found["b"].size) == (2, 5 + 1 + 1 + 2 + 2 + 1)
    assert (found["b"].oldest, found["b"].newest) == (clock.now - 5, clock.now)


def test_threads_agree_on_the_first_writer(store: AnyStore) -> None:
    def race(number: int) -> list[bytes]:
        return [store.put_new("n", str(key), str(number).encode()) for key in range(20)]

    with ThreadPoolExecutor(8) as pool:
        seen = list(pool.map(race, range(8)))
    assert all(answer == seen[0] for answer in seen)
    assert seen[0] == [store.get("n", str(key)) for key in range(20)]


def test_threads_lose_no_write(store: AnyStore) -> None:
    def write(number: int) -> None:
        for key in range(25):
            store.put(f"n{number}", str(key), b"x")
            assert store.get(f"n{number}", str(key)) == b"x"

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(8)))
    assert [usage.records for usage in store.usage()] == [25] * 8


def test_it_closes_as_a_context_manager(opening: Callable[..., AnyStore], monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[AnyStore] = []
    close = SQLiteStore.close if isinstance(opening(), SQLiteStore) else PostgresStore.close
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
    with pytest.raises(StoreError, match="no store for redis:// URLs"):
        open_store("redis://localhost")


def test_importing_stores_loads_no_database_driver() -> None:
    program = "import sys, ctxguard.stores; sys.exit(bool({'sqlalchemy', 'psycopg', 'typer'} & set(sys.modules)))"
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize("missing", ["sqlalchemy", "psycopg"])
def test_a_missing_driver_names_the_extra(missing: str) -> None:
    program = (
        f"import sys; sys.modules[{missing!r}] = None\n"
        "from ctxguard.stores import open_store\n"
        "try: open_store('postgresql://localhost/x')\n"
        "except ImportError as error: print(error)\n"
    )
    said = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
    assert said == f"a PostgreSQL store needs {install_command('postgres')}\n"


@pytest.mark.parametrize("put", ["put", "put_new"])
def test_a_record_that_is_none_is_refused(store: AnyStore, put: str) -> None:
    write = getattr(store, put)
    with pytest.raises(StoreError, match="a value is bytes, not str; encode a text first"):
        write("n", "k", "text")
    with pytest.raises(StoreError, match="a namespace or key is a text, not int"):
        write("n", 5, b"v")
    with pytest.raises(ConfigError, match="ttl is a number of seconds above 0, or None, not '1h'") as caught:
        write("n", "k", b"v", ttl="1h")
    assert caught.value.setting == "ttl"
    assert list(store.keys("n")) == []


@pytest.mark.parametrize("place", [None, 5, b"x.db"])
def test_a_place_that_is_none_is_refused(place: object) -> None:
    with pytest.raises(StoreError, match="expected a path or a URL, got"):
        open_store(place)  # type: ignore[arg-type]


def test_a_value_larger_than_any_database_takes_is_refused(store: AnyStore) -> None:
    with pytest.raises(StoreError, match="a value has at most 900,000,000 bytes, not 1,000,000,000"):
        store.put("n", "k", bytes(1_000_000_000))  # zeros that nobody touches take no memory


@pytest.mark.parametrize("kind", [bytearray, memoryview])
def test_any_kind_of_bytes_is_kept_as_bytes(store: AnyStore, kind: type) -> None:
    store.put("n", "k", kind(b"value"))
    assert store.put_new("n", "new", kind(b"value")) == b"value"
    assert [type(store.get("n", key)) for key in ("k", "new")] == [bytes, bytes]
    assert store.get("n", "k") == store.get("n", "new") == b"value"
