r"""Normalize a text to what a reader sees: full-width digits, dashes, invisible characters, escapes.

Rules are written for plain text. A `PlainText` is that plain text, with a mapping back to the offsets of the original,
so that `４１１１…`, `jane\u0040x.org`, `jane%40x.org`, `jane&#64;x.org` and a number split by zero-width spaces are
found in the original.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from html import unescape
from typing import Final

from ctxguard.pii.placeholders import PSEUDONYM, Trust, blank_placeholders, without_lookalikes
from ctxguard.pii.spans import Span

_INVISIBLE: Final = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b\u200c\u200d\u200e\u200f\u202a\u202b\u202c\u202d\u202e"
    "\u2060\u2061\u2062\u2063\u2064\u2066\u2067\u2068\u2069\ufe0e\ufe0f\ufeff"
)
_HYPHENS: Final = "\u2010\u2011\u2212\ufe58\ufe63\uff0d"
_DASHES: Final = "\u2012\u2013\u2014\u2015\u30fc"
_SPACES: Final = "\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000"
_ASCII: Final = bytes(range(128))
_UNSEEN: Final = frozenset(_INVISIBLE).union(map(chr, range(0xE0000, 0xE01F0)))
_SIGNS: Final = ("\\", "%", "&", "\x1b", "<", "[REDACTED")
# Spellings of one character. A double backslash and `%25` are the same escape, escaped again, as in JSON in JSON. Signs
# that Markdown escapes count within a word, also several in a row, and before a number: elsewhere they belong to a
# regular expression or a path.
# Each expression begins with the character that it is searched by: that makes `re` many times faster.
_ESCAPED: Final = (
    r"(?<=\\)(?:\\?u(?P<u>[0-9a-fA-F]{4})"
    r"|(?P<xs>x[c-fC-F][0-9a-fA-F](?:\\x[89abAB][0-9a-fA-F]){1,3})|x(?P<x>[0-9a-fA-F]{2})"
    r"|(?P<mark>(?<!\\\\)(?:[/<>]|[+(](?=\d)|\)(?=[\s.\\-]{0,2}\d)|-(?<=\d\s\\-)(?=\s\d)))"
    r"|\\?(?P<sign>[_.@~+-](?:(?<=[A-Za-z0-9]\\.)|(?<=[A-Za-z0-9]\\\\.)"
    r"|(?<=\\[_.@~+-]\\.)|(?<=\\[_.@~+-]\\\\.))(?=(?:\\{1,2}[_.@~+-]){0,4}[A-Za-z0-9])))"
    r"|(?<=&)(?P<name>(?:amp;){0,3}(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z]{2,8});)"
)
_PERCENT: Final = (
    r"(?<=%)(?:(?P<urls>(?:25)?[c-fC-F][0-9a-fA-F](?:%(?:25)?[89abAB][0-9a-fA-F]){1,3})"
    r"|(?:25)?(?P<url>[0-7][0-9a-fA-F]))"
)
_FORM: Final = re.compile(f"%{_PERCENT}")
# A color or cursor code of a terminal; its first character may be spelled out, or lost.
_TERMINAL: Final = re.compile(
    r"\[(?:(?:(?<=\x1b\[)|(?<=\^\[\[)|(?<=\\033\[)|(?<=\\e\[))[0-?]{0,32}[ -/]{0,4}[@-~]|\d{1,3}(?:;\d{1,3}){0,5}m)"
)
_TERMINAL_SIGNS: Final = ("\x1b", "^[", r"\033", r"\e")
_LINE_ESCAPES: Final = (r"\n", r"\t", r"\r", r"\b", r"\f")
# Typography turns hyphens into dashes; between letters or digits, or with blanks within a number, a dash may be either.
_DASHED: Final = re.compile(rf"[{_DASHES}](?=[0-9A-Za-z(+]| [0-9(])(?:(?<=[0-9A-Za-z)].)|(?<=[0-9)] .))")
# A key or a hardware address may begin with the letter of an escape: `\b0:56:…`.
_LETTERED: Final = re.compile(
    r"\\(?<!\\\\)(?=[bf](?:[0-9A-Fa-f]{0,3}[:-]){2}|bc1[a-z0-9]{25}|[bfnrt][a-z0-9]{0,7}[_-](?=\w{0,15}\d)[\w-]{16})"
)
_PLUS: Final = re.compile(r"\+(?<=[0-9A-Z)]\+)[0-9(A-Z]")
# In form data a plus is a blank: between groups of digits, before and after letters, in an account number, and between
# groups of letters and digits, as in a Medicare number.
_PLUSES: Final = re.compile(
    r"(?<![A-Za-z0-9])(?<![A-Za-z0-9]/)"
    r"(?:(?:[A-Z]{1,3}\+|\+)?\(?\d{1,6}\)?(?:\+\(?\d{1,6}\)?(?:-\d{1,6})?){1,7}(?:\+[A-Z]{1,2})?"
    r"|[A-Z]{2}\d{2}(?:\+[A-Z0-9]{1,4}){3,8}"
    r"|[A-Z]{0,3}\d[A-Z0-9]{0,3}(?:\+[A-Z]{0,3}\d[A-Z0-9]{0,3}){2,7})(?![A-Za-z0-9@])(?!/[A-Za-z0-9])"
)


class PlainText:
    """A normalized text with its placeholders blanked, and the forms in which literals are searched for.

    Args:
        text: the normalized text, as long as the original.

    Attributes:
        text: the text.
        plain: the text in Latin-1, with `?` for all other characters.
        is_whole: False if invisible characters were removed.
    """

    is_whole = True

    def __init__(self, text: str) -> None:
        self.text = text
        self.plain = text.encode("latin-1", "replace")
        self._forms: dict[bytes, str] = {}

    def form(self, table: bytes) -> str:
        """Return the text translated by a table; its length stays the same, and so do offsets."""
        form = self._forms.get(table)
        if form is None:
            form = self._forms[table] = self.plain.translate(table).decode("latin-1")
        return form

    @property
    def beyond_ascii(self) -> set[str]:
        """The characters beyond ASCII, in lower case."""
        return set("".join(beyond_ascii(self.text)).lower())

    def originals(self, spans: Iterable[Span]) -> tuple[Span, ...]:
        """Return spans of this view as spans of the original text."""
        return tuple(spans)

    def cuts(self, span: Span) -> bool:  # noqa: ARG002 - a text without escapes has none to cut
        """Return whether a span of the original text begins or ends inside an escape."""
        return False


class _Shortened(PlainText):
    """A text that is shorter than the original, and the origin of its characters.

    Args:
        text: the folded text.
        cuts: offsets in the folded text at which something was removed or an escape was decoded.
        ends: offset in the original right after each cut.
        escapes: number of characters in the original for a character of the folded text, by its offset, if more than
            one.
        is_whole: False if invisible characters were removed.
    """

    def __init__(
        self, text: str, cuts: Sequence[int], ends: Sequence[int], escapes: Mapping[int, int], *, is_whole: bool
    ) -> None:
        super().__init__(text)
        self.is_whole = is_whole
        self._cuts = cuts
        self._ends = ends
        self._escapes = escapes

    def originals(self, spans: Iterable[Span]) -> tuple[Span, ...]:
        return tuple(map(self._original, spans))

    def cuts(self, span: Span) -> bool:
        return self._is_within(span.start) or self._is_within(span.end)

    def _is_within(self, offset: int) -> bool:
        # an escape has two cuts, before and after its character
        number = bisect_right(self._ends, offset)
        inside = 0 < number < len(self._ends) and self._cuts[number] == self._cuts[number - 1] + 1
        return inside and self._ends[number - 1] < offset and self._cuts[number - 1] in self._escapes

    def _original(self, span: Span) -> Span:
        last = span.end - 1
        end = self._place(last) + self._escapes.get(last, 1)
        return Span(self._place(span.start), end, span.label, span.score)

    def _place(self, offset: int) -> int:
        """Return the offset of a character in the original."""
        number = bisect_right(self._cuts, offset) - 1
        return offset if number < 0 else self._ends[number] + offset - self._cuts[number]


def views_of(text: str, trusts: Trust | None = None) -> Sequence[PlainText]:
    r"""Return the views of a text: several if it can be read in several ways.

    An invisible character may be inside a value or at its edge, and `%41` may be a letter or follow a percent sign. In
    the first view, invisible characters are removed, escapes are decoded, and a plus is a blank as in form data; in the
    second, invisible characters are blanks, and all others stay as they are. Likewise a dash may be a hyphen of a value
    or end it, and the letter of `\b` may be its first. A text that is ASCII and contains no sign of an escape or a
    placeholder is returned at next to no cost.

    Args:
        text: the text.
        trusts: see `blank_placeholders`.
    """
    if _is_as_read(text):
        return (PlainText(text),)
    return _views(text, trusts, read=lambda seen: [without_lookalikes(one) for one in _readings(seen)])


def _views(text: str, trusts: Trust | None, *, read: Callable[[str], Sequence[str]]) -> Sequence[PlainText]:
    # first of all, so that no rule matches in placeholders of the masking, and no escape within one is decoded
    blanked = blank_placeholders(text, trusts)
    unseen = "".join(sorted(beyond_ascii(text) & _UNSEEN))
    is_form = "%" in text and _FORM.search(text) is not None
    first = _seen(blanked.replace("+", " ") if is_form else blanked, unseen, gap="", is_form=is_form, read=read)
    if first[0].is_whole and not is_form:
        return first
    return (*first, *_seen(blanked, unseen, gap=" ", is_form=False, read=read))


def beyond_ascii(text: str) -> set[str]:
    """Return the characters of a text that are beyond ASCII."""
    if text.isascii():
        return set()
    return set(text.encode("utf-8", "surrogatepass").translate(None, _ASCII).decode("utf-8", "surrogatepass"))


def _is_as_read(text: str) -> bool:
    """Return True only if a text certainly has no escapes, no placeholders and no invisible characters."""
    if not text.isascii() or any(sign in text for sign in _SIGNS):
        return False
    # plus and bracket are common, and seldom part of an escape
    return ("+" not in text or _PLUS.search(text) is None) and ("[" not in text or _TERMINAL.search(text) is None)


def view_of(text: str) -> PlainText:
    """Return the first view of a text."""
    return views_of(text)[0]


def may_spell(text: str) -> bool:
    """Return whether a text may contain a placeholder, possibly escaped."""
    return "<" in text or not text.isascii() or any(sign in text for sign in "\\%&")


def spelled_placeholders(text: str) -> Iterator[tuple[str, int, int]]:
    r"""Yield the pseudonyms in a text as a reader sees it, with their places.

    A page writes `&lt;EMAIL_1&gt;` and JSON `\u003cEMAIL_1\u003e`; a model that repeats them writes `<EMAIL_1>`.
    """
    if may_spell(text):
        view = _views(text, lambda _label, _number: False, read=lambda seen: [_plain(seen)])[0]
        for match in PSEUDONYM.finditer(view.text):
            (span,) = view.originals([Span(*match.span(), "")])
            yield match[0], span.start, span.end


def _seen(
    text: str, unseen: str, *, gap: str, is_form: bool, read: Callable[[str], Sequence[str]]
) -> Sequence[PlainText]:
    """Return the views of a text, with `gap` in place of invisible characters."""
    cuts: list[int] = []
    ends: list[int] = []
    escapes: dict[int, int] = {}
    pieces: list[str] = []
    done = size = 0
    is_whole = True
    for match in _hidden(text, unseen, is_form=is_form):
        start, end = match.span()
        pieces.append(text[done:start])
        size += start - done
        done = end
        char = _meant(match)
        if char in _UNSEEN:
            char, is_whole = gap, False
        if char:
            pieces.append(char)
            cuts.append(size)
            ends.append(start)
            escapes[size] = end - start
            size += 1
        cuts.append(size)
        ends.append(end)
    pieces.append(text[done:])
    # after the escapes: the characters that they decode to are normalized, too
    plain = read("".join(pieces))
    return [_Shortened(one, cuts, ends, escapes, is_whole=is_whole) if cuts else PlainText(one) for one in plain]


def _hidden(text: str, unseen: str, *, is_form: bool) -> Iterator[re.Match[str]]:
    """Yield the escapes and the invisible characters of a text."""
    if unseen or is_form or "\\" in text or "&" in text:
        yield from _finder(unseen, is_form=is_form).finditer(text)


@lru_cache(maxsize=256)
def _finder(unseen: str, *, is_form: bool) -> re.Pattern[str]:
    """Return an expression for escapes and some invisible characters; searching for few is faster than for all."""
    escaped = [_ESCAPED, _PERCENT] if is_form else [_ESCAPED]
    return re.compile(
        rf"[\\&{'%' if is_form else ''}{unseen}](?:{'|'.join(escaped)}{'|(?<=[' + unseen + '])' if unseen else ''})"
    )


def _meant(match: re.Match[str]) -> str:
    """Return the character of an escape; U+FFFD if it is not exactly one character."""
    kind, written = match.lastgroup, match[match.lastgroup or 0]
    if kind in (None, "mark", "sign"):
        return written
    if kind == "name":
        written = unescape(f"&{written.rpartition('amp;')[2] or written}")
    elif kind in ("xs", "urls"):
        written = bytes.fromhex(re.sub(r"\\?x|%(?:25)?", "", f"%{written}".replace("%x", "x"))).decode(
            "utf-8", "replace"
        )
    else:
        written = chr(int(written, 16))
    return written if len(written) == 1 else "\ufffd"


def _readings(text: str) -> Sequence[str]:
    """Return a text in plain characters in each reading: dashes as hyphens or as they are, escapes likewise."""
    texts = [text, _LETTERED.sub(" ", text)] if "\\" in text else [text]
    plain = [_plain(one) for one in dict.fromkeys(texts)]
    return [*dict.fromkeys(one for text in plain for one in (text if text.isascii() else _DASHED.sub("-", text), text))]


def _plain(text: str) -> str:
    """Return a text of the same length in plain characters, with blanks for terminal codes and line escapes."""
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
    if "+" in text and _PLUS.search(text) is not None:
        text = _PLUSES.sub(lambda match: match[0][:1] + match[0][1:].replace("+", " "), text)
    return text


@lru_cache(maxsize=1)
def _folding() -> Mapping[str, str]:
    """Map every variant of an ASCII digit, letter, dash, space or sign to that character.

    Circled, small, full-width and mathematical variants are included; superscripts are not: they mark footnotes.

    Digits of a script come in tens that begin at a code ending in 0 or 6; mathematical ones are consecutive.
    """
    table = dict.fromkeys(_HYPHENS, "-") | dict.fromkeys(_SPACES, " ") | dict.fromkeys("\u2018\u2019", "'")
    for zero in (*range(0x0660, 0x1FC00, 16), *range(0x0666, 0x1FC00, 16), *range(0x1D7CE, 0x1D800, 10)):
        if unicodedata.decimal(chr(zero), None) == 0:
            table |= {chr(zero + digit): str(digit) for digit in range(10)}
    for code in (*range(0x2460, 0x24EA), *range(0xFE50, 0xFE6C), *range(0xFF01, 0xFF5F), *range(0x1D400, 0x1D800)):
        plain = unicodedata.normalize("NFKC", chr(code))
        if len(plain) == 1 and plain.isascii():
            table.setdefault(chr(code), plain)
    # `re` treats these as equal to an ASCII letter if case is ignored
    return table | {"\u0131": "i", "\u0130": "I", "\u017f": "s", "\u212a": "K"}
