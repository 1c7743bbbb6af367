"""The format of a record, and how a reader verifies it."""

from __future__ import annotations

import hashlib
import logging
from dataclasses import dataclass
from typing import Final

from ctxguard.errors import ConfigError, StoreError

FORMAT: Final = 1
"""Number of the record format written here; a reader skips what has a higher one."""
MAX_NAME_BYTES: Final = 1_024
"""Bytes a namespace or a key may have; PostgreSQL's index takes 2,704 for both together."""
MAX_VALUE_BYTES: Final = 900_000_000
"""Bytes a value may have; SQLite takes 1,000,000,000 for a record, PostgreSQL 1 GiB."""

_log: Final = logging.getLogger("ctxguard.stores")


@dataclass(frozen=True, slots=True)
class Record:
    """Hold one value as it lies in a database.

    Attributes:
        namespace: first half of its name.
        key: second half of its name.
        value: the bytes that were handed over.
        expires: when its time is over, in seconds since 1970; None means never.
        format: number of the format it was written in.
        checksum: BLAKE2b over everything above.
    """

    namespace: str
    key: str
    value: bytes
    expires: float | None
    format: int
    checksum: bytes

    @property
    def size(self) -> int:
        """Bytes it counts for."""
        return size_of(self.namespace, self.key, self.value)

    def live(self, now: float) -> bytes | None:
        """Return the value, or None where its time is over or it cannot be trusted; the latter is logged."""
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


def new_record(namespace: str, key: str, value: bytes, expires: float | None, max_bytes: int | None = None) -> Record:
    """Return the record of a value in the current format."""
    check_names(namespace, key)
    check_limit(max_bytes, size_of(namespace, key, value))
    value = bytes(value)  # also of a bytearray or a memoryview, which not every driver takes
    return Record(namespace, key, value, expires, FORMAT, _checksum(namespace, key, value, expires, FORMAT))


def _checksum(namespace: str, key: str, value: bytes, expires: float | None, number: int) -> bytes:
    digest = hashlib.blake2b(repr((number, namespace, key, expires)).encode(), digest_size=16)
    digest.update(value)
    return digest.digest()


def size_of(namespace: str, key: str, value: bytes) -> int:
    """Return the bytes a record counts for: its value, key and namespace; refuse a value that no database takes."""
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise StoreError(f"a value is bytes, not {type(value).__name__}; encode a text first")
    if len(value) > MAX_VALUE_BYTES:
        raise StoreError(f"a value has at most {MAX_VALUE_BYTES:,} bytes, not {len(value):,}; keep it in a file")
    return len(value) + len(key.encode()) + len(namespace.encode())


def check_names(*names: str) -> None:
    """Refuse a namespace or a key that not every database can take."""
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
    """Return when a record written now ends; `ttl` is a number of seconds above 0, or None."""
    if ttl is None:
        return None
    if isinstance(ttl, bool) or not isinstance(ttl, (int, float)):
        raise ConfigError(f"ttl is a number of seconds, not {ttl!r}; None keeps the record for ever", setting="ttl")
    if not ttl > 0:
        raise ConfigError(f"ttl must be above 0 seconds, not {ttl}; None keeps the record for ever", setting="ttl")
    return float(now + ttl)


def check_limit(max_bytes: int | None, size: int | None = None) -> None:
    """Refuse an invalid size limit, or a single record above the limit."""
    if max_bytes is None:
        return
    if max_bytes <= 0:
        raise ConfigError(f"max_bytes must be above 0, not {max_bytes}; None means no limit", setting="max_bytes")
    if size is not None and size > max_bytes:
        raise StoreError(f"a record of {size} bytes does not fit into a store of {max_bytes}; raise max_bytes")
