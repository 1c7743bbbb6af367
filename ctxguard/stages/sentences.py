"""Split what people say into sentences, and find what they quote."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Final

from ctxguard.history.phrases import listed

_ENDS: Final = re.compile(r"(?<=[.!?…])([\"'”’»)\]]*)\s+|(?<=[。！？])([”’」』）]*)|\n+")
_QUOTED: Final = re.compile(
    r"“[^”\n]{1,200}”|„[^“”\n]{1,200}[“”]|«[^»\n]{1,200}»|\"[^\"\n]{1,200}\"|‘[^’\n]{1,200}’(?!\w)|(?<!\w)'[^\n]{1,200}?'(?!\w)"
)
"""Words in quotation marks, on one line and short, so that a mark that is never closed quotes nothing."""
_LAST_WORD: Final = re.compile(r"(?<![\w.])(\w+(?:\.\w+)*)\.")
_LONGEST_WORD: Final = 8
"""Number of characters before a period in which an abbreviation is searched."""


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a text, in order, without the spaces between them; some may be empty."""
    return (text[start:end] for start, end in sentence_spans(text))


def sentence_spans(text: str) -> Iterator[tuple[int, int]]:
    """Yield where each sentence starts and ends.

    A sentence ends at a line break, and at a mark such as a period, with the quotation marks and brackets that close
    there. A period after an abbreviation or an initial ends none, nor does a mark inside a quotation, or at its end if
    the next letter is a small one.
    """
    quoted, place, start = quoted_spans(text), 0, 0
    for match in _ENDS.finditer(text):
        end = match.end(match.lastindex) if match.lastindex else match.start()
        if match.lastindex:
            while place < len(quoted) and quoted[place][1] < end:
                place += 1
            is_quoted = place < len(quoted) and quoted[place][0] < end
            goes_on = is_quoted and (end < quoted[place][1] or text[match.end() : match.end() + 1].islower())
            if goes_on or _is_abbreviated(text, end):
                continue
        yield start, end
        start = match.end()
    yield start, len(text)


def quoted_spans(text: str) -> Sequence[tuple[int, int]]:
    """Return where the quotations of a text start and end, with their marks, in order."""
    return [match.span() for match in _QUOTED.finditer(text)]


def _is_abbreviated(text: str, end: int) -> bool:
    """Return whether a text has an abbreviation or an initial, such as the `J.` of a name, right before `end`."""
    begin = max(0, end - _LONGEST_WORD - 1)
    last = None if text[end - 1] != "." else _LAST_WORD.fullmatch(text[begin:end].rsplit(maxsplit=1)[-1])
    if last is None:
        return False
    is_initial = len(last[1]) == 1 and last[1].isupper() and last[1] != "I"
    return is_initial or last[1].lower() in _abbreviations()


@cache
def _abbreviations() -> frozenset[str]:
    return frozenset(listed("abbreviations"))
