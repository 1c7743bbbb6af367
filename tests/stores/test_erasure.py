"""An erasure either leaves nothing of a value behind, or says that it cannot know: whatever is damaged, in every store."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ctxguard.errors import VaultError
from ctxguard.pii import PEOPLE, STANDARD, Masker, Vault, new_key
from ctxguard.stores import open_store
from ctxguard.stores.database import FORMAT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ctxguard.stores import ManagedStore
    from ctxguard.stores.conformance import StoppedClock

KEY = new_key()
NUMBERS = count()
VALUES = ("zora@mailhost.org", "bob@mailhost.org", "203.0.113.9")
DAMAGE = {
    "a wrong checksum": {"checksum": bytes(16)},
    "a checksum of another length": {"checksum": bytes(32)},
    "a newer format": {"format": FORMAT + 1},
    "an older format": {"format": 0},
    "another time": {"expires": 9e99},
    "a name that is none": {"key": "EMAIL 1"},
    "the name of another": {"key": "<EMAIL_7>"},
    "another label": {"key": "<IP_7>"},
}
BYTES = ("truncated", "flipped", "emptied")


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path, clock: StoppedClock) -> Iterator[ManagedStore]:
    """A store whose table a test damages by statements of its own."""
    of_server = request.param == "postgres"
    place = request.getfixturevalue("postgres_url") if of_server else str(tmp_path / "store.db")
    with open_store(":memory:" if request.param == "memory" else place, clock=clock) as opened:
        yield opened


def rows(store: ManagedStore) -> list[tuple[str, bytes]]:
    """Return what lies in the table, whether or not a store would still read it."""
    with store._transaction("read") as connection:
        found = store._run(connection, "SELECT key, value FROM ctxguard_records WHERE length(namespace) = 70")
        return [(str(key), bytes(value)) for key, value in found]


def change(store: ManagedStore, old: bytes, **to: object) -> None:
    """Alter the record with these bytes behind the store's back."""
    with store._transaction("written") as connection:
        for column, new in to.items():
            statement = f"UPDATE ctxguard_records SET {column} = :new WHERE value = :old"
            store._run(connection, statement, new=new, old=old)


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
@given(
    whole=st.booleans(),
    kind=st.sampled_from([*DAMAGE, *BYTES]),
    hurt=st.integers(0, 2),
    forgotten=st.integers(0, 2),
    place=st.integers(0, 200),
)
def test_a_damaged_record_is_never_counted_as_absent(store, whole, kind, hurt, forgotten, place) -> None:
    session = f"conversation {next(NUMBERS)}"
    vault = Vault(store, key=KEY)
    before = {value for _, value in rows(store)}
    sealed = []
    for value in VALUES:
        Masker(STANDARD, strategy="pseudonymize", vault=vault.session(session)).session().text(value)
        (new,) = {one for _, one in rows(store)} - before - set(sealed)
        sealed.append(new)
    old = sealed[hurt]
    if kind in DAMAGE:
        change(store, old, **DAMAGE[kind])
    elif whole:  # through the store, so that its checksum fits
        place %= len(old)
        (name,) = (key for key, value in rows(store) if value == old)
        flipped = old[:place] + bytes([old[place] ^ 1]) + old[place + 1 :]
        damaged = {"truncated": old[:place], "flipped": flipped, "emptied": b""}[kind]
        store.put(vault._records(session).namespace, name, damaged)
    else:
        change(store, old, value=old[: place % len(old)] if kind != "emptied" else b"")
    with pytest.raises(VaultError, match=rf"{int(hurt != forgotten)} records erased, but 1 of this session"):
        vault.forget(session, VALUES[forgotten])
    left = [value for _, value in rows(store)]
    assert (sealed[forgotten] in left) <= (hurt == forgotten)  # what could be found is gone
    assert all(sealed[n] in left for n in range(3) if n not in (hurt, forgotten))  # and nothing else
    vault.forget(session)  # a whole session is erased, damaged or not
    assert not {value for _, value in rows(store)} - before


def test_what_ended_by_a_damaged_time_is_gone_after_an_erasure(store) -> None:
    vault = Vault(store, key=KEY)
    Masker(STANDARD, strategy="pseudonymize", vault=vault.session("s")).session().text(VALUES[0])
    ((_, sealed),) = rows(store)
    change(store, sealed, expires=1.0)
    assert vault.forget("s", VALUES[0]) == 0
    assert sealed not in [value for _, value in rows(store)]


def test_a_record_that_ends_while_it_is_read_is_not_damaged(store, clock: StoppedClock, monkeypatch) -> None:
    vault = Vault(store, key=KEY, ttl=60)
    Masker(STANDARD, strategy="pseudonymize", vault=vault.session("s")).session().text(VALUES[0])
    listed = type(store).keys

    def and_then_time_passes(self, namespace):
        found = list(listed(self, namespace))
        clock.now += 61
        return iter(found)

    monkeypatch.setattr(type(store), "keys", and_then_time_passes)
    assert vault.forget("s", VALUES[0]) == 0


def test_an_open_session_erases_what_another_worker_wrote(store) -> None:
    one, other = (Vault(store, key=KEY).session("s") for _ in range(2))
    texts = [Masker(STANDARD, strategy="pseudonymize", vault=vault).session() for vault in (one, other)]
    assert [text.text(value) for text, value in zip(texts, VALUES, strict=False)] == ["<EMAIL_1>", "<EMAIL_2>"]
    assert one.forget(VALUES[1]) == 1


@pytest.mark.parametrize(
    ("value", "stays"),
    [
        ("zora.fieldson@mailhost.org", True),
        ("Zora Fieldson", False),
        ("FIELDSON, Zora", False),
        ("Dr. Zora-Maria O'Fieldson Fieldson", False),
        ("Fieldson", True),
        ("zora.fieldson", True),
        ("zora_fieldson", True),
        ("https://fieldson.example/zora", True),
        ("Zora-Fieldson-Straße 5", True),
        ("/home/zora/fieldson", True),
    ],
)
def test_only_a_name_takes_a_person_along(store, value: str, stays: bool) -> None:
    vault = Vault(store, key=KEY)
    session = Masker(STANDARD | PEOPLE, strategy="pseudonymize", vault=vault.session("s")).session()
    masked = session.text("My name is Zora Fieldson.")
    assert masked == "My name is <PERSON_1>."
    session.text(value)
    vault.forget("s", value)
    assert (session.unmask("<PERSON_1>") == "Zora Fieldson") is stays
    assert (vault.forget("s", "Zora Fieldson") > 0) is stays


def test_a_damaged_record_in_redis_is_never_counted_as_absent(redis_url: str) -> None:
    store = open_store(redis_url)
    vault = Vault(store, key=KEY)
    session = vault.session("s")
    Masker(STANDARD, strategy="pseudonymize", vault=session).session().text(VALUES[0])
    (record,) = [
        name for name in store._client.keys("{ctxguard}:record:*") if b":record:70:" in name and b"<EMAIL_1>" in name
    ]
    store._client.hset(record, "checksum", bytes(16))
    with pytest.raises(VaultError, match="0 records erased, but 1 of this session"):
        vault.forget("s", VALUES[0])
    vault.forget("s")
    assert not store._client.exists(record)
