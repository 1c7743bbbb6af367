"""Search many short texts in one go: the strings of a JSON text would take longer one by one than all of it."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from typing import Final

from ctxguard.pii.prepared import WINDOW
from ctxguard.pii.spans import Span

__all__ = ["is_local", "touched"]

_BORDER: Final = "\n" * WINDOW
"""As wide as the words before a candidate reach: no text is read in the light of the one before."""
_AT_ONCE: Final = 2_000
"""Texts that are joined at most, so that a large JSON text is not there twice."""

_PART: Final = re.compile(r"\\.|\[\^?|\(\?(?:P?<(?![=!])|[=!<]|:|.)|.", re.DOTALL)
_ELSEWHERE: Final = frozenset("^$\n\r") | {"[^"}
"""What looks for the edge of a text or runs on over the end of a line."""
_HERE: Final = frozenset({"(?:", "(?P<", r"\d", r"\w", r"\S", r"\b", r"\B"})
"""Groups and escapes that do neither; so do escaped signs."""


def is_local(expression: str) -> bool:
    """Tell whether an expression surely matches the same in a text that stands alone and in one between blank lines.

    It has no `^` and no `$`, looks neither ahead nor behind, has no flags of its own, and matches within one line.
    """
    return all(_is_here(part) for part in _PART.findall(expression))


def _is_here(part: str) -> bool:
    if part.startswith("(?") or (part[0] == "\\" and part[-1].isalnum()):
        return part in _HERE
    return part not in _ELSEWHERE


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
