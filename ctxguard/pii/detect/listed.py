"""Find listed values in a text, however many there are."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from ctxguard.pii.spans import Span

_FIRST: Final = re.compile(r"[^\W_]+|.", re.DOTALL)


class Listed:
    """Find values in any case, as whole words; next to a value's own punctuation, any character may follow.

    A text is searched word by word: the time does not depend on the number of values.

    Args:
        values: the values, each with its label.
    """

    def __init__(self, values: Iterable[tuple[str, str]]) -> None:
        self._by_first: dict[str, list[tuple[str, str]]] = {}
        for value, label in values:
            lowered = lower(value)
            first = _FIRST.match(lowered)
            self._by_first.setdefault(first[0] if first else "", []).append((lowered, label))
        signs = "".join(re.escape(first) for first in self._by_first if not first[:1].isalnum())
        self._words = re.compile(r"(?<!\w)[^\W_]+" + (f"|[{signs}]" if signs else ""))

    def find(self, text: str) -> Iterator[Span]:
        """Yield the places of the values."""
        lowered = lower(text)
        for match in self._words.finditer(lowered):
            for value, label in self._by_first.get(match[0], ()):
                start, end = match.start(), match.start() + len(value)
                behind = lowered[end : end + 1]
                is_part = value[-1].isalnum() and (behind.isalnum() or behind == "_")
                if lowered.startswith(value, start) and not is_part:
                    yield Span(start, end, label)


def lower(text: str) -> str:
    """Return a text in lower case, of the same length: few letters become two."""
    lowered = text.lower()
    if len(lowered) == len(text):
        return lowered
    return "".join(low if len(low := char.lower()) == 1 else char for char in text)
