"""Mask inside JSON: only strings and numbers are replaced, so that the result is valid and keeps its layout."""

from __future__ import annotations

import json
import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from operator import attrgetter
from typing import Final, NamedTuple

from ctxguard.pii.detect.tables import WINDOW
from ctxguard.pii.spans import Span

_TOKEN: Final = re.compile(r'("[^"\\]*(?:\\.[^"\\]*)*")(\s*:)?|(-?\d[\d.eE+-]*)|([\[{])|[\]}]', re.DOTALL)
"""Matches a string, and the colon after it if it is a key; a number; or a bracket that opens or closes a scope."""
_ITEM: Final = re.compile(_TOKEN.pattern + "|true|false|null", re.DOTALL)
_CLOSERS: Final = frozenset("}]")
_IN_LIST: Final = re.compile(r'[\[,]\s*(?:"[^"]*"|-?\d[\d.eE+-]*)\s*[,\]]')
_KEY_END: Final = re.compile(r'"\s*:')
_END: Final = attrgetter("end")
_SCOPES: Final = frozenset("{[")
_BORDER: Final = "\n" * WINDOW
"""The separator of joined texts: as long as the window of context words, so that no text is the context of the next."""
_AT_ONCE: Final = 2_000
"""Maximum number of texts that are joined at once, so that a large JSON text is not held in memory twice."""
_OPENERS: Final = frozenset('{["')


_QUOTE: Final = re.compile(r'(?<!\\)(\\*+)"')
_SPACE: Final = r"(?:\s|\\+[nrt])*+"
# The beginning of an object or array, up to its first quote, or the beginning of other text.
_OPENING: Final = re.compile(rf"{_SPACE}(?:\{{{_SPACE}(?:(\}})|.)|\[{_SPACE}(?:([\[\]{{\d-])|.)|[^\[{{\s])", re.DOTALL)
_OPEN: Final = re.compile(rf"{_SPACE}[\[{{]{_SPACE}")
_LONGEST: Final = 64
"""Number of characters after which a string that began with white space alone counts as text."""
_BACKSLASHES: Final = re.compile(r"(?<!\\)\\++\Z")


class JsonDepth:
    """Reads JSON text in pieces, and says how deep the place behind it is in strings that hold JSON.

    A string counts as JSON if it begins like an object or an array, because its end may still be missing.
    """

    def __init__(self) -> None:
        self._holds: list[bool | None] = []  # for each open string whether it holds JSON; None if that is not known yet
        self._opening = ""
        self._rest = ""

    @property
    def depth(self) -> int:
        """Number of open strings: 1 in a string of the JSON text, 2 in a string of JSON in a string."""
        return len(self._holds)

    def read(self, text: str) -> None:
        """Read the next piece."""
        text = self._rest + text
        ending = _BACKSLASHES.search(text)
        end = len(text) if ending is None else ending.start()
        text, self._rest = text[:end], text[end:]
        done = 0
        for quote in _QUOTE.finditer(text):
            self._pass(text[done : quote.start()])
            self._take(len(quote[1]))
            done = quote.end()
        self._pass(text[done:])

    def _pass(self, text: str) -> None:
        """Read text without quotes."""
        if self._holds and self._holds[-1] is None:
            self._opening += text[:_LONGEST]
            opening = _OPENING.match(self._opening)
            if opening is not None or len(self._opening) > _LONGEST:
                self._holds[-1] = opening is not None and opening.lastindex is not None

    def _take(self, backslashes: int) -> None:
        """Take a quote, which ends an open string, begins one within the last, or is a sign in it."""
        for number in range(len(self._holds)):
            if backslashes % 2 == 0:
                del self._holds[number:]
                return
            backslashes //= 2
        if self._holds and self._holds[-1] is None:
            self._holds[-1] = _OPEN.fullmatch(self._opening) is not None
        if not self._holds or self._holds[-1]:
            self._holds.append(None)
            self._opening = ""


class JsonNumber(str):
    """A new value for a token. The value is written as a number, without quotes."""

    __slots__ = ()


class JsonToken(NamedTuple):
    """A string or number in JSON text.

    Attributes:
        start: Offset of the first character, including the quote.
        end: Offset after the last character.
        value: The decoded string, or the number as written.
        key: The object key whose value is or contains this token; empty if there is none.
        is_key: Whether the token is an object key.
        is_number: Whether the token is a number.
        scope: Offset of the object or array that contains the token; -1 if the token is the whole text.
    """

    start: int
    end: int
    value: str
    key: str
    is_key: bool = False
    is_number: bool = False
    scope: int = -1


def starts_json(text: str) -> bool:
    """Return whether a text begins like a JSON object, array, or string."""
    return text.lstrip(" \t\r\n")[:1] in _OPENERS


def is_json(text: str) -> bool:
    """Return whether the whole text is one JSON object, array, or string."""
    if not starts_json(text):
        return False
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def holds_json(value: str) -> bool:
    """Return whether a decoded string is itself a JSON object or array."""
    return value.lstrip()[:1] in _SCOPES and is_json(value)


def is_flat(text: str) -> bool:
    """Return whether valid JSON can be searched as plain text: no escapes, and no arrays of strings or numbers.

    The key before an array is the context of all its items, but in plain text, it directly precedes only the first
    item.
    """
    return "\\" not in text and _IN_LIST.search(text) is None


