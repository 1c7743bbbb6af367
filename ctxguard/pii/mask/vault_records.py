"""The encrypted records of one session in a store, the numbers that were assigned, and notes about erasures.

Records are encrypted by AES-256-GCM (NIST SP 800-38D). The session and the name of the record are the associated data,
so that a record cannot be read under another name.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Final

from ctxguard.errors import ConfigError, VaultError
from ctxguard.pii.placeholders import PSEUDONYM
from ctxguard.settings import extra

if TYPE_CHECKING:
    from ctxguard.stores import Store


KEY_VARIABLE: Final = "CTXGUARD_VAULT_KEY"
_KEY_BYTES: Final = 32  # AES-256
_NONCE_BYTES: Final = 12  # the recommended nonce size of GCM (NIST SP 800-38D)
_KEY_ID_BYTES: Final = 4  # enough to distinguish a few keys
_NO_KEY: Final = "a vault key must be 32 bytes in URL-safe base64, or a list of such keys; create one by new_key()"


def new_key() -> str:
    """Return a new random key for `Vault` or the environment variable CTXGUARD_VAULT_KEY."""
    return base64.urlsafe_b64encode(os.urandom(_KEY_BYTES)).decode()


class KeyRing:
    """Encrypts with the first of several keys, and decrypts with any of them.

    Raises:
        ConfigError: If there is no key, or a key was not made by `new_key`.
        ImportError: If cryptography is not installed.
    """

    def __init__(self, key: str | Sequence[str] | None) -> None:
        self._boxes = tuple(map(_Box, _keys(key)))

    def __len__(self) -> int:
        return len(self._boxes)

    def seal(self, plain: bytes, about: str) -> bytes:
        """Encrypt a record. To decrypt it, the same associated data (`about`) is required."""
        return self._boxes[0].seal(plain, about.encode())

    def open(self, sealed: bytes, about: str) -> bytes:
        """Decrypt a record.

        Raises:
            OtherKeyError: If the record was encrypted with none of the keys.
            VaultError: If the record is damaged or was encrypted with different associated data.
        """
        for box in self._boxes:
            if sealed.startswith(box.id):
                return box.open(sealed, about.encode())
        raise OtherKeyError(
            f"none of the {len(self._boxes)} keys decrypts this vault record; add the key that encrypted it to `key`"
        )


class OtherKeyError(VaultError):
    """Raised when a record was encrypted with a key that was not given. Such a record may contain any value."""


class _Box:
    """Encrypts and decrypts with one key."""

    def __init__(self, key: bytes) -> None:
        with extra("vault", "a vault needs cryptography"):
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        self._cipher = AESGCM(hmac.digest(key, b"ctxguard vault seal", hashlib.sha256))
        self.id = hmac.digest(key, b"ctxguard vault key id", hashlib.sha256)[:_KEY_ID_BYTES]

    def seal(self, plain: bytes, about: bytes) -> bytes:
        nonce = os.urandom(_NONCE_BYTES)
        return self.id + nonce + self._cipher.encrypt(nonce, plain, about)

    def open(self, sealed: bytes, about: bytes) -> bytes:
        from cryptography.exceptions import InvalidTag

        nonce = sealed[_KEY_ID_BYTES : _KEY_ID_BYTES + _NONCE_BYTES]
        try:
            return self._cipher.decrypt(nonce, sealed[_KEY_ID_BYTES + _NONCE_BYTES :], about)
        except (InvalidTag, ValueError) as error:
            raise VaultError("a vault record is damaged or was moved; restore it, or forget its session") from error


def _keys(key: str | Sequence[str] | None) -> tuple[bytes, ...]:
    given = os.environ.get(KEY_VARIABLE, "") if key is None else key
    texts = [text for text in given.split(",") if text.strip()] if isinstance(given, str) else given
    if isinstance(texts, bytes) or not isinstance(texts, Sequence):
        raise ConfigError(_NO_KEY, setting="key")
    if not texts:
        raise ConfigError(
            f"a vault needs a key from new_key(): Vault(store, key=…), --vault-key-file, or variable {KEY_VARIABLE}",
            setting="key",
        )
    return tuple(map(_key, texts))


def _key(text: str) -> bytes:
    try:
        key = base64.b64decode(text.strip(), altchars=b"-_", validate=True) if isinstance(text, str) else b""
    except (binascii.Error, ValueError):
        key = b""
    if len(key) != _KEY_BYTES:
        raise ConfigError(_NO_KEY, setting="key")
    return key


_NUMBERS: Final = "-numbers"
"""Suffix of the namespace that contains notes on the numbers that a session has assigned."""
_ERASED: Final = "-erased"
"""Suffix of the namespace that contains notes on erasures. These contain no values."""
_EVERYTHING: Final = "*"
_NOTE_BYTES: Final = 4
"""Number of random bytes in a note on an erasure, so that no two notes are equal."""


class SessionRecords:
    """Reads and writes the records of one session. The name of a record is its placeholder.

    Args:
        store: The store that contains the records.
        keys: The keys that encrypt and decrypt the records.
        ttl: Seconds for which each record is stored; None means that records are stored until they are erased.
        session: The name of the session. Only a hash of it is stored.

    Raises:
        ConfigError: If the session name is not a string, or empty.
    """

    def __init__(self, store: Store, keys: KeyRing, ttl: float | None, session: str) -> None:
        if not isinstance(session, str) or not session:
            given = type(session).__name__ if session else repr(session)
            message = f"a session needs a name of its own: the conversation's id, not {given}; is there a thread_id?"
            if not isinstance(session, (str, type(None))):
                message += " where a function chooses, write vault=lambda context: vaults.session('its name')"
            raise ConfigError(message, setting="session")
        self.namespace = "vault-" + hashlib.sha256(session.encode("utf-8", "surrogatepass")).hexdigest()
        self._store = store
        self._keys = keys
        self._ttl = ttl
        # runs several reads and writes in one transaction, if the store supports transactions
        self.together: Callable[[], AbstractContextManager[object]] = getattr(store, "together", nullcontext)

    @property
    def expire(self) -> bool:
        """Whether records expire."""
        return self._ttl is not None

    def names(self) -> list[str]:
        """Return the placeholders that have a record."""
        return [name for name in self._store.keys(self.namespace) if PSEUDONYM.fullmatch(name) is not None]

    def listed(self) -> set[str]:
        """Return the names of all records, including damaged names that are not placeholders."""
        return set(self._store.keys(self.namespace))

    def unreadable(self, unread: Sequence[str]) -> set[str]:
        """Return the names of the records that cannot be read.

        These are the names in `unread` whose records still exist, and all damaged names.
        """
        listed = self.listed()
        return listed.intersection(unread) | {name for name in listed if PSEUDONYM.fullmatch(name) is None}

    def read(self, name: str) -> bytes | None:
        """Return the decrypted content of a record; None if there is no such record.

        Raises:
            VaultError: If no key decrypts the record, or it is damaged.
        """
        sealed = self._store.get(self.namespace, name)
        return None if sealed is None else self._keys.open(sealed, self._about(name))

    def write(self, name: str, plain: bytes) -> None:
        """Encrypt and store a record. An existing record with the same name is replaced."""
        self._store.put(self.namespace, name, self._keys.seal(plain, self._about(name)), ttl=self._ttl)

    def write_new(self, name: str, plain: bytes) -> bytes:
        """Encrypt and store a record, unless one with that name exists.

        Returns:
            The decrypted content of the record that is now stored, which may be that of another worker.
        """
        sealed = self._keys.seal(plain, self._about(name))
        standing = self._store.put_new(self.namespace, name, sealed, ttl=self._ttl)
        if self.expire:
            self.keep_numbers([name])
        return plain if standing == sealed else self._keys.open(standing, self._about(name))

    def erase(self, name: str) -> None:
        """Erase a record. Its number is never assigned again.

        The erasure is noted first. If another worker is re-encrypting the record at the same time, it sees the note and
        erases the record, too.
        """
        self.keep_numbers([name])
        self._note_erasure(name)
        self._store.delete(self.namespace, name)

    def erase_all(self) -> int:
        """Erase all records of the session, and return how many were erased. Their numbers are not assigned again."""
        self.keep_numbers(self.names())
        if self.listed():
            self._note_erasure(_EVERYTHING)
        return self._store.delete_namespace(self.namespace)

    def reseal(self, name: str) -> bool:
        """Encrypt a record anew with the first key, and return whether it still exists.

        A record that is erased at the same time stays erased.
        """
        noted = self._erasures(name)
        plain = self.read(name)
        if plain is None:
            return False
        self.write(name, plain)
        # an erasure is noted before the record is deleted, so after a new note, the record just written is deleted, too
        if self._erasures(name) == noted:
            return True
        self._store.delete(self.namespace, name)
        return False

    def noted_numbers(self) -> list[str]:
        """Return, for each label, the noted placeholder with the highest number."""
        return highest_of(self._store.keys(self.namespace + _NUMBERS))

    def keep_numbers(self, names: Iterable[str]) -> None:
        """Note, without expiry, that placeholders were assigned; only the highest number of each label is noted.

        A number must be noted before its record is erased, or as soon as the record may expire. Until then, the record
        itself shows that the number was assigned.
        """
        noted = list(self._store.keys(self.namespace + _NUMBERS))
        highest = highest_of([*noted, *names])
        for name in set(highest).difference(noted):
            self._store.put_new(self.namespace + _NUMBERS, name, b"")
        for name in set(noted).difference(highest):
            self._store.delete(self.namespace + _NUMBERS, name)

    def _about(self, name: str) -> str:
        """Return the associated data of a record: the session and the name of the record."""
        return f"{self.namespace}\0{name}"

    def _note_erasure(self, name: str) -> None:
        """Store a note that a record, or all records of the session, are about to be erased."""
        self._store.put(self.namespace + _ERASED, name, os.urandom(_NOTE_BYTES), ttl=self._ttl)

    def _erasures(self, name: str) -> tuple[bytes | None, bytes | None]:
        erased = self.namespace + _ERASED
        return self._store.get(erased, name), self._store.get(erased, _EVERYTHING)


def label_and_number(name: str) -> tuple[str, int]:
    """Return the label and the number of a placeholder.

    Raises:
        VaultError: If `name` is not a placeholder.
    """
    match = PSEUDONYM.fullmatch(name)
    if match is None:
        raise VaultError("a vault record has a name that is not a placeholder; forget its session")
    return match[1], int(match[2].replace("_", ""))


def highest_of(names: Iterable[str]) -> list[str]:
    """Return, for each label, the placeholder with the highest number."""
    return list({label_and_number(name)[0]: name for name in sorted(names, key=label_and_number)}.values())
