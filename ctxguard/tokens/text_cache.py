"""A cache of values by text, in bounded memory."""

from __future__ import annotations

from collections.abc import Sized
from hashlib import blake2b
from typing import Final, Generic, TypeVar

V = TypeVar("V")

_MOST_CHARS: Final = 4_000_000
"""Characters of keys in one generation of a cache: enough for the latest messages of 200 conversations of 20 kB.
With a quarter of it, a proxy for these takes half as long again per request; with four times as much, it only takes
more memory."""
_PER_ITEM: Final = 8
"""Size, in characters, of one item of a value for a large text, of which only a hash is stored."""


class TextCache(Generic[V]):
    """A cache of values by text, in bounded memory.

    It has two generations: an entry that is found in the old one moves to the new one; when the new one is full, it
    becomes the old one. Look-ups cost one or two dict accesses; with several threads, a value may be lost, but is never
    wrong. Copies and pickles start empty. A text of more than half a generation is stored as a hash.

    Args:
        max_chars: maximum characters of keys in one generation; in total at most twice as many are kept.
    """

    __slots__ = ("_new", "_old", "_size", "max_chars")

    def __init__(self, max_chars: int = _MOST_CHARS) -> None:
        self.max_chars = max_chars
        self._new: dict[str | bytes, V] = {}
        self._old: dict[str | bytes, V] = {}
        self._size = 0

    def __reduce__(self) -> tuple[type[TextCache[V]], tuple[int]]:
        return TextCache, (self.max_chars,)

    def get(self, key: str) -> V | None:
        """Return the value of a text, or None."""
        known_by = self._known_by(key)
        value = self._new.get(known_by)
        if value is None and self._old:
            value = self._old.get(known_by)
            if value is not None:
                self._put(known_by, value)
        return value

    def put(self, key: str, value: V) -> None:
        """Store a value."""
        self._put(self._known_by(key), value)

    def _known_by(self, key: str) -> str | bytes:
        """Return the text itself, or the hash of a large one."""
        is_large = len(key) + 64 > self.max_chars // 2
        return blake2b(key.encode("utf-8", "surrogatepass")).digest() if is_large else key

    def _put(self, key: str | bytes, value: V) -> None:
        # the value for a large text may be as large as the text
        items = len(value) if isinstance(key, bytes) and isinstance(value, Sized) else 0
        size = len(key) + 64 + items * _PER_ITEM
        if size > self.max_chars:
            return
        if self._size + size > self.max_chars:
            self._old, self._new, self._size = self._new, {}, 0
        self._new[key] = value
        self._size += size

    def __len__(self) -> int:
        return len(self._new) + len(self._old)

    @property
    def chars(self) -> int:
        """Characters of its keys, an upper bound."""
        return sum(map(len, self._new)) + sum(map(len, self._old))
