"""The conformance tests for stores, which users import as `ctxguard.testing.StoreConformance`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

from ctxguard.errors import ConfigError, StoreError
from ctxguard.settings import extra
from ctxguard.stores.protocol import Clock, ManagedStore

with extra("testing", "ctxguard.testing needs Hypothesis and pytest"):
    import pytest
    from hypothesis import HealthCheck, given, settings
    from hypothesis import strategies as st

_SAME_STORE = settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])


class StoppedClock:
    """A clock that stands still until a test changes `now`.

    Attributes:
        now: The time, in seconds since 1970.
    """

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


class StoreConformance:
    """Tests that a store implements the `ManagedStore` protocol.

    Subclass it in a test module, and return an empty store from `open`:

    ```python
    class TestMyStore(StoreConformance):
        def open(self, *, clock, max_bytes=None):
            return MyStore("my://localhost", max_bytes=max_bytes, clock=clock)
    ```
    """

    clock: StoppedClock

    def open(self, *, clock: Clock, max_bytes: int | None = None) -> ManagedStore:
        """Return an empty store that uses the given clock and size limit in bytes."""
        raise NotImplementedError(f"{type(self).__name__} must say in open() how an empty store is opened")

    @pytest.fixture
    def store(self, request: pytest.FixtureRequest) -> Iterator[ManagedStore]:
        """Provide an empty store. A test sets its size limit in bytes by indirect parametrization."""
        self.clock = StoppedClock()
        with self.open(clock=self.clock, max_bytes=getattr(request, "param", None)) as store:
            yield store

    def test_it_has_every_method(self, store: ManagedStore) -> None:
        """The store has all methods of the protocol."""
        assert isinstance(store, ManagedStore)

    def test_a_value_comes_back_until_it_is_deleted(self, store: ManagedStore) -> None:
        """A value can be read after it was written, until it is deleted."""
        assert store.get("a", "k") is None
        store.put("a", "k", b"value")
        assert store.get("a", "k") == b"value"
        assert store.get("b", "k") is None
        assert store.delete("a", "k")
        assert not store.delete("a", "k")
        assert store.get("a", "k") is None

    def test_put_writes_over_and_put_new_does_not(self, store: ManagedStore) -> None:
        """`put` replaces a value, and `put_new` keeps it."""
        store.put("a", "k", b"one")
        store.put("a", "k", b"two")
        assert store.put_new("a", "k", b"three") == b"two"
        assert store.get("a", "k") == b"two"
        assert store.put_new("a", "new", b"four") == b"four"
        assert store.get("a", "new") == b"four"

    @_SAME_STORE
    @given(
        st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=200),
        st.binary(max_size=5_000),
    )
    def test_any_name_and_any_bytes_come_back(self, store: ManagedStore, name: str, value: bytes) -> None:
        """Names may contain any character except NUL, and values any bytes."""
        store.put(name, name, value)
        assert store.get(name, name) == value
        assert name in set(store.keys(name))

    @pytest.mark.parametrize("name", ["", "a\0b", "\ud800", "x" * 1_025, "ä" * 513])
    def test_a_name_that_not_every_database_takes_is_refused(self, store: ManagedStore, name: str) -> None:
        """Every method rejects a name that some database cannot store."""
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

    def test_a_value_is_bytes_and_a_ttl_a_number_of_seconds(self, store: ManagedStore) -> None:
        """Other values and TTLs are rejected, and nothing is written."""
        for put in (store.put, store.put_new):
            with pytest.raises(StoreError, match="a value is bytes, not str"):
                put("n", "k", "text")  # type: ignore[arg-type]
            for ttl in (0, -1, float("nan"), "1h"):
                with pytest.raises(ConfigError, match="ttl is a number of seconds above 0"):
                    put("n", "k", b"", ttl=ttl)  # type: ignore[arg-type]
        assert list(store.keys("n")) == []

    def test_keys_come_oldest_first_as_a_snapshot(self, store: ManagedStore) -> None:
        """Rewriting a key makes it the newest; keys may be deleted during iteration."""
        for key in ("c", "a", "b"):
            store.put("n", key, key.encode())
        store.put("n", "c", b"again")
        store.put_new("n", "a", b"ignored")
        store.put("other", "x", b"")
        assert list(store.keys("n")) == ["a", "b", "c"]
        assert sum(store.delete("n", key) for key in store.keys("n")) == 3
        assert list(store.keys("n")) == []

    def test_deleting_a_namespace_leaves_the_others(self, store: ManagedStore) -> None:
        """`delete_namespace` counts the values that had not expired, and leaves other namespaces alone."""
        store.put("n", "a", b"1")
        store.put("n", "b", b"2")
        store.put("n", "short", b"2", ttl=1)
        store.put("n2", "a", b"3")
        self.clock.now += 1
        assert store.delete_namespace("n") == 2
        assert store.delete_namespace("n") == 0
        assert store.get("n2", "a") == b"3"

    def test_a_value_is_gone_when_its_time_is_over(self, store: ManagedStore) -> None:
        """Every method treats an expired value as absent, and `put_new` replaces it."""
        store.put("n", "k", b"short", ttl=10)
        store.put("n", "endless", b"v", ttl=float("inf"))
        self.clock.now += 9.9
        assert store.get("n", "k") == b"short"
        self.clock.now += 0.1
        assert store.get("n", "k") is None
        assert list(store.keys("n")) == ["endless"]
        assert not store.delete("n", "k")
        assert store.put_new("n", "k", b"second", ttl=10) == b"second"
        assert store.put_new("n", "k", b"third") == b"second"
        store.put("n", "k", b"for ever")
        self.clock.now += 1e12
        assert store.get("n", "k") == b"for ever"
        assert store.get("n", "endless") == b"v"

    @pytest.mark.parametrize("store", [1_000], indirect=True)
    def test_the_oldest_go_when_the_limit_is_passed(self, store: ManagedStore) -> None:
        """Overwritten and deleted values do not count toward the limit."""
        for number in range(20):
            store.put("n", f"{number:02}", b"x" * 97)
        store.sweep()
        assert list(store.keys("n")) == [f"{number:02}" for number in range(10, 20)]
        for _ in range(20):
            store.put("n", "19", b"x" * 97)
        store.delete("n", "10")
        store.put("n", "20", b"x" * 97)
        store.sweep()
        assert list(store.keys("n")) == [f"{number:02}" for number in range(11, 21)]
        assert store.usage()[0].size == 1_000
        with pytest.raises(StoreError, match="does not fit"):
            store.put("n", "b", b"x" * 1_001)
        assert len(list(store.keys("n"))) == 10

    def test_sweep_says_what_it_took(self, store: ManagedStore) -> None:
        """Expired values are removed first, then the oldest."""
        for number in range(5):
            store.put("n", str(number), b"x" * 98, ttl=10 if number < 2 else None)
        self.clock.now += 10
        swept = store.sweep()
        assert (swept.expired, swept.evicted) == (2, 0)
        store.max_bytes = 250
        assert store.sweep().evicted == 1
        assert list(store.keys("n")) == ["3", "4"]

    def test_usage_is_records_bytes_and_times_by_namespace(self, store: ManagedStore) -> None:
        """`usage` counts records, bytes, and times for each namespace, without expired records."""
        store.put("b", "k", b"12345")
        self.clock.now += 5
        store.put("b", "kk", "ü".encode())
        store.put("a", "k", b"")
        store.put("over", "k", b"", ttl=0.5)
        now = self.clock.now
        self.clock.now += 1
        found = {usage.namespace: usage for usage in store.usage()}
        assert list(found) == ["a", "b"]
        assert (found["b"].records, found["b"].size) == (2, 5 + 1 + 1 + 2 + 2 + 1)
        assert (found["b"].oldest, found["b"].newest) == (now - 5, now)

    def test_threads_agree_and_lose_nothing(self, store: ManagedStore) -> None:
        """All threads see the value of the first writer, and no write is lost."""

        def race(number: int) -> list[bytes]:
            for key in range(25):
                store.put(f"n{number}", str(key), b"x")
            return [store.put_new("n", str(key), str(number).encode()) for key in range(20)]

        with ThreadPoolExecutor(8) as pool:
            seen = list(pool.map(race, range(8)))
        assert all(answer == seen[0] for answer in seen)
        assert [usage.records for usage in store.usage()] == [20, *[25] * 8]
