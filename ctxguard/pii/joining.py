"""Search many short texts in one go: the strings of a JSON text would take longer one by one than all of it."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from typing import Final

from ctxguard.pii.prepared import WINDOW
from ctxguard.pii.spans import Span

__all__ = ["touched"]

_BORDER: Final = "\n" * WINDOW
"""As wide as the words before a candidate reach: no text is read in the light of the one before."""
_AT_ONCE: Final = 2_000
"""Texts that are joined at most, so that a large JSON text is not there twice."""


def touched(texts: Iterable[str], find: Callable[[str], Sequence[Span]]) -> set[str]:
    """Return the texts in which a rule may find something; in all others none does.

    Args:
        texts: short texts.
        find: finds by rules that are `joinable`.
    """
    waiting = list(dict.fromkeys(texts))
    found: set[str] = set()
    for first in range(0, len(waiting), _AT_ONCE):
        found |= _touched(waiting[first : first + _AT_ONCE], find)
    return found


def _touched(texts: Sequence[str], find: Callable[[str], Sequence[Span]]) -> set[str]:
    spans = find(_BORDER.join(texts))
    if not spans:
        return set()
    starts = list(accumulate((len(text) + len(_BORDER) for text in texts), initial=0))
    touches: set[str] = set()
    for span in spans:
        touches.update(texts[bisect_right(starts, span.start) - 1 : bisect_left(starts, span.end)])
    return touches
