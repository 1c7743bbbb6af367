"""Keep what placeholders stand for: encrypted at rest, one session apart from the other.

A record is sealed with the session and its own name, so that it cannot be moved to another session. Which numbers
were given is kept beside them, without any value and without an end: a placeholder in an old message never comes to
mean another person's value.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Sequence
from threading import RLock
from typing import TYPE_CHECKING, Final
from weakref import WeakSet

from ctxguard.errors import ConfigError, VaultError
from ctxguard.pii.detect.echo import is_part_of_name
from ctxguard.pii.detect.match import PERSON
from ctxguard.pii.mask.pseudonyms import Original, normalized
from ctxguard.pii.mask.sealing import KeyRing, OtherKeyError
from ctxguard.pii.mask.unmask import GivesBack
from ctxguard.pii.placeholders import PSEUDONYM, pseudonym
from ctxguard.pii.settings import seconds

if TYPE_CHECKING:
    from ctxguard.stores import Store

_NUMBERS: Final = "-numbers"
"""Ends the namespace of the numbers that a session gave."""
_ERASED: Final = "-erased"
"""Ends the namespace of the notes on what was erased; none holds a value."""
_EVERYTHING: Final = "*"
_NOTE_BYTES: Final = 4
"""Random bytes of such a note, by which two notes differ."""


class Vault:
    """Hold sessions' values in a store. Safe for many threads and, where the store is shared, for many workers.

    Args:
        store: where sealed records live.
        key: a key of `new_key`, or several: the first seals, all open, so that keys can be changed. None means the
            environment variable CTXGUARD_VAULT_KEY (several separated by commas).
        ttl: seconds that each value is kept, counted from when it was first masked; using it does not prolong this.
            Then it is gone, in sessions that are open, too, and the same value gets a new placeholder. None means that
            values are kept until they are erased.

    Raises:
        ConfigError: there is no key, or it is none of `new_key`; the store is none, or `ttl` is not above 0.
        ImportError: cryptography is not installed.
    """

    def __init__(self, store: Store, *, key: str | Sequence[str] | None = None, ttl: float | None = None) -> None:
        seconds(ttl, "ttl")
        self._store = _opened(store)
        self._ttl = ttl
        self._keys = KeyRing(key)
        self._open_sessions: WeakSet[SessionVault] = WeakSet()

    def __repr__(self) -> str:
        return f"Vault({type(self._store).__name__}, keys={len(self._keys)})"

    @property
    def expires(self) -> bool:
        """Whether records end after a time."""
        return self._ttl is not None

    def session(self, session: str) -> SessionVault:
        """Return the vault of one session.

        Args:
            session: its name; only a hash of it is stored.

        Raises:
            ConfigError: the name is not a string, or empty.
        """
        opened = SessionVault(self, session)
        self._open_sessions.add(opened)
        return opened

    def forget(self, session: str, value: str | None = None) -> int:
        """Erase a session, or one value of it; return how many records went.

        With a person's name go its parts, which have records of their own: with `Jane Roe` also `Jane` and `Roe`.
        What this vault opened forgets at once; another worker that read a value before keeps it until it ends, or until
        its `ttl` is over. Of each label the highest number that was given stays, so that none is given again.

        Raises:
            VaultError: records of the session cannot be opened and may hold the value: they were sealed with another
                key, or are damaged. What could be found is erased. A whole session is erased without its key.
            StoreError: the records are deleted, but the log of the database still holds them (sealed), because another
                connection is reading it; call `sweep()` of the store later.
        """
        namespace = _namespace(session)
        try:
            return self._forget_session(namespace) if value is None else self._forget_value(session, value)
        finally:
            for opened in list(self._open_sessions):
                opened.reload(namespace)

    def _forget_session(self, namespace: str) -> int:
        self.numbered(namespace)
        self.note_erasure(namespace, _EVERYTHING)
        return self._store.delete_namespace(namespace)

    def _forget_value(self, session: str, value: str) -> int:
        gone = self.session(session).forget(value)
        # deleting one record leaves it in the log of a database
        sweep: Callable[[], object] | None = getattr(self._store, "sweep", None)
        if gone and sweep is not None:
            sweep()
        return gone

    def rotate(self, session: str) -> int:
        """Seal every record of a session anew by the first key; return how many there are."""
        namespace = _namespace(session)
        return sum(self._reseal(namespace, name) for name in self.names(namespace))

    def _reseal(self, namespace: str, name: str) -> bool:
        """Seal one record anew; False where it was erased meanwhile, so that it does not come back."""
        noted = self._erasures(namespace, name)
        plain = self.read(namespace, name)
        if plain is None:
            return False
        self._store.put(namespace, name, self._keys.seal(plain, _about(namespace, name)), ttl=self._ttl)
        # who erases notes it first: whatever was not noted until now is erased after this record was written
        if self._erasures(namespace, name) == noted:
            return True
        self.erase(namespace, name)
        return False

    def note_erasure(self, namespace: str, name: str) -> None:
        """Note that a record, or all of a session, is about to be erased."""
        self._store.put(namespace + _ERASED, name, os.urandom(_NOTE_BYTES), ttl=self._ttl)

    def _erasures(self, namespace: str, name: str) -> tuple[bytes | None, bytes | None]:
        erased = namespace + _ERASED
        return self._store.get(erased, name), self._store.get(erased, _EVERYTHING)

    def read(self, namespace: str, name: str) -> bytes | None:
        """Open one record; None where there is none.

        Raises:
            VaultError: no key opens it, or it is damaged.
        """
        sealed = self._store.get(namespace, name)
        return None if sealed is None else self._keys.open(sealed, _about(namespace, name))

    def write_new(self, namespace: str, name: str, plain: bytes) -> bytes:
        """Seal a record unless there is one; return what stands there."""
        sealed = self._keys.seal(plain, _about(namespace, name))
        standing = self._store.put_new(namespace, name, sealed, ttl=self._ttl)
        return self._keys.open(standing, _about(namespace, name))

    def erase(self, namespace: str, name: str) -> None:
        """Erase a record."""
        self._store.delete(namespace, name)

    def keep_number(self, namespace: str, name: str) -> None:
        """Keep for ever that a placeholder was given."""
        self._store.put_new(namespace + _NUMBERS, name, b"")

    def given(self, namespace: str) -> list[str]:
        """Return the placeholder with the highest number that a session gave of each label.

        The highest says all: the lower ones are dropped here, which keeps the list short.
        """
        kept = list(self._store.keys(namespace + _NUMBERS))
        highest = _highest(kept)
        for name in set(kept).difference(highest):
            self._store.delete(namespace + _NUMBERS, name)
        return highest

    def numbered(self, namespace: str) -> tuple[list[str], list[str]]:
        """Keep for ever which placeholders a session gave: return those with a record, and the highest of each label.

        Numbers are listed before records, as a record is written before its number is kept: whatever counts as given
        has its record among those listed, or has none.
        """
        kept = self.given(namespace)
        names = self.names(namespace)
        highest = _highest([*kept, *names])
        for name in set(highest).difference(kept):
            self.keep_number(namespace, name)
        return names, highest

    def names(self, namespace: str) -> list[str]:
        """Return the placeholders that a session has records of."""
        return [name for name in self._store.keys(namespace) if PSEUDONYM.fullmatch(name) is not None]


def session_vault(vault: object) -> SessionVault | None:
    """Return the vault of a session, or None.

    Raises:
        ConfigError: it is the vault of all sessions, or not a vault.
    """
    if vault is None or isinstance(vault, SessionVault):
        return vault
    raise ConfigError(
        f"vault is one session's, not {type(vault).__name__}; get it by Vault.session('its name')", setting="vault"
    )


class SessionVault(GivesBack):
    """Hold the values of one session; get one from `Vault.session`.

    Placeholders are numbered by first appearance, and a number once given keeps its meaning: whoever writes a record
    first wins, and other workers learn it.
    """

    def __init__(self, vault: Vault, session: str) -> None:
        self._vault = vault
        self._namespace = _namespace(session)
        self._lock = RLock()
        self._is_loaded = False
        self._placeholders: dict[tuple[str, str], str] = {}
        self._originals: dict[str, Original | None] = {}
        self._counts: dict[str, int] = {}
        self._damaged: dict[str, VaultError] = {}

    def __repr__(self) -> str:
        return f"SessionVault({len(self._originals)} placeholders)"

    def placeholder(self, label: str, original: Original) -> str:
        """Return the placeholder of a value; a new one, written to the store, where it has none.

        Raises:
            VaultError: records of the session were sealed with another key, so that the value may have one already.
        """
        with self._lock:
            self._load()
            known = self._placeholders.get((label, normalized(label, original.value)))
            if known is not None and self._vault.expires:
                self._refresh(known)
                known = self._placeholders.get((label, normalized(label, original.value)))
            return known if known is not None else self._allocated(label, original)

    def original(self, placeholder: str) -> Original | None:
        """Return what a placeholder stands for, or None where it was never given or is forgotten.

        Raises:
            VaultError: the record cannot be opened.
        """
        with self._lock:
            self._load()
            if placeholder not in self._originals and PSEUDONYM.fullmatch(placeholder) is not None:
                self._catch_up()
                self._read(placeholder)
            elif self._vault.expires and self._originals.get(placeholder) is not None:
                self._refresh(placeholder)
            if placeholder in self._damaged:
                raise self._damaged[placeholder]
            return self._originals.get(placeholder)

    @property
    def _pseudonyms(self) -> SessionVault:
        return self

    def forget(self, value: str) -> int:
        """Erase a value, and of a name its parts, too; their placeholders are not given again and stand for nothing.

        Returns:
            How many records were erased.

        Raises:
            VaultError: records cannot be opened and may hold the value, too.
        """
        with self._lock:
            self._load()
            gone = [key for key in self._placeholders if self._is_part(key, value)]
            for key in gone:
                name = self._placeholders.pop(key)
                self._vault.note_erasure(self._namespace, name)
                self._vault.erase(self._namespace, name)
                self._originals[name] = None
            if self._damaged:
                raise VaultError(
                    f"{len(gone)} records erased, but {len(self._damaged)} of this session cannot be opened and may "
                    f"hold the value, too: {next(iter(self._damaged.values()))}"
                )
            return len(gone)

    def _is_part(self, key: tuple[str, str], value: str) -> bool:
        """Tell whether a record holds a value, or a part of a name that the value is."""
        label, held = key
        return held == normalized(label, value) or (label == PERSON and is_part_of_name(held, value))

    def reload(self, namespace: str) -> None:
        """Drop what was read of the records, where they are this session's, and read them anew when they are wanted."""
        if namespace != self._namespace:
            return
        with self._lock:
            self._is_loaded = False
            self._placeholders, self._originals = {}, {}
            self._counts, self._damaged = {}, {}

    def _refresh(self, name: str) -> None:
        """Forget a record that has ended since it was read."""
        if self._vault.read(self._namespace, name) is None:
            self._originals[name] = None
            self._placeholders = {key: one for key, one in self._placeholders.items() if one != name}

    def _allocated(self, label: str, original: Original) -> str:
        key = (label, normalized(label, original.value))
        plain = json.dumps({"label": label, "value": original.value, "number": original.is_number}).encode()
        self._catch_up()
        sealed_otherwise = [error for error in self._damaged.values() if isinstance(error, OtherKeyError)]
        if sealed_otherwise:
            raise sealed_otherwise[0]
        while key not in self._placeholders:
            name = pseudonym(label, self._counts.get(label, 0) + 1)
            self._learn(name, self._vault.write_new(self._namespace, name, plain))
        self._vault.keep_number(self._namespace, self._placeholders[key])
        return self._placeholders[key]

    def _catch_up(self) -> None:
        """Learn what other workers gave meanwhile: a number counts as given where its record is gone by now, too."""
        for highest in self._vault.given(self._namespace):
            label, number = _given(highest)
            for missed in range(self._counts.get(label, 0) + 1, number + 1):
                self._read(pseudonym(label, missed))
            self._count(highest)

    def _load(self) -> None:
        """Read the session's records once; a number counts as given where its record is gone, too."""
        if self._is_loaded:
            return
        self._is_loaded = True
        names, highest = self._vault.numbered(self._namespace)
        for name in highest:
            self._count(name)
        for name in names:
            self._read(name)

    def _read(self, name: str) -> None:
        """Learn one record; a damaged one keeps its number and costs nothing but itself."""
        try:
            plain = self._vault.read(self._namespace, name)
        except VaultError as error:
            self._damaged[name] = error
            plain = b"{}"
        if plain is not None:
            self._learn(name, plain)

    def _learn(self, name: str, plain: bytes) -> None:
        self._count(name)
        record = json.loads(plain)
        if not record:
            self._originals[name] = None
            return
        self._originals[name] = Original(record["value"], record["number"])
        self._placeholders.setdefault((record["label"], normalized(record["label"], record["value"])), name)

    def _count(self, name: str) -> None:
        label, number = _given(name)
        self._counts[label] = max(self._counts.get(label, 0), number)


