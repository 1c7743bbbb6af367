r"""Normalize a text to what a reader sees: full-width digits, dashes, invisible characters, escapes.

Rules are written for plain text. A `PlainText` is that plain text, with a mapping of its offsets to the original.
Therefore, rules find `４１１１…`, `jane\u0040x.org`, `jane%40x.org`, `jane&#64;x.org`, and a number that contains
zero-width spaces, and report their place in the original.
"""

from __future__ import annotations

import math
import re
import unicodedata
from bisect import bisect_right
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import cached_property, lru_cache
from html import unescape
from itertools import chain, pairwise
from typing import Any, Final, Literal, NamedTuple

from ctxguard.pii.placeholders import (
    OPENED,
    PSEUDONYM,
    SPELLED,
    Trust,
    blank_placeholders,
    pseudonyms_of,
    without_lookalikes,
)
from ctxguard.pii.spans import Span

# Default_Ignorable_Code_Point of Unicode 16, which readers are not shown, and then the other format characters (Cf).
_UNSEEN: Final = frozenset(
    chr(code)
    for first, last in (
        *((0x00AD, 0x00AD), (0x034F, 0x034F), (0x061C, 0x061C), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F)),
        *((0x200B, 0x200F), (0x202A, 0x202E), (0x2060, 0x206F), (0x3164, 0x3164), (0xFE00, 0xFE0F), (0xFEFF, 0xFEFF)),
        *((0xFFA0, 0xFFA0), (0xFFF0, 0xFFF8), (0x1BCA0, 0x1BCA3), (0x1D173, 0x1D17A), (0xE0000, 0xE0FFF)),
        *((0x0600, 0x0605), (0x06DD, 0x06DD), (0x070F, 0x070F), (0x0890, 0x0891), (0x08E2, 0x08E2)),
        *((0xFFF9, 0xFFFB), (0x110BD, 0x110BD), (0x110CD, 0x110CD), (0x13430, 0x1343F)),
    )
    for code in range(first, last + 1)
)
_DEPTH: Final = 3
"""So many escapes within each other are decoded, in any notation: `&amp;#37;40` is an `@` that was escaped three
times."""
_HYPHENS: Final = "\u2010\u2011\u2212\ufe58\ufe63\uff0d"
_DASHES: Final = "\u2012\u2013\u2014\u2015\u30fc"
_SPACES: Final = "\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000"
_ASCII: Final = bytes(range(128))
_REMOVED: Final = "\u200b"  # stands for what is not shown at all
# Characters of which escapes consist, and those that a backslash escapes.
_IN_ESCAPES: Final = frozenset("\\&%#;{}0123456789ABCDEFabcdefgijklmnopqrstuvwxyzUX/<>+()-_.@~")
# The end of a placeholder whose opening bracket may be missing: `EMAIL_1>`.
_NUMBER_ENDS: Final = re.compile(r"_\d\d?(?:>|&gt;)")
# Escapes of one character. A double backslash and `%25` occur if the escape is escaped again, as in JSON inside JSON.
# Punctuation that Markdown escapes counts only within a word (also several in a row) and before a number. Elsewhere, it
# belongs to a regular expression or a path.
# Each expression begins with a literal character, which makes `re` many times faster.
# A reference to a sign without its semicolon, and then digits. Browsers read `&#321111` as one character, which no text
# contains; whoever wrote it meant a space and `1111`. Hexadecimal 20xx may be a dash or a quote.
_OPEN_REFERENCE: Final = (
    r"#(?:3[2-9]|4[0-7]|5[89]|6[0-4]|9[1-6]|12[3-6])(?=\d)(?!\d{0,7};)"
    r"|#[xX](?!20[0-6][0-9a-fA-F](?![0-9a-fA-F]))(?:2[0-9a-fA-F]|3[a-fA-F]|40|5[b-fB-F]|60|7[b-eB-E])(?=[0-9])"
    r"(?![0-9a-fA-F]{0,6};)"
)
_ESCAPED: Final = (
    r"(?<=\\)(?:\\?u(?P<u>[0-9a-fA-F]{4})|\\?[ux]\{(?P<braced>[0-9a-fA-F]{1,8})\}|\\?U(?P<wide>[0-9a-fA-F]{8})"
    r"|(?P<xs>x[c-fC-F][0-9a-fA-F](?:\\x[89abAB][0-9a-fA-F]){1,3})|x(?P<x>[0-9a-fA-F]{2})"
    r"|(?P<mark>(?<!\\\\)(?:[/<>]|[+(](?=\d)|\)(?=[\s.\\-]{0,2}\d)|-(?<=\d\s\\-)(?=\s\d)))"
    r"|\\?(?P<sign>[_.@~+-](?:(?<=[A-Za-z0-9]\\.)|(?<=[A-Za-z0-9]\\\\.)"
    r"|(?<=\\[_.@~+-]\\.)|(?<=\\[_.@~+-]\\\\.))(?=(?:\\{1,2}[_.@~+-]){0,4}[A-Za-z0-9])))"
    rf"|(?<=&)(?P<name>(?:amp;){{0,3}}(?:{_OPEN_REFERENCE}"
    r"|#(?=\d)0{0,99}+\d{0,7};?|#[xX](?=[0-9a-fA-F])0{0,99}+[0-9a-fA-F]{0,6};?"
    r"|[A-Za-z][A-Za-z0-9]{1,31};|lt|gt|amp|quot|nbsp|shy))"
)
# Three octal digits may be an escape of C and JavaScript, or a part of a path.
_OCTAL_ESCAPE: Final = r"(?<=\\)\\?(?P<octal>[0-3][0-7]{2})"
_OCTAL: Final = re.compile(rf"\\{_OCTAL_ESCAPE}")
_PERCENT: Final = (
    r"(?<=%)(?:(?P<urls>(?:25)?[c-fC-F][0-9a-fA-F](?:%(?:25)?[89abAB][0-9a-fA-F]){1,3})"
    r"|(?:25)?(?P<url>[0-7][0-9a-fA-F])|u(?P<unit>[0-9a-fA-F]{4}))"
)
_FORM: Final = re.compile(f"%{_PERCENT}")
# A color or cursor code of a terminal. Its escape character may be written as text (`\033`), or missing.
_CONTROL: Final = r"[0-?]{0,32}[ -/]{0,4}[@-~]"
_BARE: Final = r"(?:\d{1,3}(?:;\d{1,3}){0,5}m(?:\[K)?|m\[K)"
_TERMINAL: Final = re.compile(rf"\[(?:(?:(?<=\x1b\[)|(?<=\^\[\[)|(?<=\\033\[)|(?<=\\e\[)){_CONTROL}|{_BARE})")
_TERMINAL_SIGNS: Final = ("\x1b", "^[", r"\033", r"\e")
# The same codes within a value, where they are removed, and all others that a terminal does not show: links and titles,
# which end at a bell or an escape, and character sets. The first character of each is matched by `_finder`. A link may
# contain no first character of another code, so that each character is read once.
_BELL: Final = r"(?:[\x07\x9c]|(?:\x1b|\\{1,2}(?:u001[bB]|x1[bB]|033|e))\\{1,4}|\\{1,2}(?:u0007|x07|007|a))"
_HIDDEN: Final = rf"[^\x07\x1b\x9b-\x9d\\\n]*+{_BELL}"
_CODE: Final = (
    r"(?P<sequence>(?:(?<=\x1b)|(?<=\\)\\?(?:u001[bB]|x1[bB]|033|e))"
    rf"(?:\[{_CONTROL}|[()][0-9A-Z]|[\]PX^_]{_HIDDEN})"
    rf"|(?:(?<=\x9b)|(?<=\\)\\?(?:u009|x9)[bB]|(?<=\^)\[\[){_CONTROL}|(?<=\x9d){_HIDDEN}"
    rf"|(?<=\[){_BARE})"
)
_SPELLED_CODE: Final = re.compile(r"\\(?:u00[19][bB]|x[19][bB]|(?:033|e)[\[\]PX^_()])")
_LINE_ESCAPES: Final = (r"\n", r"\t", r"\r", r"\b", r"\f")
# Word processors replace hyphens by dashes. A dash between letters or digits, or one with spaces around it within a
# number, may be a hyphen or a dash.
_DASHED: Final = re.compile(rf"[{_DASHES}](?=[0-9A-Za-z(+]| [0-9(])(?:(?<=[0-9A-Za-z)].)|(?<=[0-9)] .))")
# A backslash before a key or a hardware address whose first letter makes the two look like an escape: `\b0:56:…`.
_LETTERED: Final = re.compile(
    r"\\(?<!\\\\)(?=[bf](?:[0-9A-Fa-f]{0,3}[:-]){2}|bc1[a-z0-9]{25}|[bfnrt][a-z0-9]{0,7}[_-](?=\w{0,15}\d)[\w-]{16})"
)
_PLUS: Final = re.compile(r"\+(?<=[0-9A-Z)]\+)[0-9(A-Z]")
# In form data, a plus is a space: between groups of digits, between digits and letters, in an account number, and
# between groups of letters and digits, as in a Medicare number. It is none in latitude and longitude: `+4348+08735`.
_PLUSES: Final = re.compile(
    r"(?<![A-Za-z0-9])(?<![A-Za-z0-9]/)(?!\+?(?:\d{4}\+[01]\d{4}|\d{6}\+[01]\d{6})(?!\d))"
    r"(?:(?:[A-Z]{1,3}\+|\+)?\(?\d{1,6}\)?(?:\+\(?\d{1,6}\)?(?:-\d{1,6})?){1,7}(?:\+[A-Z]{1,2})?"
    r"|[A-Z]{2}\d{2}(?:\+[A-Z0-9]{1,4}){3,8}"
    r"|[A-Z]{0,3}\d[A-Z0-9]{0,3}(?:\+[A-Z]{0,3}\d[A-Z0-9]{0,3}){2,7})(?![A-Za-z0-9@])(?!/[A-Za-z0-9])"
)
# Maximum number of characters before the first plus of a match: six digits in parentheses.
_BEFORE_PLUS: Final = 8


