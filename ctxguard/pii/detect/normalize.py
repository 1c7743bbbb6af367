r"""See a text as its reader does: full-width digits, odd dashes, invisible characters and escapes folded away.

Rules are written for plain text. A `View` is that plain text, with the way back to the offsets of the original, so
that `４１１１…`, `jane\u0040x.org`, `jane%40x.org`, `jane&#64;x.org` and a number cut by zero-width spaces are found
where they stand.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from html import unescape
from typing import Final

from ctxguard.pii.placeholders import Trust, blank_placeholders
from ctxguard.pii.spans import Span

__all__ = ["View", "view_of"]

_INVISIBLE: Final = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b\u200c\u200d\u200e\u200f\u202a\u202b\u202c\u202d\u202e"
    "\u2060\u2061\u2062\u2063\u2064\u2066\u2067\u2068\u2069\ufe0e\ufe0f\ufeff"
)
_DASHES: Final = "\u2010\u2011\u2012\u2013\u2014\u2015\u2212\ufe58\ufe63\uff0d\u30fc"
_SPACES: Final = "\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000"
# Of the same length as the blanks it becomes; else the letter would be glued to what follows.
_LINE_ESCAPES: Final = (r"\n", r"\t", r"\r", r"\b", r"\f")
_ASCII: Final = bytes(range(128))
_UNSEEN: Final = frozenset(_INVISIBLE).union(map(chr, range(0xE0000, 0xE01F0)))
_NAMES: Final = "nbsp|commat|period|hyphen|dash|plus|colon|sol|lowbar|lpar|rpar"
# JSON and program texts, URLs, HTML: the sign of an escape, and the whole of it.
_ESCAPES: Final = (
    ("\\", re.compile(r"\\(?:u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2})")),
    ("%", re.compile(r"%[2-7][0-9a-fA-F]")),
    ("&", re.compile(rf"&(?:#\d{{2,5}}|#[xX][0-9a-fA-F]{{2,5}}|{_NAMES});")),
)
# What follows the sign of an escape; nothing follows an invisible character.
_ESCAPED: Final = (
    r"(?:(?<=\\)u(?P<u>[0-9a-fA-F]{4})|(?<=\\)x(?P<x>[0-9a-fA-F]{2})|(?<=%)(?P<url>[2-7][0-9a-fA-F])"
    rf"|(?<=&)(?P<name>#\d{{2,5}}|#[xX][0-9a-fA-F]{{2,5}}|{_NAMES});|(?<![\\%&]))"
)


class View:
    """Hold a text as rules read it, placeholders in it blanked, and the forms in which literals are looked for.

    Args:
        text: the normalized text, as long as the original.

    Attributes:
        text: the text.
        plain: the text in Latin-1, with `?` for what has no place there.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.plain = text.encode("latin-1", "replace")
        self._forms: dict[bytes, str] = {}

    def form(self, table: bytes) -> str:
        """Return the text with every character replaced by a table; of the same length, so that places are the same."""
        form = self._forms.get(table)
        if form is None:
            form = self._forms[table] = self.plain.translate(table).decode("latin-1")
        return form

    def originals(self, spans: Iterable[Span]) -> tuple[Span, ...]:
        """Return spans of this view as spans of the original text."""
        return tuple(spans)


class _Shortened(View):
    """Hold a text that is shorter than the original, and where its characters came from.

    Args:
        text: the folded text.
        cuts: offsets in the folded text at which something was left out or an escape was read.
        ends: offset in the original right after each cut.
        escapes: how many characters of the original a character of the folded text was written with, by its offset,
            where that is more than one.
    """

    def __init__(self, text: str, cuts: Sequence[int], ends: Sequence[int], escapes: Mapping[int, int]) -> None:
        super().__init__(text)
        self._cuts = cuts
        self._ends = ends
        self._escapes = escapes

    def originals(self, spans: Iterable[Span]) -> tuple[Span, ...]:
        return tuple(map(self._original, spans))

    def _original(self, span: Span) -> Span:
        last = span.end - 1
        end = self._place(last) + self._escapes.get(last, 1)
        return Span(self._place(span.start), end, span.label, span.score)

    def _place(self, offset: int) -> int:
        """Return where a character begins in the original."""
        number = bisect_right(self._cuts, offset) - 1
        return offset if number < 0 else self._ends[number] + offset - self._cuts[number]