def _highest(names: Iterable[str]) -> list[str]:
    """Return the placeholder with the highest number of each label."""
    return list({_given(name)[0]: name for name in sorted(names, key=_given)}.values())


def _given(name: str) -> tuple[str, int]:
    """Return label and number of a placeholder."""
    match = PSEUDONYM.fullmatch(name)
    if match is None:
        raise VaultError("a vault record has a name that is no placeholder; forget its session")
    return match[1], int(match[2].replace("_", ""))


def _opened(store: Store) -> Store:
    from ctxguard.stores import Store

    if isinstance(store, Store):
        return store
    if isinstance(store, str | os.PathLike):
        raise ConfigError(f"a vault needs an open store: Vault(open_store({os.fspath(store)!r}))", setting="store")
    raise ConfigError(f"a vault needs a store, as open_store(…) gives it, not {type(store).__name__}", setting="store")


def _about(namespace: str, name: str) -> str:
    """Return what a record is sealed with."""
    return f"{namespace}\0{name}"


def _namespace(session: str) -> str:
    if not isinstance(session, str) or not session:
        raise ConfigError(
            "a session needs a name of its own: a text that is not empty, as the conversation's id", setting="session"
        )
    return "vault-" + hashlib.sha256(session.encode("utf-8", "surrogatepass")).hexdigest()
