"""Keep sessions apart on the wire, and what their placeholders stand for while the provider holds the history.

A request that carries its whole history needs none of this: its placeholders follow from the history itself. Two kinds
of requests do: those that continue a history on the server (`previous_response_id`, `conversation`), and those whose
client names a session in a header. Sessions of different API keys never meet.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from threading import RLock
from typing import Final

from ctxguard.pii.mask.pseudonyms import MemoryPseudonyms, Original, Pseudonyms
from ctxguard.pii.mask.vault import SessionVault

_CREDENTIALS: Final = ("authorization", "x-api-key", "api-key", "x-goog-api-key")


class MemoryVault(SessionVault):
    """Hold one session's placeholders in this process. Safe for many threads."""

    def __init__(self, names: MemoryPseudonyms | None = None) -> None:
        self._own_lock = RLock()
        self._names = MemoryPseudonyms() if names is None else names

    def __repr__(self) -> str:
        return f"MemoryVault({len(self._names)} placeholders)"

    def copy(self) -> MemoryVault:
        """Return a vault that begins with these placeholders and goes on by itself."""
        with self._own_lock:
            return MemoryVault(self._names.copy())

    def placeholder(self, label: str, original: Original) -> str:
        """Return the placeholder of a value; a new one where it has none."""
        with self._own_lock:
            return self._names.placeholder(label, original)

    def original(self, placeholder: str) -> Original | None:
        """Return what a placeholder stands for, or None where it was never given."""
        return self._names.original(placeholder)

    def forget(self, value: str) -> int:
        """Erase nothing: what is held here goes with the process, or when it was not used for long."""
        del value
        return 0

    def reload(self, namespace: str) -> None:
        """Do nothing: there are no records to read anew."""

    @classmethod
    def of(cls, pseudonyms: Pseudonyms) -> SessionVault:
        """Return a vault that goes on from the placeholders of a conversation."""
        if isinstance(pseudonyms, MemoryPseudonyms):
            return cls(pseudonyms.copy())
        if isinstance(pseudonyms, MemoryVault):
            return pseudonyms.copy()
        if isinstance(pseudonyms, SessionVault):
            return pseudonyms
        raise TypeError(f"expected pseudonyms, got {type(pseudonyms).__name__}")


def credential_of(headers: Mapping[str, str]) -> str:
    """Return a digest of the API key in headers (with names in lower case), by which sessions are kept apart."""
    found = "\0".join(headers.get(name, "") for name in _CREDENTIALS)
    return hashlib.sha256(found.encode("utf-8", "surrogatepass")).hexdigest()[:16]
