"""Caches in bounded memory: of texts by their size, and of the values used last by their number."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from functools import wraps
from hashlib import blake2b
from sys import getsizeof
from threading import Lock
from typing import Final, Generic, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")

_MOST_CHARS: Final = 4_000_000
"""Maximum size of one generation: enough for the latest messages of 200 conversations of 20 kB. With a quarter of it, a
proxy for such conversations takes 50% more time per request. Four times as much only takes more memory."""
_PER_ENTRY: Final = 64
"""Assumed size, in bytes, of the entry of a dict."""
_PER_ITEM: Final = 120
"""Assumed size, in bytes, of each item of a value, such as a finding."""


class TextCache(Generic[Value]):
    """A cache with strings as keys, in bounded memory.

    The cache has two generations. An entry that is found in the old generation moves to the new one. When the new
    generation is full, it becomes the old one, and the previous old one is discarded. A lookup takes one or two dict
    accesses. If several threads use the cache, a value may be lost but is never wrong. Copies and pickles start empty.
    If a key is longer than half of `max_chars`, only a hash of it is stored.

    Args:
        max_chars: Maximum size of the keys and values of one generation, a key by its characters and a value by its
            bytes. The cache takes at most twice as much.
    """

    __slots__ = ("_new", "_old", "_size", "max_chars")

    def __init__(self, max_chars: int = _MOST_CHARS) -> None:
        self.max_chars = max_chars
        self._new: dict[str | bytes, Value] = {}
        self._old: dict[str | bytes, Value] = {}
        self._size = 0

    def __reduce__(self) -> tuple[type[TextCache[Value]], tuple[int]]:
        return TextCache, (self.max_chars,)

    def get(self, key: str) -> Value | None:
        """Return the value of a key; None if the cache does not contain it."""
        known_by = self._known_by(key)
        value = self._new.get(known_by)
        if value is None and self._old:
            value = self._old.get(known_by)
            if value is not None:
                self._put(known_by, value)
        return value

    def put(self, key: str, value: Value) -> None:
        """Store the value of a key."""
        self._put(self._known_by(key), value)

    def _known_by(self, key: str) -> str | bytes:
        """Return the key under which a value is stored: the string itself, or its hash if it is long."""
        is_large = len(key) + _PER_ENTRY > self.max_chars // 2
        return blake2b(key.encode("utf-8", "surrogatepass")).digest() if is_large else key

    def _put(self, key: str | bytes, value: Value) -> None:
        items = len(value) if isinstance(value, (tuple, list, dict)) else 0  # `getsizeof` leaves them out
        size = len(key) + _PER_ENTRY + getsizeof(value) + items * _PER_ITEM
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
        """Number of characters in all keys; an upper bound, since a key may be in both generations."""
        return sum(map(len, self._new)) + sum(map(len, self._old))


def cached_by_text(function: Callable[[str], Value]) -> Callable[[str], Value]:
    """Decorate a function that takes a text and never returns None, so that a `TextCache` has its latest results.

    `functools.lru_cache` counts texts instead of characters: a history of more short texts than it has places, which is
    read from its beginning each time, finds nothing in it.
    """
    known: TextCache[Value] = TextCache()

    @wraps(function)
    def cached(text: str) -> Value:
        found = known.get(text)
        if found is None:
            found = function(text)
            known.put(text, found)
        return found

    return cached


class Recent(Generic[Key, Value]):
    """A cache of at most `size` values, which evicts the least recently used value first. Thread-safe.

    A copy, or a cache that was pickled, starts empty.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._kept: OrderedDict[Key, Value] = OrderedDict()
        self._lock = Lock()

    def __reduce__(self) -> tuple[type[Recent[Key, Value]], tuple[int]]:
        return type(self), (self._size,)

    def get(self, key: Key) -> Value | None:
        """Return the value for a key, or None if the key is missing."""
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
            return self._kept.get(key)

    def put(self, key: Key, value: Value) -> None:
        """Store a value under a key."""
        with self._lock:
            self._keep(key, value)

    def get_or_put(self, key: Key, make: Callable[[], Value]) -> Value:
        """Return the value for a key; if the key is missing, create the value with `make` and store it."""
        with self._lock:
            value = self._kept[key] if key in self._kept else make()
            self._keep(key, value)
            return value

    def _keep(self, key: Key, value: Value) -> None:
        self._kept[key] = value
        self._kept.move_to_end(key)
        while len(self._kept) > self._size:
            self._kept.popitem(last=False)
