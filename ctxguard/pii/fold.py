r"""See a text as its reader does: full-width digits, odd dashes, invisible characters and escapes folded away.

Rules are written for plain text. A `View` is that plain text, with the way back to the offsets of the original, so
that `４１１１…`, `jane\u0040x.org` and a number cut by zero-width spaces are found where they stand.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Mapping
from functools import lru_cache
from typing import Final, NamedTuple

from ctxguard.pii.placeholders import blank_placeholders
from ctxguard.pii.spans import Span

__all__ = ["View", "view_of"]

_INVISIBLE: Final = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b\u200c\u200d\u200e\u200f\u202a\u202b\u202c\u202d\u202e"
    "\u2060\u2061\u2062\u2063\u2064\u2066\u2067\u2068\u2069\ufe0e\ufe0f\ufeff"
)
_DASHES: Final = "\u2010\u2011\u2012\u2013\u2014\u2015\u2212\ufe58\ufe63\uff0d\u30fc"
_SPACES: Final = "\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000"
_LINE_ESCAPES: Final = ("\\n", "\\t", "\\r", "\\b", "\\f")
"""Of the same length as the blanks they become; else the letter would be glued to what follows."""
_ESCAPED: Final = re.compile(r"\\u[0-9a-fA-F]{4}")
_ESCAPE: Final = 6
_ASTRAL: Final = "\U00010000"
_STYLED_DIGITS: Final = "\U0001d7ce-\U0001d7ff"
"""The only range beyond the first plane: single characters there would make the class slow."""
_REMOVED: Final = re.compile(rf"[{_INVISIBLE}\\](?:(?<=\\)u([0-9a-fA-F]{{4}})|(?<!\\))")
"""Begins with one class, so that it is searched at the speed of one."""


class View(NamedTuple):
    """Hold a text as rules read it, and where its characters came from.

    Attributes:
        text: the folded text; placeholders in it are blanked.
        cuts: offsets in the folded text at which something was left out or an escape was read; empty where offsets
            are those of the original.
        ends: offset in the original right after each cut.
    """

    text: str
    cuts: tuple[int, ...] = ()
    ends: tuple[int, ...] = ()

    def original(self, span: Span) -> Span:
        """Return a span of this view as a span of the original text."""
        if not self.cuts:
            return span
        return Span(self._place(span.start), self._place(span.end - 1, after=True), span.label, span.score)

    def _place(self, offset: int, *, after: bool = False) -> int:
        """Return where a character begins, or with `after` where it ends, in the original."""
        number = bisect_right(self.cuts, offset) - 1
        place = offset if number < 0 else self.ends[number] + offset - self.cuts[number]
        if not after:
            return place
        following = bisect_right(self.cuts, offset + 1) - 1
        escaped = following > number and self.cuts[following] == offset + 1 and self.ends[following] - place == _ESCAPE
        return place + (_ESCAPE if escaped else 1)


def view_of(text: str) -> View:
    """Return the view of a text; costs next to nothing where it is plain ASCII."""
    folded = blank_placeholders(text)
    escaped = "\\" in folded
    if escaped:
        for escape in _LINE_ESCAPES:
            folded = folded.replace(escape, "  ")
    if not text.isascii():
        table, notable = _folding()
        if notable.search(folded) is not None:
            return _plainer(folded, set(notable.findall(folded)), table)
    return _shortened(folded) if escaped and _ESCAPED.search(folded) is not None else View(folded)


def _plainer(text: str, strange: set[str], table: Mapping[str, str]) -> View:
    """Return the view of a text that holds characters which stand for plain ones, or are not seen at all."""
    for char in strange & table.keys():
        text = text.replace(char, table[char])
    return View(text) if strange <= table.keys() and _ESCAPED.search(text) is None else _shortened(text)


def _shortened(text: str) -> View:
    r"""Leave out what is invisible and read `\uXXXX` as the character it stands for."""
    pieces: list[str] = []
    cuts: list[int] = []
    ends: list[int] = []
    done = size = 0
    for match in _REMOVED.finditer(text):
        pieces.append(text[done : match.start()])
        size += match.start() - done
        done = match.end()
        if match[1] is not None:
            char = chr(int(match[1], 16))
            pieces.append(_folding()[0].get(char, char))
            cuts.append(size)
            ends.append(match.start())
            size += 1
        cuts.append(size)
        ends.append(done)
    pieces.append(text[done:])
    return View("".join(pieces), tuple(cuts), tuple(ends))


@lru_cache(maxsize=1)
def _folding() -> tuple[dict[str, str], re.Pattern[str]]:
    """Map every character that stands for one ASCII digit, letter, dash, space or sign to it, one to one.

    Digits of a script come in tens that begin at a code ending in 0 or 6; mathematical ones follow each other.
    """
    table = dict.fromkeys(_DASHES, "-") | dict.fromkeys(_SPACES, " ")
    for zero in (*range(0x0660, 0x1FC00, 16), *range(0x0666, 0x1FC00, 16), *range(0x1D7CE, 0x1D800, 10)):
        if unicodedata.decimal(chr(zero), None) == 0:
            table |= {chr(zero + digit): str(digit) for digit in range(10)}
    for code in range(0xFF01, 0xFF5F):
        table.setdefault(chr(code), chr(code - 0xFEE0))
    near = "".join(re.escape(char) for char in table if char < _ASTRAL)
    return table, re.compile(f"[{near}{_INVISIBLE}{_STYLED_DIGITS}]")