class PlainText:
    """A normalized view of a text, in which placeholders are replaced by NUL characters.

    This class is for views that are as long as the original, so that their offsets are those of the original.

    Args:
        text: The normalized text.

    Attributes:
        text: The normalized text.
        plain: The text in Latin-1, with `?` for all other characters.
        is_whole: False if invisible characters were removed or replaced.
        hyphened: The view that differs from this one only in having hyphens for some dashes; None if there is none.
        located: What a prefilter has found in this view, after the prefilter.
    """

    is_whole = True

    def __init__(self, text: str) -> None:
        self.text = text
        self.hyphened: PlainText | None = None
        self.located: tuple[object, frozenset[int], list[Any]] = None, frozenset(), []
        self.plain = text.encode("latin-1", "replace")
        self._forms: dict[bytes, str] = {}
        self._places: dict[bytes, tuple[Mapping[str, int], Mapping[int, Sequence[int]]]] = {}

    def form(self, table: bytes) -> str:
        """Return the text translated by a table (see `anchors.Form`); the length and all offsets stay the same."""
        form = self._forms.get(table)
        if form is None:
            form = self._forms[table] = self.plain.translate(table).decode("latin-1")
        return form

    def keep_places(self, table: bytes, literals: Mapping[str, int], ends: Mapping[int, Sequence[int]]) -> None:
        """Keep where literals are in a form of the text.

        Args:
            table: The table of the form.
            literals: The index of each literal that was searched for.
            ends: The end offsets of each literal that was found, by its index.
        """
        self._places[table] = literals, ends

    def share_places(self, other: PlainText) -> None:
        """Take over where literals are in a view that differs only in dashes."""
        self._places = other._places

    def count_of(self, literal: str, table: bytes) -> int | None:
        """Return how often a literal is in a form of the text; None if the prefilter has not searched for it."""
        literals, ends = self._places.get(table, ({}, {}))
        return len(ends.get(literals[literal], ())) if literal in literals else None

    def places_of(self, literal: str, table: bytes) -> Iterator[int]:
        """Yield the offsets of a literal in a form of the text.

        They are known if the prefilter has searched for the literal.
        """
        literals, ends = self._places.get(table, ({}, {}))
        if literal in literals:
            yield from (end - len(literal) for end in ends.get(literals[literal], ()))
            return
        yield from _places(literal, self.form(table))

    @cached_property
    def beyond_latin(self) -> Mapping[str, list[str]]:
        """The text's characters beyond Latin-1, by the lower-case character."""
        chars: dict[str, list[str]] = {}
        for char in beyond_ascii(self.text):
            if char > "\xff":
                for low in char.lower():
                    chars.setdefault(low, []).append(char)
        return chars

    def offsets_of(self, chars: AbstractSet[str], most: float) -> list[int] | None:
        """Return the offset of each character beyond Latin-1 that is, in lower case, one of the given ones.

        Return None if there are more than `most`.
        """
        wanted = [char for low in self.beyond_latin.keys() & chars for char in self.beyond_latin[low]]
        if sum(map(self.text.count, wanted)) > most:
            return None
        return [place for char in wanted for place in _places(char, self.text)]

    def originals(self, spans: Iterable[Span]) -> tuple[Span, ...]:
        """Convert spans of this view to spans of the original text."""
        return tuple(spans)

    def cuts(self, span: Span) -> bool:  # noqa: ARG002 - this view has no escapes
        """Return whether a span of the original text begins or ends inside an escape."""
        return False


