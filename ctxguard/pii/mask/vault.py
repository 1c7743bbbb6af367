"""Store the values of placeholders, encrypted at rest and separately for each session.

A record is encrypted together with the names of the session and the record, so that it cannot be moved to another
session. The numbers that were assigned are stored separately, without values and without expiry. Therefore, a
placeholder in an old message never stands for another person's value.
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
from ctxguard.pii.detect.validate import dialed_number
from ctxguard.pii.mask.pseudonyms import MemoryPseudonyms, Original, normalized
from ctxguard.pii.mask.unmask import GivesBack, require_tools
from ctxguard.pii.mask.vault_records import KeyRing, OtherKeyError, SessionRecords, highest_of, label_and_number
from ctxguard.pii.placeholders import PSEUDONYM, pseudonym
from ctxguard.settings import seconds

if TYPE_CHECKING:
    from ctxguard.stores import Store

_NOTE: Final = "note of "
"""Prefix of the session name under which the note about a session is stored, and the name of the note's record."""
_NAMES: Final = "names of sessions"
"""The session name under which the names of sessions are stored."""


class Vault:
    """The values of many sessions, in a store. Safe for many threads and, with a shared store, for many workers.

    Args:
        store: The store for the encrypted records.
        key: One or more keys from `new_key`. The first one encrypts, and all decrypt, so that keys can be rotated. None
            means the environment variable CTXGUARD_VAULT_KEY, which may contain several keys separated by commas.
        ttl: Seconds for which each value is stored, counted from when it was first masked; using a value does not
            prolong this. After that, the value is deleted, also from open sessions, and gets a new placeholder when it
            occurs again. None means that values are stored until they are erased.
        tools: Whether tools get real values in their arguments: True or False by tool name, by pattern (`crm_*`), by
            `outward` for tools that send data out (mail, HTTP, messages, a shell), and by `*` for all other tools. By
            default, all tools get values.

    Raises:
        ConfigError: If there is no key, a key was not made by `new_key`, `store` is not a store, or `ttl` is not
            greater than 0.
        ImportError: If cryptography is not installed.
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
        self._tools = require_tools(tools)
        self._store = _check_store(store)
        self._ttl = ttl
        self._keys = KeyRing(key)
        self._open_sessions: WeakSet[SessionVault] = WeakSet()

    def __repr__(self) -> str:
        return f"Vault({type(self._store).__name__}, keys={len(self._keys)})"

    def session(self, session: str) -> SessionVault:
        """Return the vault of one session.

        Args:
            session: The name of the session, such as the conversation's id. Only a hash of it is stored.

        Raises:
            ConfigError: If the name is not a string, or empty.
        """
        opened = SessionVault(self._records(session))
        opened.tools = self._tools
        self._open_sessions.add(opened)
        return opened

    def forget(self, session: str, value: str | None = None) -> int:
        """Erase a session, or one value of a session, and return the number of erased records.

        The value may be given in any spelling that has the same placeholder, and is erased under every label. If the
        value is a person's name, its parts are also erased, because they have their own records: with `Jane Roe`, also
        `Jane` and `Roe`. Other values have no parts: with `jane.roe@site.org`, the name `Jane Roe` is not erased,
        because it may be another person's name.

        Open sessions of this vault forget the value at once. Another worker that has read the value keeps it until the
        worker ends or the `ttl` of the value is over. Numbers of erased values are never assigned again.

        Args:
            session: The name of the session.
            value: The value to erase; None erases the whole session, which requires no matching key.

        Raises:
            ConfigError: If the value is empty or a placeholder.
            VaultError: If some records of the session cannot be decrypted and may contain the value, because they were
                encrypted with another key or are damaged. All records that were found are erased nevertheless.
            StoreError: If the records are deleted, but the database log still contains them (encrypted), because
                another connection is reading the log. Call the store's `sweep()` later.
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
            # deleted and expired records are still in the log of a database until it is swept
            sweep: Callable[[], object] | None = getattr(self._store, "sweep", None)
            if sweep is not None:
                sweep()

    def note(self, session: str, data: bytes) -> None:
        """Store an encrypted note about a session, replacing an earlier note.

        `forget` does not erase the note, so it must not contain any value.
        """
        self._records(_NOTE + session).write(_NOTE, data)

    def noted(self, session: str) -> bytes | None:
        """Return the note about a session; None if there is none.

        Raises:
            VaultError: If the note was encrypted with another key, or is damaged.
        """
        return self._records(_NOTE + session).read(_NOTE)

    def names(self) -> SessionRecords:
        """Return the records that contain the encrypted names of sessions, by which sessions can be looked up.

        These records do not expire, and `forget` does not erase them.
        """
        return SessionRecords(self._store, self._keys, None, _NAMES)

    def rotate(self, session: str) -> int:
        """Encrypt every record of a session anew with the first key, and return the number of re-encrypted values."""
        records = self._records(session)
        self._records(_NOTE + session).reseal(_NOTE)
        names = records.names()
        records.keep_numbers(names)  # a record that did not expire may do so after it is written again
        return sum(map(records.reseal, names))

    def _records(self, session: str) -> SessionRecords:
        return SessionRecords(self._store, self._keys, self._ttl, session)


