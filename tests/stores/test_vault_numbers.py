"""A placeholder's number never comes to mean another value: not after an erasure, not after a time, for no worker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ctxguard.errors import StoreError
from ctxguard.pii import STANDARD, Masker, MaskSession, Vault, new_key
from ctxguard.pii.mask.vault_records import SessionRecords

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import Clock

    from ctxguard.stores import ManagedStore

KEY = new_key()
NAME = "conversation"


@pytest.fixture
def another(place: str, store: ManagedStore, opening: Callable[..., ManagedStore]) -> Callable[..., ManagedStore]:
    """Open the store as another worker does; what is in memory is shared."""
    return (lambda: store) if place == ":memory:" else opening


@pytest.fixture
def worker(another: Callable[..., ManagedStore]) -> Callable[..., MaskSession]:
    """Begin with a session as a worker of its own does."""

    def begin(ttl: float | None = None) -> MaskSession:
        vault = Vault(another(), key=KEY, ttl=ttl)
        return Masker(STANDARD, strategy="pseudonymize", vault=vault.session(NAME)).session()

    return begin


@pytest.fixture
def forget(another: Callable[..., ManagedStore]) -> Callable[..., int]:
    return lambda *value: Vault(another(), key=KEY).forget(NAME, *value)


def test_an_old_placeholder_means_nobody_after_its_session_was_forgotten(worker, forget) -> None:
    assert worker().text("jane@site.org, bob@site.org, 203.0.113.9") == "<EMAIL_1>, <EMAIL_2>, <IP_1>"
    assert forget() == 3
    after = worker()
    assert after.text("eve@site.org 198.51.100.7") == "<EMAIL_3> <IP_2>"
    assert after.unmask("<EMAIL_1> <EMAIL_2> <IP_1>") == "<EMAIL_1> <EMAIL_2> <IP_1>"
    assert worker().unmask("<EMAIL_3>") == "eve@site.org"
    assert forget() == 2
    assert worker().text("eve@site.org") == "<EMAIL_4>"


def test_an_old_placeholder_means_nobody_after_its_time(worker, clock: Clock) -> None:
    assert worker(60).text("jane@site.org, bob@site.org") == "<EMAIL_1>, <EMAIL_2>"
    clock.now += 61
    assert worker(60).text("eve@site.org") == "<EMAIL_3>"
    assert worker(60).unmask("<EMAIL_1> <EMAIL_3>") == "<EMAIL_1> eve@site.org"


def test_the_number_of_a_value_that_was_forgotten_is_not_given_again(worker, forget, clock: Clock) -> None:
    worker(60).text("jane@site.org, bob@site.org")
    assert forget("bob@SITE.ORG") == 1
    clock.now += 61
    assert worker(60).text("eve@site.org, bob@site.org") == "<EMAIL_3>, <EMAIL_4>"


def test_a_value_keeps_its_placeholder_while_its_record_lives(worker, forget, clock: Clock) -> None:
    worker(60).text("jane@site.org")
    clock.now += 40
    worker(60).text("bob@site.org")
    clock.now += 40
    assert worker(60).text("bob@Site.org") == "<EMAIL_2>"
    assert forget("bob@site.org") == 1
    assert worker(60).unmask("<EMAIL_2>") == "<EMAIL_2>"


def test_two_workers_go_on_from_the_same_number_after_an_erasure(worker, forget) -> None:
    one, other = worker(), worker()
    one.text("jane@site.org")
    other.text("bob@site.org")
    forget()
    one, other = worker(), worker()
    assert (one.text("eve@site.org"), other.text("dan@site.org")) == ("<EMAIL_3>", "<EMAIL_4>")
    assert (one.text("dan@site.org"), other.text("eve@site.org")) == ("<EMAIL_4>", "<EMAIL_3>")


def test_what_stays_behind_holds_no_value(another: Callable[..., ManagedStore], worker, forget) -> None:
    for number in range(40):
        worker().text(f"u{number}@site.org")
    forget()
    worker()
    store = another()
    left = {key: store.get(one.namespace, key) for one in store.usage() for key in store.keys(one.namespace)}
    erased = left.pop("*", b"")  # that everything was erased, and by which call
    assert len(erased) <= 4
    assert left == {"<EMAIL_40>": b""}


def test_a_worker_that_opened_a_session_before_an_erasure_gives_no_number_again(worker, forget) -> None:
    early = worker()
    assert early.text("jane@site.org") == "<EMAIL_1>"
    assert worker().text("bob@site.org") == "<EMAIL_2>"
    forget()
    assert early.text("eve@site.org") == "<EMAIL_3>"
    assert worker().unmask("<EMAIL_2>") == "<EMAIL_2>"


def test_a_worker_that_opened_a_session_before_a_time_was_over_gives_no_number_again(worker, clock: Clock) -> None:
    early = worker(60)
    assert early.text("jane@site.org") == "<EMAIL_1>"
    assert worker(60).text("bob@site.org, 203.0.113.9") == "<EMAIL_2>, <IP_1>"
    clock.now += 61
    assert early.text("eve@site.org, 198.51.100.7") == "<EMAIL_3>, <IP_2>"
    assert worker(60).unmask("<EMAIL_2> <IP_1>") == "<EMAIL_2> <IP_1>"


def test_of_the_numbers_of_a_long_session_only_the_highest_are_kept(
    another: Callable[..., ManagedStore], worker
) -> None:
    session = worker(60)
    for number in range(20):
        session.text(f"u{number}@site.org 203.0.113.{number}")
    store = another()
    (numbers,) = (one.namespace for one in store.usage() if one.namespace.endswith("-numbers"))
    assert len(list(store.keys(numbers))) <= 4


def test_a_worker_that_was_asked_for_a_late_placeholder_knows_those_before_it(worker) -> None:
    early = worker()
    assert early.text("jane@site.org") == "<EMAIL_1>"
    assert worker().text("bob@site.org, eve@site.org") == "<EMAIL_2>, <EMAIL_3>"
    assert early.unmask("<EMAIL_3>") == "eve@site.org"
    assert early.text("bob@site.org") == "<EMAIL_2>"


@pytest.mark.parametrize("ttl", [None, 60])
def test_a_new_value_asks_the_store_for_as_little_after_many_as_after_few(
    store: ManagedStore, ttl, monkeypatch
) -> None:
    asked: list[str] = []
    for name in ("get", "put", "put_new", "delete", "keys"):
        whole = getattr(type(store), name)

        def counted(self, *given, _name=name, _whole=whole, **named):
            found = _whole(self, *given, **named)
            found = list(found) if _name == "keys" else found
            asked.extend([_name] * (len(found) + 1 if _name == "keys" else 1))
            return iter(found) if _name == "keys" else found

        monkeypatch.setattr(type(store), name, counted)
    vault = Vault(store, key=KEY, ttl=ttl).session(NAME)
    session = Masker(STANDARD, strategy="pseudonymize", vault=vault).session()

    def cost(number: int) -> int:
        asked.clear()
        session.text(f"u{number}@site.org")
        vault.erasures()
        return len(asked)

    costs = [cost(number) for number in range(60)]
    assert set(costs[2:]) == {costs[2]}
    assert costs[2] <= 8


def test_a_value_whose_transaction_failed_has_no_placeholder(worker, monkeypatch) -> None:
    session = worker(60)
    assert session.text("jane@site.org") == "<EMAIL_1>"
    with monkeypatch.context() as failing:

        def full(*_: object) -> None:
            raise StoreError("the disk is full")

        failing.setattr(SessionRecords, "keep_numbers", full)
        with pytest.raises(StoreError):
            session.text("bob@site.org")
    other = worker(60)
    told = [other.text("eve@site.org"), session.text("bob@site.org")]
    assert len(set(told)) == 2
    assert [worker(60).unmask(one) for one in told] == ["eve@site.org", "bob@site.org"]
    assert session.unmask(" ".join(told)) == "eve@site.org bob@site.org"
