"""Remember conversations step by step, so that a text that was masked in its place before is not masked again.

What a text becomes in a session that numbers its own values depends on the texts before it alone. So each text leads
from one step to the next, and a conversation that comes again walks steps that are there; where it goes another way,
a new branch begins.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from ctxguard.pii.pseudonyms import MemoryPseudonyms

__all__ = ["Step", "Steps"]

Key: TypeAlias = tuple[str, bool]
"""A text, and whether placeholders in it are escaped."""


class Step:
    """Hold where a conversation stands after one of its texts.

    Attributes:
        masked: what the text became.
        pseudonyms: what gave its placeholders. It may have given more since: the first `count` are this step's.
        count: how many placeholders were given up to here.
        literals: placeholders that a person or a tool spelled up to here.
        following: the steps that follow, by their texts.
    """

    __slots__ = ("count", "following", "literals", "masked", "pseudonyms")

    def __init__(self, masked: str, pseudonyms: MemoryPseudonyms, literals: frozenset[str]) -> None:
        self.masked = masked
        self.pseudonyms = pseudonyms
        self.count = len(pseudonyms)
        self.literals = literals
        self.following: dict[Key, Step] = {}


class Steps:
    """Hold the first step of all conversations. Bounded: when it is full it starts anew. Safe to share.

    Args:
        is_found: see `MemoryPseudonyms`.
        max_chars: characters of texts that are remembered.
    """

    def __init__(self, *, is_found: Callable[[str], object], max_chars: int = 16_000_000) -> None:
        self._is_found = is_found
        self._max_chars = max_chars
        self._size = 0
        self.first = self._nothing_yet()

    def after(
        self, step: Step, key: Key, masked: str, pseudonyms: MemoryPseudonyms, literals: frozenset[str] = frozenset()
    ) -> Step:
        """Return the new step that a text leads to, and remember it."""
        self._size += len(key[0]) + len(masked) + 256
        if self._size > self._max_chars:
            self.first, self._size = self._nothing_yet(), 0
        following = step.following[key] = Step(masked, pseudonyms, literals)
        return following

    def _nothing_yet(self) -> Step:
        return Step("", MemoryPseudonyms(is_found=self._is_found), frozenset())