def _places(literal: str, text: str) -> Iterator[int]:
    """Yield the offset of each occurrence of a string in a text."""
    place = text.find(literal)
    while place >= 0:
        yield place
        place = text.find(literal, place + 1)


@lru_cache(maxsize=2)  # several rules read the same text, one after the other
def plain_text(text: str) -> PlainText:
    """Return a normalized text as a view."""
    return PlainText(text)


class _Layer(NamedTuple):
    """One pass over a text in which escapes were decoded and invisible characters removed.

    Attributes:
        cuts: Offsets in the new text at which characters were removed, and before and after each decoded escape.
        ends: For each cut, the offset in the old text at which the text continues.
        escapes: The length of each decoded escape, by the offset of its character in the new text.
    """

    cuts: list[int]
    ends: list[int]
    escapes: dict[int, int]

    def old(self, start: int, end: int) -> tuple[int, int]:
        """Convert the offsets of a span in the new text to those in the old one."""
        return self._place(start), self._place(end - 1) + self.escapes.get(end - 1, 1)

    def new(self, offset: int) -> int:
        """Convert an offset in the old text to that in the new one."""
        number = bisect_right(self.ends, offset) - 1
        if number < 0:
            return offset
        most = self.cuts[number + 1] if number + 1 < len(self.cuts) else math.inf
        return int(min(self.cuts[number] + offset - self.ends[number], most))

    def is_within(self, offset: int) -> bool:
        """Return whether an offset in the old text is inside an escape."""
        # a decoded escape has two cuts: before and after its character
        number = bisect_right(self.ends, offset)
        inside = 0 < number < len(self.ends) and self.cuts[number] == self.cuts[number - 1] + 1
        return inside and self.ends[number - 1] < offset and self.cuts[number - 1] in self.escapes

    def _place(self, offset: int) -> int:
        number = bisect_right(self.cuts, offset) - 1
        return offset if number < 0 else self.ends[number] + offset - self.cuts[number]


