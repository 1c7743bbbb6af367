"""Remember what was worked out over a history, for the next call, whose history begins with the very same objects."""

from __future__ import annotations

import os
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from operator import is_
from threading import Lock
from typing import Final, Generic, TypeVar

__all__ = ["PrefixMemory", "Remembered"]

V = TypeVar("V")

_LOOK_BACK: Final = 64
"""How many of the latest items may be new since what is looked for was remembered."""
_ENTRIES: Final = 128


@dataclass(frozen=True, slots=True)
class Remembered(Generic[V]):
    """Hold what was worked out over a sequence.

    Attributes:
        items: a sequence that begins with what it covers, as the one that was asked for does.
        length: how many items it covers.
        value: what was worked out.
        before: the entry that this one went on from, if it is still held.
    """

    items: tuple[object, ...]
    length: int
    value: V
    before: Slot | None = None


Slot = tuple[int, int, Hashable]


class PrefixMemory(Generic[V]):
    """Remember values by sequences that are compared item by item by identity, in bounded memory.

    A history grows at its end, so what was worked out over the last call's history holds for the beginning of this
    one's. What is remembered changes speed, never results: a value is only found for the very objects it was worked
    out from. The latest two entries of a growing sequence are held, so that a retry from the last step finds one.
    Safe to share between threads and sessions; copies and pickles start with an empty one.

    Args:
        most: items that all entries together may hold; the least recently used go first, the latest one stays.
    """

    def __init__(self, *, most: int = 100_000) -> None:
        self.most = most
        self._entries: dict[Slot, Remembered[V]] = {}
        self._size = 0
        self._lock = Lock()
        self._pid = os.getpid()

    def __reduce__(self) -> tuple[partial[PrefixMemory[V]], tuple[()]]:
        return partial(PrefixMemory, most=self.most), ()

    def find(
        self, items: Sequence[object], variant: Hashable = None, *, begins_with: Sequence[object] = ()
    ) -> Remembered[V] | None:
        """Return the longest entry whose items are the first of these, or None.

        Args:
            items: at most 64 of them may be new since the entry was kept.
            variant: what else the value depends on; only entries kept with an equal one are found.
            begins_with: a sequence that these items are known to begin with; an entry of that very one needs no look.
        """
        entries = self._entries
        for length in range(len(items), max(0, len(items) - _LOOK_BACK), -1):
            slot = _slot(items, length, variant)
            found = entries.get(slot)
            if found is None:
                continue
            if found.items is begins_with or all(map(is_, islice(found.items, length), items)):
                self._touch(slot)
                return found
        return None

    def take(
        self, items: Sequence[object], variant: Hashable = None, *, begins_with: Sequence[object] = ()
    ) -> Remembered[V] | None:
        """Return what `find` does and let go of it: who takes a value may change it, and has it alone."""
        found = self.find(items, variant, begins_with=begins_with)
        if found is None:
            return None
        slot = _slot(found.items, found.length, variant)
        with self._alone():
            if self._entries.get(slot) is not found:
                return None  # another thread was faster
            self._drop(slot)
        return found

    def keep(
        self,
        items: Sequence[object],
        value: V,
        variant: Hashable = None,
        *,
        length: int | None = None,
        after: Remembered[V] | None = None,
    ) -> None:
        """Remember a value.

        Args:
            items: what it was worked out from.
            value: must not be changed any more.
            variant: what else it depends on.
            length: how many of the items it was worked out from; None means all. None at all are not remembered.
            after: the entry that was found for these items, whose own predecessor is let go.
        """
        length = len(items) if length is None else length
        if not length:
            return
        slot = _slot(items, length, variant)
        with self._alone():
            before = None
            if after is not None:
                self._drop(after.before)
                before = _slot(after.items, after.length, variant)
            self._drop(slot)
            self._entries[slot] = Remembered(tuple(items), length, value, None if before == slot else before)
            self._size += length
            while len(self._entries) > 1 and (self._size > self.most or len(self._entries) > _ENTRIES):
                self._drop(next(iter(self._entries)))

    def __len__(self) -> int:
        return self._size

    def clear(self) -> None:
        """Forget everything."""
        with self._alone():
            self._entries.clear()
            self._size = 0

    def _alone(self) -> Lock:
        """Return the lock; a new one after a fork: what held the other one may not have come along to let it go."""
        if self._pid != os.getpid():
            self._lock, self._pid = Lock(), os.getpid()
        return self._lock

    def _touch(self, slot: Slot) -> None:
        with self._alone():
            found = self._entries.pop(slot, None)
            if found is not None:
                self._entries[slot] = found

    def _drop(self, slot: Slot | None) -> None:
        gone = None if slot is None else self._entries.pop(slot, None)
        if gone is not None:
            self._size -= gone.length


def _slot(items: Sequence[object], length: int, variant: Hashable) -> Slot:
    return (id(items[length - 1]), length, variant)
