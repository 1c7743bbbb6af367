"""Cache a function by the identity of its argument."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

Given = TypeVar("Given")
Made = TypeVar("Made")


class ByIdentity(Generic[Given, Made]):
    """Call a function once for each object, and cache its results."""

    def __init__(self, make: Callable[[Given], Made]) -> None:
        self._make = make
        self._known: dict[int, tuple[Given, Made]] = {}

    def __call__(self, given: Given) -> Made:
        """Return the function's result for an object."""
        known = self._known.get(id(given))
        if known is None:  # the object is referenced, so that its id stays unique
            known = self._known[id(given)] = (given, self._make(given))
        return known[1]