def session_vault(vault: object) -> SessionVault | None:
    """Return `vault` if it is the vault of one session or None, and raise an error for anything else.

    Raises:
        ConfigError: If `vault` is something else, such as the `Vault` of all sessions.
    """
    if vault is None or isinstance(vault, SessionVault):
        return vault
    message = f"vault is one session's, not {type(vault).__name__}; get it by Vault.session('its name')"
    raise ConfigError(f"{message}; must not be async" if hasattr(vault, "cr_code") else message, setting="vault")


class SessionVault(GivesBack):
    """The values of one session. Created by `Vault.session`.

    Placeholders are numbered in the order of their first appearance, and a placeholder never gets another value. If
    several workers assign the same number at the same time, the first one to write the record wins, and the others read
    that record.
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
        """Return a counter that grows when values of the session are erased or expire.

        As long as it stays the same, masking a text again gives the same result, so masked texts can be cached.
        """
        with self._lock:
            if self._records.expire and self._is_loaded:
                self._drop_expired()
            return self._erasures

    def placeholder(self, label: str, original: Original) -> str:
        """Return the placeholder of a value, or assign a new one and write it to the store.

        Raises:
            VaultError: If a record of the session was encrypted with another key, so that the value may already have a
                placeholder.
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
                    return self._allocate(label, original)
            except BaseException:
                self.reload(self._records.namespace)  # discard what was learned in a transaction that was rolled back
                raise

    def original(self, placeholder: str) -> Original | None:
        """Return the value of a placeholder; None if it was never assigned, or its value was erased.

        Raises:
            VaultError: If the record cannot be decrypted.
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
        """Store placeholders that were assigned in memory, without changing their numbers."""
        with self._lock:
            self._load()
            for name, label, original in given.items():
                self._write_new(name, label, original)

    @property
    def _pseudonyms(self) -> SessionVault:
        return self

    def forget(self, value: str) -> int:
        """Erase a value, and the parts of a name. The placeholders lose their values and are never assigned again.

        Returns:
            The number of erased records.

        Raises:
            ConfigError: If the value is empty or a placeholder.
            VaultError: If some records cannot be decrypted and may contain the value.
        """
        if not isinstance(value, str) or not value.strip() or PSEUDONYM.fullmatch(value.strip()):
            raise ConfigError("give the value to erase, not an empty string or its placeholder", setting="value")
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
                    f"{len(gone)} records erased, but {len(self._damaged)} of this session cannot be read and "
                    f"may hold the value, too: {next(iter(self._damaged.values()))}"
                )
            return len(gone)

    def _is_part(self, key: tuple[str, str], value: str) -> bool:
        """Return whether erasing `value` must also erase the record with the label and the value in `key`.

        It must if both values are equal in any spelling, or if the record contains a part of the name `value`.
        """
        label, held = key
        if label == "PHONE" and (number := dialed_number(value)) is not None:
            return number == dialed_number(held)
        return held == normalized(label, value) or (label == PERSON and is_part_of_name(held, value))

    def reload(self, namespace: str) -> None:
        """Discard all records that were read, so that they are read again on next use.

        Args:
            namespace: The namespace of the session to reload; nothing happens if it is another session's.
        """
        if namespace != self._records.namespace:
            return
        with self._lock:
            self._is_loaded = False
            self._placeholders, self._originals = {}, {}
            self._counts, self._damaged = {}, {}
            self._erasures += 1

    def _drop_expired(self) -> None:
        """Discard the values of expired records.

        Only the record that was written first is checked: while it exists, later records have not expired either.
        """
        first = next((name for name, known in self._originals.items() if known is not None), None)
        if first is not None and self._records.read(first) is None:
            listed = self._records.listed()
            for name in [name for name, known in self._originals.items() if known and name not in listed]:
                self._drop(name)

    def _refresh(self, name: str) -> None:
        """Discard the value of a placeholder if its record has expired since it was read."""
        if self._records.read(name) is None:
            self._drop(name)

    def _drop(self, name: str) -> None:
        """Discard the value of a placeholder. Its number is not assigned again."""
        self._originals.pop(name, None)
        self._originals[name] = None  # moved to the end, so that `_drop_expired` finds the first value quickly
        self._placeholders = {key: one for key, one in self._placeholders.items() if one != name}
        self._erasures += 1

    def _allocate(self, label: str, original: Original) -> str:
        key = (label, normalized(label, original.value))
        # skip numbers whose records other workers have erased; existing records are noticed in `_write_new`
        self._catch_up(self._records.noted_numbers())
        sealed_otherwise = [error for error in self._damaged.values() if isinstance(error, OtherKeyError)]
        if sealed_otherwise:
            raise sealed_otherwise[0]
        while key not in self._placeholders:
            self._write_new(pseudonym(label, self._counts.get(label, 0) + 1), label, original)
        return self._placeholders[key]

    def _write_new(self, name: str, label: str, original: Original) -> None:
        """Store a value under a placeholder, or read the value that another worker has stored there first."""
        plain = json.dumps({"label": label, "value": original.value, "number": original.is_number}).encode()
        self._learn(name, self._records.write_new(name, plain))
        self._count(name)

    def _catch_up(self, names: Iterable[str]) -> None:
        """Read the records of other workers that were not read yet, up to the number of each given placeholder."""
        for highest in names:
            label, number = label_and_number(highest)
            for missed in range(self._counts.get(label, 0) + 1, number + 1):
                self._read(pseudonym(label, missed))
            self._count(highest)

    def _load(self) -> None:
        """Read the session's records, if not done yet. A number whose record was deleted still counts as assigned."""
        if self._is_loaded:
            return
        try:
            self._read_all()
        except BaseException:
            self.reload(self._records.namespace)  # a value that was not read would get a second placeholder
            raise
        self._is_loaded = True

    def _read_all(self) -> None:
        noted = self._records.noted_numbers()  # read first, because a number is noted after its record is written
        names = self._records.names()
        for name in highest_of([*noted, *names]):
            self._count(name)
        for name in names:
            self._read(name)
        unread = [name for name in names if name not in self._originals]
        # a record that was erased in the meantime is no longer listed, but a damaged record is
        for name in self._records.unreadable(unread):
            self._damaged[name] = VaultError(
                "the store skips a vault record: it is damaged or of a newer version; restore it, or forget its session"
            )

    def _read(self, name: str) -> None:
        """Read one record. If it is damaged, its number stays assigned, and other records remain readable."""
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


def _check_store(store: Store) -> Store:
    from ctxguard.stores import Store

    if isinstance(store, Store):
        return store
    if isinstance(store, str | os.PathLike):
        raise ConfigError(f"a vault needs an open store: Vault(open_store({os.fspath(store)!r}))", setting="store")
    raise ConfigError(
        f"a vault needs a store, such as one from open_store(…), not {type(store).__name__}", setting="store"
    )
