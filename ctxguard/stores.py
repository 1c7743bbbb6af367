"""Where full results, summaries, vault entries and checkpoints live.

Nothing needs a store to be correct; a store makes things remembered and shared.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, runtime_checkable

__all__ = ["Store"]


@runtime_checkable
class Store(Protocol):
    """Keep bytes under a namespace and a key. Safe for many threads, and for many processes where it is shared."""

    def get(self, namespace: str, key: str) -> bytes | None:
        """Return the value, or None where there is none (or its time is over)."""
        ...

    def put(self, namespace: str, key: str, value: bytes, *, ttl: float | None = None) -> None:
        """Write the value, over any earlier one; `ttl` is in seconds, None means for ever."""
        ...

    def put_new(self, namespace: str, key: str, value: bytes, *, ttl: float | None = None) -> bytes:
        """Write the value unless there is one; return the value that stands there now (first writer wins)."""
        ...

    def delete(self, namespace: str, key: str) -> bool:
        """Delete one value; True where there was one."""
        ...

    def delete_namespace(self, namespace: str) -> int:
        """Delete every value of a namespace; return how many there were."""
        ...

    def keys(self, namespace: str) -> Iterator[str]:
        """Walk the keys of a namespace, oldest first."""
        ...