class _Shortened(PlainText):
    """A view that is shorter than the original, because escapes were decoded or invisible characters removed.

    Args:
        text: The normalized text.
        layers: The passes that shortened the text, the first one first.
        is_whole: False if invisible characters were removed or replaced.
    """

    def __init__(self, text: str, layers: Sequence[_Layer], *, is_whole: bool) -> None:
        super().__init__(text)
        self.is_whole = is_whole
        self._layers = layers

    def originals(self, spans: Iterable[Span]) -> tuple[Span, ...]:
        return tuple(map(self._original, spans))

    def cuts(self, span: Span) -> bool:
        start, end = span.start, span.end
        for layer in self._layers:
            if layer.is_within(start) or layer.is_within(end):
                return True
            start, end = layer.new(start), layer.new(end)
        return False

    def _original(self, span: Span) -> Span:
        start, end = span.start, span.end
        for layer in reversed(self._layers):
            start, end = layer.old(start, end)
        return Span(start, end, span.label, span.score)


def views_of(text: str, trusts: Trust | None = None) -> Sequence[PlainText]:
    r"""Return the views of a text: one for each way in which a reader could understand it.

    An invisible character may be inside a value or separate two values; `%41` may be a letter, or digits after a
    percent sign. In the first view, invisible characters are removed, escapes are decoded, and a plus is a space as in
    form data. In the second, invisible characters are spaces, and percent signs, plus signs, and backslashes before
    three octal digits stay. Likewise, a dash may be a hyphen inside a value or separate two values, and `\b` may be an
    escape, or a backslash before a value that begins with `b`.

    ASCII text without any sign of an escape or a placeholder has a single view, the text itself. This case takes hardly
    any time.

    Args:
        text: The text.
        trusts: See `blank_placeholders`.
    """
    if _is_as_read(text):
        return (PlainText(text),)
    return _views(text, trusts, read=lambda seen: [without_lookalikes(one) for one in _readings(seen)])


