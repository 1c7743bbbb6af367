"""Find the distinctive strings of a text: the paths, ids, numbers and names that a later step would have to repeat."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from ctxguard.content.views import Count

__all__ = ["fitting_names", "names_in", "rarest_names"]

_HEAD: Final = 49_152
_TAIL: Final = 16_384
_LONGEST: Final = 120
_RUN: Final = re.compile(r"[\w./@:#$-]{4,}")
_MARKED: Final = re.compile(r"\d|_|/|.[A-Z]|.\..")
_ENDS: Final = ".:-/"
_PLACEHOLDER: Final = "REDACTED_"
"""What masking leaves of a value: it names nothing."""
_OPENS: Final = ".-"
_WORD: Final = re.compile(r"[^\W_]")


def ends_of(text: str) -> str:
    """Return the first 48 K and the last 16 K characters of a text, or all of a shorter one."""
    if len(text) <= _HEAD + _TAIL:
        return text
    return f"{text[:_HEAD]}\n{text[-_TAIL:]}"


def names_in(text: str, most: int | None = None) -> tuple[str, ...]:
    """Return the distinctive strings of a text, each once, in the order in which they first appear.

    A distinctive string has 4 to 120 letters, digits and characters of `_./@:#$-`, and contains a digit, `_`, `/`, an
    inner capital (`PUNERT` may be an id) or an inner dot. Of a text above 64 K characters, the first 48 K and the last
    16 K are searched, so the cost of any text is bounded.

    Args:
        text: any text.
        most: return at most so many; None means all.
    """
    found: dict[str, None] = {}
    for match in _RUN.finditer(ends_of(text)):
        run = match[0].rstrip(_ENDS).lstrip(_OPENS)
        if 4 <= len(run) <= _LONGEST and _is_distinctive(run):
            found[run] = None
            if len(found) == most:
                break
    return tuple(found)


def _is_distinctive(run: str) -> bool:
    """Tell a name from a word, a run of punctuation and a placeholder. Capitals alone may be an id (`PUNERT`)."""
    if run.startswith(_PLACEHOLDER):
        return False
    return _MARKED.search(run) is not None and _WORD.search(run) is not None


def rarest_names(text: str, most: int) -> tuple[str, ...]:
    """Return the distinctive strings that appear least often in a text, in the order in which they first appear.

    Args:
        text: any text.
        most: return at most so many.
    """
    names = names_in(text)
    if len(names) <= most:
        return names
    seen = dict.fromkeys(names, 0)
    for match in _RUN.finditer(ends_of(text)):
        run = match[0].rstrip(_ENDS).lstrip(_OPENS)
        if run in seen:
            seen[run] += 1
    chosen = set(sorted(names, key=seen.__getitem__)[:most])
    return tuple(name for name in names if name in chosen)


def fitting_names(names: Iterable[str], max_tokens: int, count: Count) -> str:
    """Return as many of the names, separated by spaces, as fit into `max_tokens`."""
    chosen: list[str] = []
    for name in names:
        max_tokens -= count(f" {name}")
        if max_tokens < 0:
            break
        chosen.append(name)
    return " ".join(chosen)
