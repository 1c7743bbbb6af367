"""Find listed values in a string, in a time that does not depend on the number of values."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from ctxguard.pii.spans import Span

_FIRST: Final = re.compile(r"[^\W_]+|.", re.DOTALL)
_GAP: Final = re.compile(r"[\s_+*~`>|-]{1,16}")
"""Matches what may separate two words of a value: white space, line ends, marks of quoted lines and of emphasis, table
borders, and the separators of file names."""


class Listed:
    """Finds given values as whole words, in any case.

    A space in a value matches whatever may separate words in wrapped, quoted, or formatted text and in file names. If a
    value begins or ends with punctuation, any character may precede or follow it there.

    Args:
        values: Pairs of a value and its label.
    """

    def __init__(self, values: Iterable[tuple[str, str]]) -> None:
        self._by_first: dict[str, list[tuple[list[str], str]]] = {}
        for value, label in values:
            words = lower(value).split()
            first = _FIRST.match(words[0]) if words else None
            self._by_first.setdefault(first[0] if first else "", []).append((words, label))
        signs = "".join(re.escape(first) for first in self._by_first if not first[:1].isalnum())
        self._words = re.compile(r"(?<!\w)[^\W_]+" + (f"|[{signs}]" if signs else ""))

    def find(self, text: str) -> Iterator[Span]:
        """Yield a span for each occurrence of a value."""
        lowered = lower(text)
        for match in self._words.finditer(lowered):
            for words, label in self._by_first.get(match[0], ()):
                end = _end_of(words, lowered, match.start())
                behind = lowered[end : end + 1]
                is_part = words[-1][-1].isalnum() and (behind.isalnum() or behind == "_")
                if end and not is_part:
                    yield Span(match.start(), end, label)


def _end_of(words: Sequence[str], text: str, start: int) -> int:
    """Return the end offset of a sequence of words that begins at `start`; 0 if the words are not there."""
    end = start
    for word in words:
        if end > start:
            gap = _GAP.match(text, end)
            end = gap.end() if gap else end
        if not text.startswith(word, end):
            return 0
        end += len(word)
    return end


def lower(text: str) -> str:
    """Convert a string to lower case without changing its length.

    The few letters whose lower case would be longer stay unchanged.
    """
    lowered = text.lower()
    if len(lowered) == len(text):
        return lowered
    return "".join(low if len(low := char.lower()) == 1 else char for char in text)