def _views(text: str, trusts: Trust | None, *, read: Callable[[str], Sequence[str]]) -> Sequence[PlainText]:
    # placeholders are blanked first, so that no rule matches in them, and no escape inside them is decoded
    blanked = blank_placeholders(text, trusts)
    unseen = "".join(sorted(beyond_ascii(text) & _UNSEEN))
    form = blanked.replace("+", " ") if _doubtful_escapes(text, octal=False)[0] else blanked
    first, (is_form, is_octal) = _decoded_views(form, unseen, gap="", way="all", read=read)
    views = list(first)
    if is_form and is_octal:
        views += _decoded_views(form, unseen, gap="", way="form", read=read)[0]
    if is_form or is_octal or not first[0].is_whole:
        views += _decoded_views(blanked, unseen, gap=" ", way="strict", read=read)[0]
    return views


def _doubtful_escapes(text: str, *, octal: bool) -> tuple[str, str]:
    """Return the expressions for escapes that may occur in a text and may also be something else; empty if none occur.

    These are the percent escapes of form data and URLs, and octal escapes.

    Args:
        text: The text.
        octal: Whether to look for octal escapes.
    """
    is_form = "%" in text and _FORM.search(text) is not None
    is_octal = octal and "\\" in text and _OCTAL.search(text) is not None
    return _PERCENT * is_form, _OCTAL_ESCAPE * is_octal


def beyond_ascii(text: str) -> set[str]:
    """Return the non-ASCII characters of a text."""
    if text.isascii():
        return set()
    return set(text.encode("utf-8", "surrogatepass").translate(None, _ASCII).decode("utf-8", "surrogatepass"))


