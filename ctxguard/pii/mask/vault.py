"""Store the values of placeholders: encrypted at rest, separate for each session.

A record is encrypted together with the session and its own name, so that it cannot be moved to another session. The
assigned numbers are stored separately, without values and without expiry: a placeholder in an old message never gets
the value of another person.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from threading import RLock
from types import MappingProxyType
from typing import TYPE_CHECKING, Final
from weakref import WeakSet

from ctxguard.errors import ConfigError, VaultError
from ctxguard.pii.detect.echo import is_part_of_name
from ctxguard.pii.detect.match import PERSON
from ctxguard.pii.mask.pseudonyms import MemoryPseudonyms, Original, normalized
from ctxguard.pii.mask.unmask import GivesBack
from ctxguard.pii.mask.vault_records import KeyRing, OtherKeyError, SessionRecords, highest_of, label_and_number
from ctxguard.pii.placeholders import PSEUDONYM, pseudonym
from ctxguard.settings import seconds

if TYPE_CHECKING:
    from ctxguard.stores import Store

_NOTE: Final = "note of "
"""Begins the name under which the note about a session is kept, and names its record."""
_NAMES: Final = "names of sessions"
"""The name under which the names of sessions are kept."""


class Vault:
    """The values of many sessions in a store. Safe for many threads and, with a shared store, for many workers.

    Args:
        store: where encrypted records are stored.
        key: a key from `new_key`, or several: the first encrypts, all decrypt, so that keys can be rotated. None means
            the environment variable CTXGUARD_VAULT_KEY (several separated by commas).
        ttl: seconds for which each value is stored, counted from when it was first masked; using it does not prolong
            this. Then it is deleted, also in open sessions, and the same value gets a new placeholder. None means that
            values are stored until they are erased.
        tools: which tools get real values in their arguments: True or False by name or pattern (`crm_*`), by `outward`
            for those that reach outside (mail, HTTP, messages, a shell), and by `*` for the rest. All do by default.

    Raises:
        ConfigError: there is no key, or one was not made by `new_key`; `store` is not a store, or `ttl` is not above 0.
        ImportError: cryptography is not installed.
    """

    def __init__(
        self,
        store: Store,
        *,
        key: str | Sequence[str] | None = None,
        ttl: float | None = None,
        tools: Mapping[str, bool] = MappingProxyType({}),
    ) -> None:
        seconds(ttl, "ttl")
        self._tools = tools
        self._store = _opened(store)
        self._ttl = ttl
        self._keys = KeyRing(key)
        self._open_sessions: WeakSet[SessionVault] = WeakSet()

    def __repr__(self) -> str:
        return f"Vault({type(self._store).__name__}, keys={len(self._keys)})"

    def session(self, session: str) -> SessionVault:
        """Return the vault of one session.

        Args:
            session: its name; only a hash of it is stored.

        Raises:
            ConfigError: the name is not a string, or empty.
        """
        opened = SessionVault(self._records(session))
        opened.tools = self._tools
        self._open_sessions.add(opened)
        return opened

    def forget(self, session: str, value: str | None = None) -> int:
        """Erase a session, or one value of it; return how many records were erased.

        A value is given in its own spelling or another one with the same placeholder; it is erased under every label.
        With a person's name, its parts are erased, which have records of their own: with `Jane Roe` also `Jane` and
        `Roe`. An address has no parts: with `jane.roe@site.org`, the name `Jane Roe` is not erased, because it may be
        another person's. This vault's open sessions forget the value at once; another worker that has read it keeps it
        until it ends, or until its `ttl` is over. The highest assigned number of each label is kept, so that none is
        assigned again.

        Raises:
            ConfigError: the value is empty, or a placeholder.
            VaultError: records of the session cannot be decrypted and may contain the value: they were encrypted with
                another key, or are damaged. All records that could be found are erased. Erasing a whole session needs
                no key.
            StoreError: the records are deleted, but the log of the database still contains them (encrypted), because
                another connection is reading it; call `sweep()` of the store later.
        """
        records = self._records(session)
        try:
            return records.erase_all() if value is None else self._forget_value(session, value)
        finally:
            for opened in list(self._open_sessions):
                opened.reload(records.namespace)

    def _forget_value(self, session: str, value: str) -> int:
        try:
            return self.session(session).forget(value)
        finally:
            # a deleted record is still in the log of a database, and so is an expired one
            sweep: Callable[[], object] | None = getattr(self._store, "sweep", None)
            if sweep is not None:
                sweep()

    def note(self, session: str, data: bytes) -> None:
        """Store an encrypted note about a session, over an earlier one. `forget` keeps it, so put no value in it."""
        self._records(_NOTE + session).write(_NOTE, data)

    def noted(self, session: str) -> bytes | None:
        """Return the note about a session; None if there is none.

        Raises:
            VaultError: it was encrypted with another key, or is damaged.
        """
        return self._records(_NOTE + session).read(_NOTE)

    def names(self) -> SessionRecords:
        """Return the encrypted names of sessions that can be found by name; they do not expire; `forget` keeps them."""
        return SessionRecords(self._store, self._keys, None, _NAMES)

    def rotate(self, session: str) -> int:
        """Encrypt every record of a session anew with the first key; return how many there are."""
        records = self._records(session)
        self._records(_NOTE + session).reseal(_NOTE)
        names = records.names()
        records.keep_numbers(names)  # a record that is encrypted anew may be given a time to expire
        return sum(map(records.reseal, names))

    def _records(self, session: str) -> SessionRecords:
        return SessionRecords(self._store, self._keys, self._ttl, session)


def session_vault(vault: object) -> SessionVault | None:
    """Return the vault of a session, or None; reject anything else, such as the vault of all sessions."""
    if vault is None or isinstance(vault, SessionVault):
        return vault
    told = f"vault is one session's, not {type(vault).__name__}; get it by Vault.session('its name')"
    raise ConfigError(f"{told}; must not be async" if hasattr(vault, "cr_code") else told, setting="vault")


class SessionVault(GivesBack):
    """The values of one session; get one from `Vault.session`.

    Placeholders are numbered by first appearance, and a number never changes its value: the first worker to write a
    record wins, and the others read it.
    """

    def __init__(self, records: SessionRecords) -> None:
        self._records = records
        self._lock = RLock()
        self._is_loaded = False
        self._placeholders: dict[tuple[str, str], str] = {}
        self._originals: dict[str, Original | None] = {}
        self._counts: dict[str, int] = {}
        self._damaged: dict[str, VaultError] = {}
        self._erasures = 0

    def __repr__(self) -> str:
        return f"SessionVault({len(self._originals)} placeholders)"

    def erasures(self) -> int:
        """Return a number that grows whenever values of the session are erased or expire.

        As long as it stays the same, masking a text again gives the same result.
        """
        with self._lock:
            if self._records.expire and self._is_loaded:
                self._drop_expired()
            return self._erasures

    def placeholder(self, label: str, original: Original) -> str:
        """Return the placeholder of a value; a new one, written to the store, if it has none.

        Raises:
            VaultError: records of the session were encrypted with another key, so that the value may have one already.
        """
        with self._lock:
            self._load()
            known = self._placeholders.get((label, normalized(label, original.value)))
            if known is not None and self._records.expire:
                self._refresh(known)
                known = self._placeholders.get((label, normalized(label, original.value)))
            if known is not None:
                return known
            try:
                with self._records.together():
                    return self._allocated(label, original)
            except BaseException:
                self.reload(self._records.namespace)  # the transaction took back what was learned in it
                raise

    def original(self, placeholder: str) -> Original | None:
        """Return the value of a placeholder, or None if it was never assigned, or was erased.

        Raises:
            VaultError: the record cannot be decrypted.
        """
        with self._lock:
            self._load()
            if placeholder not in self._originals and PSEUDONYM.fullmatch(placeholder) is not None:
                self._read(placeholder)
                if placeholder in self._originals:
                    self._catch_up([placeholder])
            elif self._records.expire and self._originals.get(placeholder) is not None:
                self._refresh(placeholder)
            if placeholder in self._damaged:
                raise self._damaged[placeholder]
            return self._originals.get(placeholder)

    def adopt(self, given: MemoryPseudonyms) -> None:
        """Store placeholders that were assigned in memory, each with its own number."""
        with self._lock:
            self._load()
            for name, label, original in given.items():
                self._write_new(name, label, original)

    @property
    def _pseudonyms(self) -> SessionVault:
        return self

    def forget(self, value: str) -> int:
        """Erase a value, and the parts of a name; their placeholders lose their values and are never assigned again.

        Returns:
            How many records were erased.

        Raises:
            ConfigError: the value is empty, or a placeholder.
            VaultError: records cannot be decrypted and may contain the value, too.
        """
        if not isinstance(value, str) or not value.strip() or PSEUDONYM.fullmatch(value.strip()):
            raise ConfigError("a value is erased by its own text, not by none or by its placeholder", setting="value")
        with self._lock:
            self.reload(self._records.namespace)  # other workers may have written records meanwhile
            self._load()
            gone = [key for key in self._placeholders if self._is_part(key, value)]
            for key in gone:
                name = self._placeholders[key]
                self._records.erase(name)
                self._drop(name)
            if self._damaged:
                raise VaultError(
                    f"{len(gone)} records erased, but {len(self._damaged)} of this session cannot be opened and may "
                    f"hold the value, too: {next(iter(self._damaged.values()))}"
                )
            return len(gone)

    def _is_part(self, key: tuple[str, str], value: str) -> bool:
        """Return whether a record contains a value, or a part of it if it is a name."""
        label, held = key
        return held == normalized(label, value) or (label == PERSON and is_part_of_name(held, value))

    def reload(self, namespace: str) -> None:
        """Discard the records that were read, if they are this session's, and read them again on next use."""
        if namespace != self._records.namespace:
            return
        with self._lock:
            self._is_loaded = False
            self._placeholders, self._originals = {}, {}
            self._counts, self._damaged = {}, {}
            self._erasures += 1

    def _drop_expired(self) -> None:
        """Discard the records that have expired; while the one written first is there, so are the later ones."""
        first = next((name for name, known in self._originals.items() if known is not None), None)
        if first is not None and self._records.read(first) is None:
            listed = self._records.listed()
            for name in [name for name, known in self._originals.items() if known and name not in listed]:
                self._drop(name)

    def _refresh(self, name: str) -> None:
        """Discard a record that has expired since it was read."""
        if self._records.read(name) is None:
            self._drop(name)

    def _drop(self, name: str) -> None:
        """Discard the value of a placeholder; its number is not assigned again."""
        self._originals.pop(name, None)
        self._originals[name] = None  # at the end, so that the first one with a value is found at once
        self._placeholders = {key: one for key, one in self._placeholders.items() if one != name}
        self._erasures += 1

    def _allocated(self, label: str, original: Original) -> str:
        key = (label, normalized(label, original.value))
        # numbers whose records other workers have erased; an existing record is met when its number is tried
        self._catch_up(self._records.noted_numbers())
        sealed_otherwise = [error for error in self._damaged.values() if isinstance(error, OtherKeyError)]
        if sealed_otherwise:
            raise sealed_otherwise[0]
        while key not in self._placeholders:
            self._write_new(pseudonym(label, self._counts.get(label, 0) + 1), label, original)
        return self._placeholders[key]

    def _write_new(self, name: str, label: str, original: Original) -> None:
        """Store a value under a placeholder; if another worker was faster, learn the value that it stored."""
        plain = json.dumps({"label": label, "value": original.value, "number": original.is_number}).encode()
        self._learn(name, self._records.write_new(name, plain))
        self._count(name)

    def _catch_up(self, names: Iterable[str]) -> None:
        """Read the records before some placeholders that other workers have assigned meanwhile."""
        for highest in names:
            label, number = label_and_number(highest)
            for missed in range(self._counts.get(label, 0) + 1, number + 1):
                self._read(pseudonym(label, missed))
            self._count(highest)

    def _load(self) -> None:
        """Read the session's records once; a number whose record was deleted still counts as assigned."""
        if self._is_loaded:
            return
        self._is_loaded = True
        noted = self._records.noted_numbers()  # before the records: a record is written before its number is noted
        names = self._records.names()
        for name in highest_of([*noted, *names]):
            self._count(name)
        for name in names:
            self._read(name)
        unread = [name for name in names if name not in self._originals]
        # a record that was erased meanwhile is no longer listed; a damaged one is
        for name in self._records.unreadable(unread):
            self._damaged[name] = VaultError(
                "the store skips a vault record: it is damaged or of a newer version; restore it, or forget its session"
            )

    def _read(self, name: str) -> None:
        """Read one record; a damaged one keeps its number, and the others stay readable."""
        try:
            plain = self._records.read(name)
        except VaultError as error:
            self._damaged[name] = error
            plain = b"{}"
        if plain is not None:
            self._learn(name, plain)

    def _learn(self, name: str, plain: bytes) -> None:
        record = json.loads(plain)
        if not record:
            self._originals[name] = None
            return
        self._originals[name] = Original(record["value"], record["number"])
        self._placeholders.setdefault((record["label"], normalized(record["label"], record["value"])), name)

    def _count(self, name: str) -> None:
        label, number = label_and_number(name)
        self._counts[label] = max(self._counts.get(label, 0), number)


def _opened(store: Store) -> Store:
    from ctxguard.stores import Store

    if isinstance(store, Store):
        return store
    if isinstance(store, str | os.PathLike):
        raise ConfigError(f"a vault needs an open store: Vault(open_store({os.fspath(store)!r}))", setting="store")
    raise ConfigError(f"a vault needs a store, as open_store(…) gives it, not {type(store).__name__}", setting="store")
