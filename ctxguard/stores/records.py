"""The format of a stored record, and its validation."""

from __future__ import annotations

import hashlib
import logging
from dataclasses import dataclass
from typing import Final

from ctxguard.errors import ConfigError, StoreError
from ctxguard.settings import seconds

FORMAT: Final = 1
"""Version of the record format; readers skip records of a later version."""
MAX_NAME_BYTES: Final = 1_024
"""Bytes a namespace or a key may have; PostgreSQL's index takes 2,704 for both together."""
MAX_VALUE_BYTES: Final = 900_000_000
"""Bytes a value may have; SQLite takes 1,000,000,000 for a record, PostgreSQL 1 GiB."""

_log: Final = logging.getLogger("ctxguard.stores")


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """One stored value with its metadata.

    Attributes:
        namespace: the namespace of its key.
        key: its key in the namespace.
        value: the stored bytes.
        expires: when it expires, in seconds since 1970; None means never.
        format: version of the format in which it was written.
        checksum: BLAKE2b hash of all other attributes.
    """

    namespace: str
    key: str
    value: bytes
    expires: float | None
    format: int
    checksum: bytes

    @property
    def size(self) -> int:
        """Bytes that it counts toward `max_bytes`."""
        return size_of(self.namespace, self.key, self.value)

    def live(self, now: float) -> bytes | None:
        """Return the value, or None if it has expired or is invalid; an invalid record is logged."""
        fault = self._fault()
        if fault is None:
            return None if self.expires is not None and self.expires <= now else self.value
        _log.warning("skipped record %.80r of namespace %.80r: %s", self.key, self.namespace, fault)
        return None

    def _fault(self) -> str | None:
        if isinstance(self.format, int) and self.format > FORMAT:
            return f"its format is {self.format} and this version reads up to {FORMAT}; update ctxguard-stabilizer"
        if not isinstance(self.value, bytes) or self.checksum != _checksum(
            self.namespace, self.key, self.value, self.expires, self.format
        ):
            return "it is damaged (its checksum does not fit); it will be written anew, or delete it"
        return None


def new_record(
    namespace: str, key: str, value: bytes, expires: float | None, max_bytes: int | None = None
) -> StoredRecord:
    """Return the record of a value in the current format."""
    check_names(namespace, key)
    check_limit(max_bytes, size_of(namespace, key, value))
    value = bytes(value)  # not every driver accepts a bytearray or a memoryview
    return StoredRecord(namespace, key, value, expires, FORMAT, _checksum(namespace, key, value, expires, FORMAT))


def _checksum(namespace: str, key: str, value: bytes, expires: float | None, number: int) -> bytes:
    digest = hashlib.blake2b(repr((number, namespace, key, expires)).encode(), digest_size=16)
    digest.update(value)
    return digest.digest()


def size_of(namespace: str, key: str, value: bytes) -> int:
    """Return the size of a record in bytes (value, key, and namespace); reject a value that no database accepts."""
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise StoreError(f"a value is bytes, not {type(value).__name__}; encode a text first")
    if len(value) > MAX_VALUE_BYTES:
        raise StoreError(f"a value has at most {MAX_VALUE_BYTES:,} bytes, not {len(value):,}; keep it in a file")
    return len(value) + len(key.encode()) + len(namespace.encode())


def check_names(*names: str) -> None:
    """Reject a namespace or key that some database cannot store."""
    for name in names:
        if not isinstance(name, str):
            raise StoreError(f"a namespace or key is a text, not {type(name).__name__}")
        try:
            length = len(name.encode())
        except UnicodeEncodeError as error:
            raise StoreError(f"name {name[:80]!r} has a lone surrogate in it; use what UTF-8 can write") from error
        if not 0 < length <= MAX_NAME_BYTES or "\0" in name:
            raise StoreError(
                f"name {name[:80]!r} has {length} bytes; a namespace or key has 1 to {MAX_NAME_BYTES} and no NUL"
            )


def expiry(now: float, ttl: float | None) -> float | None:
    """Return when a record written now expires; `ttl` is in seconds and above 0, None means never."""
    seconds(ttl, "ttl")
    return None if ttl is None else float(now + ttl)


def check_limit(max_bytes: int | None, size: int | None = None) -> None:
    """Reject an invalid size limit, or a single record above the limit."""
    if max_bytes is None:
        return
    if max_bytes <= 0:
        raise ConfigError(f"max_bytes must be above 0, not {max_bytes}; None means no limit", setting="max_bytes")
    if size is not None and size > max_bytes:
        raise StoreError(f"a record of {size} bytes does not fit into a store of {max_bytes}; raise max_bytes")