def _is_as_read(text: str) -> bool:
    """Return True only if the text certainly contains no escapes, placeholders, or invisible characters."""
    # a search for each sign in turn, because a generator over them takes longer than the searches in a short text
    if not text.isascii() or "\\" in text or "%" in text or "&" in text or "\x1b" in text or "<" in text:
        return False
    if "[REDACTED" in text:
        return False
    # plus signs and brackets are common, but rarely part of an escape
    return ("+" not in text or _PLUS.search(text) is None) and ("[" not in text or _TERMINAL.search(text) is None)


def view_of(text: str) -> PlainText:
    """Return only the first view of a text, see `views_of`."""
    return views_of(text)[0]


def may_spell(text: str) -> bool:
    """Return whether a text may contain a placeholder, possibly with escaped characters."""
    if not text.isascii() or any(sign in text for sign in "<\\%&"):
        return True
    return ">" in text and _NUMBER_ENDS.search(text) is not None


def spelled_placeholders(text: str, labels: Container[str] | None) -> Iterator[tuple[set[str], int, int]]:
    r"""Yield the pseudonyms that each placeholder in a text can mean, with the placeholder's start and end offset.

    A placeholder may be spelled in any way from which a value would be restored. Its characters may also be escaped: a
    web page contains `&lt;EMAIL_1&gt;` and JSON may contain `\u003cEMAIL_1\u003e`, but a model that repeats them writes
    `<EMAIL_1>`.

    Args:
        text: The text.
        labels: The labels that may be spelled in other ways than in `<EMAIL_1>`; None means all. Without `NAME` among
            them, the tag `<name_1>` is not a placeholder.
    """
    if not may_spell(text):
        return
    # a spelling may be complete only with its escapes decoded, or only without: `<EMAIL_1%41`
    view = _views(text, lambda _label, _number: False, read=lambda seen: [_plain(seen)])[0]
    views = (view,) if view.text == text else (view, PlainText(text))
    names: set[str] = set()
    start = end = 0
    for more, span in sorted((one for each in views for one in _spelled(each, labels)), key=lambda one: one[1].start):
        if names and span.start >= end:
            yield names, start, end
            names = set()
        start, end = (start, max(end, span.end)) if names else (span.start, span.end)
        names = names | more
    if names:
        yield names, start, end


def _spelled(view: PlainText, labels: Container[str] | None) -> Iterator[tuple[set[str], Span]]:
    exact = (({match[0]}, match) for match in PSEUDONYM.finditer(view.text))
    spelled = OPENED if _NUMBER_ENDS.search(view.text) is None else SPELLED
    meant = ((pseudonyms_of(match), match) for match in spelled.finditer(view.text))
    loose = (
        ({name for label, name in names.items() if labels is None or label in labels}, match) for names, match in meant
    )
    for names, match in chain(exact, loose):
        if names:
            (span,) = view.originals([Span(*match.span(), "")])
            yield names, span


def _decoded_views(
    text: str, unseen: str, *, gap: str, way: Literal["all", "form", "strict"], read: Callable[[str], Sequence[str]]
) -> tuple[Sequence[PlainText], tuple[bool, bool]]:
    """Decode the escapes of a text.

    Returns a view for each reading, and whether there were escapes of form data, and octal ones.

    Args:
        text: The text with blanked placeholders.
        unseen: The invisible characters that occur in the text.
        gap: The replacement for each invisible character.
        way: Which of the doubtful escapes to decode, see `_doubtful_escapes`: all, those of form data, or none.
        read: Returns the readings of the decoded text, each of the same length.
    """
    layers: list[_Layer] = []
    is_whole, is_form, is_octal, goes_on = True, False, False, True
    while goes_on and len(layers) < _DEPTH:
        doubtful = ("", "") if way == "strict" else _doubtful_escapes(text, octal=way == "all")
        is_form, is_octal = is_form or bool(doubtful[0]), is_octal or bool(doubtful[1])
        text, layer, found_unseen, goes_on = _decode_once(text, unseen, gap=gap, doubtful=doubtful)
        is_whole, unseen = is_whole and not found_unseen, ""
        if layer.cuts:
            layers.append(layer)
    # after the escapes: the characters that they decode to are normalized, too
    views = [_Shortened(one, layers, is_whole=is_whole) if layers else PlainText(one) for one in read(text)]
    for was, now in pairwise(views):
        if _hyphened(now.text) == was.text:
            now.hyphened = was
    return views, (is_form, is_octal)