def all_in_strings(text: str, spans: Sequence[Span]) -> bool:
    """Return whether each finding lies inside one string that is not a key.

    Args:
        text: Flat JSON text, see `is_flat`.
        spans: The findings, sorted by offset.
    """
    quotes = done = 0
    end = -1
    for span in spans:
        quotes += text.count('"', done, span.start)
        done = span.start
        if quotes % 2 == 0:
            return False
        if end < done:
            # search for the end only once per string; otherwise, a long string with many findings takes quadratic time
            end = text.find('"', done)
            if _KEY_END.match(text, end):
                return False
        if span.end > end:
            return False
    return True


def json_tokens(text: str) -> Iterator[JsonToken]:
    """Yield the strings and numbers of valid JSON text, in text order."""
    scopes: list[tuple[str, int]] = []
    key, scope = "", -1
    for match in _TOKEN.finditer(text):
        string, colon, number, opener = match.groups()
        if string is not None:
            start, end = match.span(1)
            value = json.loads(string, strict=False) if "\\" in string else string[1:-1]
            yield JsonToken(start, end, value, "" if colon else key, is_key=colon is not None, scope=scope)
            key = value if colon else key
        elif number is not None:
            yield JsonToken(*match.span(), number, key, is_number=True, scope=scope)
        elif opener is not None:
            scopes.append((key, scope))
            scope = match.start()
        else:
            key, scope = scopes.pop()


def json_paths(text: str) -> Iterator[tuple[int, int, tuple[str | int, ...]]]:
    """Yield the start, the end, and the path of each key and each value of valid JSON text, in text order.

    The path of a key is that of its value. An object or array is yielded with its opening bracket alone.
    """
    path: list[str | int] = []  # for each open object its current key, for each open array its current index
    for match in _ITEM.finditer(text):
        string, colon, _, opener = match.groups()
        if match[0] in _CLOSERS:
            path.pop()
            continue
        if colon is not None:
            path[-1] = json.loads(string, strict=False)
        elif path and isinstance(path[-1], int):
            path[-1] += 1
        yield (*(match.span() if string is None else match.span(1)), tuple(path))
        if opener is not None:
            path.append(-1 if opener == "[" else "")


def rewrite_json(text: str, change: Callable[[JsonToken], str], tokens: Iterable[JsonToken]) -> str:
    """Return JSON text with changed strings and numbers replaced; all other bytes stay the same.

    Args:
        text: Valid JSON text.
        change: Takes a token and returns its new value: a string, or a `JsonNumber` to write without quotes.
        tokens: The tokens of the text that may change, in text order.
    """
    pieces: list[str] = []
    done = 0
    for token in tokens:
        value = change(token)
        if value is not token.value and (value != token.value or isinstance(value, JsonNumber) != token.is_number):
            pieces += (text[done : token.start], encode_json(value))
            done = token.end
    pieces.append(text[done:])
    return "".join(pieces)


def kept_apart(change: Callable[[JsonToken], str]) -> Callable[[JsonToken], str]:
    """Wrap `change` so that two keys of one object never get the same new name, which would lose a value."""
    taken: set[tuple[int, str]] = set()
    numbers: Counter[tuple[int, str]] = Counter()

    def apart(token: JsonToken) -> str:
        name = value = change(token)
        if not token.is_key:
            return value
        while value != token.value and (token.scope, name) in taken:
            numbers[token.scope, value] += 1
            name = f"{value} {numbers[token.scope, value] + 1}"
        taken.add((token.scope, name))
        return name

    return apart


def touching(spans: Sequence[Span], token: JsonToken) -> Span | None:
    """Return the first finding that overlaps a token; None if there is none. `spans` must be sorted by offset."""
    place = bisect_right(spans, token.start, key=_END)
    return spans[place] if place < len(spans) and spans[place].start < token.end else None


def touched(texts: Iterable[str], find: Callable[[str], Sequence[Span]]) -> set[str]:
    """Return the texts in which `find` may find something. In all other texts, `find` finds nothing.

    The texts are joined and searched at once, which is much faster than searching many short texts.

    Args:
        texts: Short texts.
        find: Searches with rules that find the same in a text alone and in that text between blank lines.
    """
    waiting = list(dict.fromkeys(texts))
    found: set[str] = set()
    for first in range(0, len(waiting), _AT_ONCE):
        found |= _search_joined(waiting[first : first + _AT_ONCE], find)
    return found


def _search_joined(texts: Sequence[str], find: Callable[[str], Sequence[Span]]) -> set[str]:
    spans = find(_BORDER.join(texts))
    if not spans:
        return set()
    starts = list(accumulate((len(text) + len(_BORDER) for text in texts), initial=0))
    touches: set[str] = set()
    for span in spans:
        touches.update(texts[bisect_right(starts, span.start) - 1 : bisect_left(starts, span.end)])
    return touches


def encode_json(value: str) -> str:
    """Encode a value as JSON with as few escapes as possible, because a rule could match in the escapes."""
    if isinstance(value, JsonNumber):
        return str(value)
    return json.dumps(value, ensure_ascii=any("\ud800" <= char <= "\udfff" for char in value))
