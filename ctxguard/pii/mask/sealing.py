"""Encrypt records with a key: AES-256-GCM (NIST SP 800-38D), with the subject of a record as associated data."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
from collections.abc import Sequence
from typing import Final

from ctxguard.errors import ConfigError, VaultError
from ctxguard.settings import extra

KEY_VARIABLE: Final = "CTXGUARD_VAULT_KEY"
_KEY_BYTES: Final = 32  # AES-256
_NONCE_BYTES: Final = 12  # of GCM (NIST SP 800-38D)
_KEY_ID_BYTES: Final = 4  # enough to tell a few keys apart
_NO_KEY: Final = "a vault key is a text of 32 bytes in URL-safe base64, or a list of them; make one by new_key()"


def new_key() -> str:
    """Return a new random key, for `Vault` and the environment variable CTXGUARD_VAULT_KEY."""
    return base64.urlsafe_b64encode(os.urandom(_KEY_BYTES)).decode()


class KeyRing:
    """Encrypt with the first of some keys, and decrypt with any of them.

    Raises:
        ConfigError: there is no key, or one was not made by `new_key`.
        ImportError: cryptography is not installed.
    """

    def __init__(self, key: str | Sequence[str] | None) -> None:
        self._boxes = tuple(map(_Box, _keys(key)))

    def __len__(self) -> int:
        return len(self._boxes)

    def seal(self, plain: bytes, about: str) -> bytes:
        """Return an encrypted record; it can only be decrypted together with its subject."""
        return self._boxes[0].seal(plain, about.encode())

    def open(self, sealed: bytes, about: str) -> bytes:
        """Return the decrypted record.

        Raises:
            OtherKeyError: it was encrypted with none of the keys.
            VaultError: it is damaged, or has another subject.
        """
        for box in self._boxes:
            if sealed.startswith(box.id):
                return box.open(sealed, about.encode())
        raise OtherKeyError(
            f"none of the {len(self._boxes)} keys sealed this vault record; give the key that did as a further `key`"
        )


class OtherKeyError(VaultError):
    """A record was encrypted with a key that was not given; it may contain any value."""


class _Box:
    """Encrypt and decrypt with one key."""

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
            f"a vault needs a key by new_key(): Vault(store, key=…), --vault-key-file, or the variable {KEY_VARIABLE}",
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