def _decode_once(text: str, unseen: str, *, gap: str, doubtful: tuple[str, str]) -> tuple[str, _Layer, bool, bool]:
    """Decode the escapes of a text that are not within each other.

    Returns:
        The new text, the offsets, whether there were invisible characters, and whether characters were decoded that may
        be part of further escapes.
    """
    layer = _Layer([], [], {})
    pieces: list[str] = []
    done = size = 0
    found_unseen = goes_on = False
    for match in _find_escapes(text, unseen, doubtful=doubtful, has_codes=not gap and _has_codes(text)):
        start, end = match.span()
        char = _decode(match)
        if char is None:
            continue
        pieces.append(text[done:start])
        size += start - done
        done = end
        if char in _UNSEEN:
            char, found_unseen = gap, True
        elif char in _IN_ESCAPES and match.lastgroup not in ("mark", "sign"):
            goes_on = True
        if char:
            pieces.append(char)
            layer.cuts.append(size)
            layer.ends.append(start)
            layer.escapes[size] = end - start
            size += 1
        layer.cuts.append(size)
        layer.ends.append(end)
    pieces.append(text[done:])
    return "".join(pieces), layer, found_unseen, goes_on


def _has_codes(text: str) -> bool:
    """Return whether a text may contain terminal codes."""
    if "\x1b" in text or "\x9b" in text or "\x9d" in text or ("\\" in text and _SPELLED_CODE.search(text) is not None):
        return True
    return "[" in text and _TERMINAL.search(text) is not None


def _find_escapes(text: str, unseen: str, *, doubtful: tuple[str, str], has_codes: bool) -> Iterator[re.Match[str]]:
    """Yield a match for each escape, each invisible character, and each terminal code of a text."""
    if unseen or any(doubtful) or has_codes or "\\" in text or "&" in text:
        yield from _finder(unseen, doubtful=doubtful, has_codes=has_codes).finditer(text)


@lru_cache(maxsize=256)
def _finder(unseen: str, *, doubtful: tuple[str, str], has_codes: bool) -> re.Pattern[str]:
    """Return an expression for escapes and for the given invisible characters.

    The fewer characters are given, the faster the expression is.
    """
    first = r"\\&" + "%" * bool(doubtful[0]) + r"\x1b\x9b\x9d^\[" * has_codes + unseen
    kinds = [*([_CODE] if has_codes else []), _ESCAPED, *filter(None, doubtful)]
    return re.compile(rf"[{first}](?:{'|'.join(kinds)}{'|(?<=[' + unseen + '])' if unseen else ''})")


def _decode(match: re.Match[str]) -> str | None:
    """Return the character that an escape stands for; U+FFFD if it is not exactly one character.

    Return None for a reference whose name is unknown: it is no escape.
    """
    kind, written = match.lastgroup, match[match.lastgroup or 0]
    if kind in (None, "mark", "sign"):
        return written
    if kind == "sequence":
        return _REMOVED
    if kind == "name":
        reference = f"&{written.rpartition('amp;')[2] or written}"
        written = unescape(reference)
        if written == reference or (len(written) != 1 and reference[1] != "#"):
            return None
    elif kind in ("xs", "urls"):
        written = bytes.fromhex(re.sub(r"\\?x|%(?:25)?", "", f"%{written}".replace("%x", "x"))).decode(
            "utf-8", "replace"
        )
    else:
        code = int(written, 8 if kind == "octal" else 16)
        written = chr(code) if code < 0x110000 else ""
    return written if len(written) == 1 else "\ufffd"


