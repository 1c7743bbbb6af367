"""See a text as its reader does: full-width digits, odd dashes, invisible characters and escapes folded away.

Rules are written for plain text. A `View` is that plain text, with the way back to the offsets of the original, so
that `４１１１…`, `jane\\u0040x.org` and a number cut by zero-width spaces are found where they stand.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from ctxguard.pii.placeholders import blank_placeholders
from ctxguard.pii.spans import Span

__all__ = ["View", "view_of"]

_INVISIBLE: Final = "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b\u200c\u200d\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2060\u2061\u2062\u2063\u2064\u2066\u2067\u2068\u2069\ufe0e\ufe0f\ufeff"
_DASHES: Final = "\u2010\u2011\u2012\u2013\u2014\u2015\u2212\ufe58\ufe63\uff0d\u30fc"
_SPACES: Final = "\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000"
_REMOVED: Final = re.compile(rf"[{_INVISIBLE}]|\\u([0-9a-fA-F]{{4}})")


@dataclass(frozen=True, slots=True)
class View:
    """Hold a text as rules read it, and where its characters came from.

    Attributes:
        text: the folded text; placeholders in it are blanked.
        starts: offset in the original of every character, one more for the end; None where the offsets are the same.
    """

    text: str
    starts: tuple[int, ...] | None = None

    def original(self, span: Span) -> Span:
        """Return a span of this view as a span of the original text."""
        if self.starts is None:
            return span
        last = self.starts[span.end - 1] if span.end else 0
        return Span(self.starts[span.start], max(last + 1, self._end(span.end)), span.label, span.score)

    def _end(self, end: int) -> int:
        """Return where the last character ends; an escape is six characters long."""
        starts = self.starts or ()
        return min(starts[end], starts[end - 1] + 6) if end else 0


def view_of(text: str) -> View:
    """Return the view of a text; costs next to nothing where it is plain ASCII."""
    blanked = blank_placeholders(text)
    plain = text.isascii()
    folded = blanked if plain else blanked.translate(_folding())
    if "\\u" not in folded and (plain or not _REMOVED.search(folded)):
        return View(folded)
    return _shortened(folded)


def _shortened(text: str) -> View:
    pieces: list[str] = []
    starts: list[int] = []
    done = 0
    for match in _REMOVED.finditer(text):
        pieces.append(text[done : match.start()])
        starts.extend(range(done, match.start()))
        done = match.end()
        if match[1] is not None:
            pieces.append(chr(int(match[1], 16)).translate(_folding()))
            starts.append(match.start())
    pieces.append(text[done:])
    starts.extend(range(done, len(text) + 1))
    return View("".join(pieces), tuple(starts))


@lru_cache(maxsize=1)
def _folding() -> dict[int, str]:
    """Map every character that stands for one ASCII digit, letter, dash, space or sign to it, one to one."""
    table = {ord(char): "-" for char in _DASHES} | {ord(char): " " for char in _SPACES}
    for code in range(0x0660, 0x1FC00):
        char = chr(code)
        if (digit := unicodedata.decimal(char, None)) is not None:
            table[code] = str(digit)
    for code in range(0xFF01, 0xFF5F):
        table.setdefault(code, chr(code - 0xFEE0))
    return table