def view_of(text: str, trusts: Trust | None = None) -> View:
    """Return the view of a text; costs next to nothing where it is ASCII without a sign of an escape or a placeholder.

    Args:
        text: the text.
        trusts: see `blank_placeholders`.
    """
    if text.isascii() and not ("\\" in text or "%" in text or "&" in text or "<" in text or "[" in text):
        return View(text)
    folded = blank_placeholders(text, trusts)
    if "\\" in folded:
        for escape in _LINE_ESCAPES:
            folded = folded.replace(escape, "  ")
    unseen = ""
    if not text.isascii():
        folded, unseen = _plainer(folded)
    is_escaped = _is_escaped(folded)
    return _shortened(folded, _removed(unseen, is_escaped=is_escaped)) if unseen or is_escaped else View(folded)


def _is_escaped(text: str) -> bool:
    for sign, escape in _ESCAPES:  # noqa: SIM110 - half the time of any()
        if sign in text and escape.search(text) is not None:
            return True
    return False


def _plainer(text: str) -> tuple[str, str]:
    """Return a text with plain characters for those that stand for them, and which invisible ones are left in it."""
    beyond = set(text.encode("utf-8", "surrogatepass").translate(None, _ASCII).decode("utf-8", "surrogatepass"))
    table = _folding()
    for char in beyond & table.keys():
        text = text.replace(char, table[char])
    return text, "".join(sorted(beyond & _UNSEEN))


@lru_cache(maxsize=256)
def _removed(unseen: str, *, is_escaped: bool) -> re.Pattern[str]:
    """Return what finds some invisible characters, and escapes; few characters are looked for faster than all."""
    return re.compile(rf"[{unseen}\\%&]{_ESCAPED}" if is_escaped else f"[{unseen}]")


def _shortened(text: str, removed: re.Pattern[str]) -> View:
    """Leave out what is invisible and read escapes as the characters they stand for."""
    pieces: list[str] = []
    cuts: list[int] = []
    ends: list[int] = []
    escapes: dict[int, int] = {}
    done = size = 0
    for match in removed.finditer(text):
        start, end = match.span()
        pieces.append(text[done:start])
        size += start - done
        done = end
        if char := _meant(match):
            pieces.append(char)
            cuts.append(size)
            ends.append(start)
            escapes[size] = end - start
            size += 1
        cuts.append(size)
        ends.append(end)
    pieces.append(text[done:])
    return _Shortened("".join(pieces), cuts, ends, escapes)


def _meant(match: re.Match[str]) -> str:
    """Return the character that an escape stands for, folded; none for what is not seen."""
    if match.lastgroup is None:
        return ""
    written = match[match.lastgroup]
    char = unescape(f"&{written};") if match.lastgroup == "name" else chr(int(written, 16))
    return "" if char in _UNSEEN or len(char) > 1 else _folding().get(char, char)


@lru_cache(maxsize=1)
def _folding() -> Mapping[str, str]:
    """Map every character that stands for one ASCII digit, letter, dash, space or sign to it, one to one.

    Circled, small, full-width and mathematical ones are; superscripts are not: they are notes beside a number.

    Digits of a script come in tens that begin at a code ending in 0 or 6; mathematical ones follow each other.
    """
    table = dict.fromkeys(_DASHES, "-") | dict.fromkeys(_SPACES, " ")
    for zero in (*range(0x0660, 0x1FC00, 16), *range(0x0666, 0x1FC00, 16), *range(0x1D7CE, 0x1D800, 10)):
        if unicodedata.decimal(chr(zero), None) == 0:
            table |= {chr(zero + digit): str(digit) for digit in range(10)}
    for code in (*range(0x2460, 0x24EA), *range(0xFE50, 0xFE6C), *range(0xFF01, 0xFF5F), *range(0x1D400, 0x1D800)):
        plain = unicodedata.normalize("NFKC", chr(code))
        if len(plain) == 1 and plain.isascii():
            table.setdefault(chr(code), plain)
    # `re` takes these for those where case is ignored
    return table | {"\u0131": "i", "\u0130": "I", "\u017f": "s", "\u212a": "K"}