def _readings(text: str) -> Sequence[str]:
    """Return the readings of a text, in plain characters and with the same length.

    Dashes are read as hyphens or as they are, and a backslash before a value is read as a space or as part of an
    escape.
    """
    texts = [text, _LETTERED.sub(" ", text)] if "\\" in text else [text]
    plain = [_plain(one) for one in dict.fromkeys(texts)]
    return [*dict.fromkeys(one for text in plain for one in (_hyphened(text), text))]


def _hyphened(text: str) -> str:
    """Return the text with each dash that may be a hyphen as a hyphen."""
    has_dashes = not text.isascii() and any(dash in text for dash in _DASHES)
    return _DASHED.sub("-", text) if has_dashes else text


def _plain(text: str) -> str:
    """Replace variants of ASCII characters, terminal codes, and line escapes, without changing the text's length."""
    if not text.isascii():
        beyond = beyond_ascii(text)
        table = _folding()
        for char in beyond & table.keys():
            text = text.replace(char, table[char])
    if "[" in text:
        text = _TERMINAL.sub(lambda match: " " * len(match[0]), text)
        for sign in _TERMINAL_SIGNS:
            text = text.replace(f"{sign} ", " " * (len(sign) + 1)) if sign in text else text
    if "\\" in text:
        for escape in _LINE_ESCAPES:
            text = text.replace(escape, "  ")
    return _without_form_pluses(text)


def _without_form_pluses(text: str) -> str:
    """Replace each plus that is a space in form data.

    A match ends where the next group has another shape, and the plus there is part of the next match only once the text
    before it was replaced. Therefore, what is left is read again, until nothing changes.
    """
    before = None
    while text != before and "+" in text and _PLUS.search(text) is not None:
        before, text = text, _with_spaces(text)
    return text


def _with_spaces(text: str) -> str:
    """Replace the pluses in each match of `_PLUSES`, which is searched for only near pluses."""
    pieces: list[str] = []
    done = begin = 0
    place = text.find("+")
    while place >= 0:
        tried = (_PLUSES.match(text, start) for start in range(max(begin, place - _BEFORE_PLUS), place + 1))
        match = next(filter(None, tried), None)
        begin = place + 1
        if match is not None:
            pieces += (text[done : match.start()], match[0][:1], match[0][1:].replace("+", " "))
            done = begin = match.end()
        place = text.find("+", begin)
    return "".join((*pieces, text[done:]))


@lru_cache(maxsize=1)
def _folding() -> Mapping[str, str]:
    """Map the variants of ASCII digits, letters, dashes, spaces, and punctuation to the ASCII character.

    Circled, small, full-width, and mathematical variants are included. Superscripts are not, because they mark
    footnotes.

    The ten digits of a script have consecutive code points, the first of which ends in 0 or 6 in hexadecimal.
    Mathematical digits follow one another without gaps.
    """
    table = dict.fromkeys(_HYPHENS, "-") | dict.fromkeys(_SPACES, " ") | dict.fromkeys("\u2018\u2019", "'")
    for zero in (*range(0x0660, 0x1FC00, 16), *range(0x0666, 0x1FC00, 16), *range(0x1D7CE, 0x1D800, 10)):
        if unicodedata.decimal(chr(zero), None) == 0:
            table |= {chr(zero + digit): str(digit) for digit in range(10)}
    for code in (*range(0x2460, 0x24EA), *range(0xFE50, 0xFE6C), *range(0xFF01, 0xFF5F), *range(0x1D400, 0x1D800)):
        plain = unicodedata.normalize("NFKC", chr(code))
        if len(plain) == 1 and plain.isascii():
            table.setdefault(chr(code), plain)
    # with `re.IGNORECASE`, these characters match an ASCII letter
    return table | {"\u0131": "i", "\u0130": "I", "\u017f": "s", "\u212a": "K"}
