"""Mask inside JSON: strings and numbers are replaced token by token, so that it still parses and keeps its layout."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

__all__ = ["JsonNumber", "JsonToken", "is_json", "json_tokens", "kept_apart", "rewrite_json"]

_TOKEN: Final = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|-?\d[\d.eE+-]*|[\[\]{}:,]', re.DOTALL)
_OPENERS: Final = frozenset('{["')


class JsonNumber(str):
    """Mark a new value that is written as a number, without quotes."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class JsonToken:
    """Hold one string or number of a JSON text.

    Attributes:
        start: offset of its first character, the quote included.
        end: offset after its last character.
        value: the decoded string, or the number as it is written.
        key: the object key it stands under, empty where there is none.
        is_key: True where it is an object key itself.
        is_number: True where it is a number.
        scope: offset of the object or list it stands in; -1 where it is the whole text.
    """

    start: int
    end: int
    value: str
    key: str
    is_key: bool
    is_number: bool = False
    scope: int = -1


def is_json(text: str) -> bool:
    """Tell whether the whole text is one JSON object, array or string."""
    if text.lstrip(" \t\r\n")[:1] not in _OPENERS:
        return False
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def json_tokens(text: str) -> Iterator[JsonToken]:
    """Walk the strings and numbers of a valid JSON text, in their order."""
    scopes: list[tuple[str, str, int]] = []
    key = ""
    is_key = False
    for match in _TOKEN.finditer(text):
        raw = match[0]
        if raw in "{[":
            scopes.append((raw, key, match.start()))
            is_key = raw == "{"
        elif raw in "}]":
            key = scopes.pop()[1]
            is_key = False
        elif raw == ",":
            is_key = scopes[-1][0] == "{"
        elif raw == ":":
            is_key = False
        else:
            value = _decoded(raw)
            number = raw[0] != '"'
            scope = scopes[-1][2] if scopes else -1
            yield JsonToken(match.start(), match.end(), value, "" if is_key else key, is_key, number, scope)
            key = value if is_key else key


def rewrite_json(text: str, change: Callable[[JsonToken], str]) -> str:
    """Return the JSON text with every changed string or number in its new wording; the rest stays as it was.

    Args:
        text: a valid JSON text.
        change: gives the new value of a token: a string, or a `JsonNumber` to be written bare.
    """
    pieces: list[str] = []
    done = 0
    for token in json_tokens(text):
        value = change(token)
        if value is not token.value and (value != token.value or isinstance(value, JsonNumber) != token.is_number):
            pieces += (text[done : token.start], _encoded(value))
            done = token.end
    pieces.append(text[done:])
    return "".join(pieces)


def kept_apart(change: Callable[[JsonToken], str]) -> Callable[[JsonToken], str]:
    """Return a change that gives no two keys of one object the same new name: none may hide another's value."""
    taken: set[tuple[int, str]] = set()

    def apart(token: JsonToken) -> str:
        value = change(token)
        if not token.is_key:
            return value
        name, number = value, 1
        while value != token.value and (token.scope, name) in taken:
            number += 1
            name = f"{value} {number}"
        taken.add((token.scope, name))
        return name

    return apart


def _encoded(value: str) -> str:
    """Write a value as JSON; escaped only where it must be, so that escapes look like nothing else."""
    if isinstance(value, JsonNumber):
        return str(value)
    return json.dumps(value, ensure_ascii=any("\ud800" <= char <= "\udfff" for char in value))


def _decoded(raw: str) -> str:
    if raw[0] != '"':
        return raw
    return json.loads(raw, strict=False) if "\\" in raw else raw[1:-1]
