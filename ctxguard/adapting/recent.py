"""A cache of recently used values."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from threading import Lock
from typing import Generic, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


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
