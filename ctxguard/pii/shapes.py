"""A text's forms: the same length, so that rules look for one literal where a text has many characters.

`re` scans a pattern that starts with one literal character at memory speed; in a shape all digits are one character.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, TypeAlias

__all__ = ["Seen", "Window", "number_windows", "token_starts"]


def _table(*classes: tuple[bytes, bytes]) -> bytes:
    table = bytearray(range(256))
    for members, to in classes:
        for member in members:
            table[member] = to[0]
    return bytes(table)


_UPPER: Final = bytes(range(ord("A"), ord("Z") + 1))
_LOWER: Final = bytes(range(ord("a"), ord("z") + 1))
_DIGITS: Final = b"0123456789"
_LATIN: Final = bytes(range(0xC0, 0x100))
_SHAPE: Final = _table((_UPPER, b"A"), (_LOWER, b"a"), (_LATIN, b"a"), (_DIGITS, b"0"))
_TOKEN: Final = _table((bytes(range(256)), b" "), (_UPPER + _LOWER + _DIGITS + b"_-", b"a"))
_HEX: Final = _table((b"0123456789abcdefABCDEF", b"h"), (b"hH", b"x"))
LEFT: Final = 3
"""Characters before a run that its boundaries are judged by, and in which a `+` or a bracket may stand."""
RIGHT: Final = 2
STEP: Final = 128
"""No number is longer; a window is twice as long, so that each number is whole in one."""
_RUN: Final = re.compile(r"0[0 .()/-]{4,}0")
_LONG_TOKEN: Final = b"a" * 20
Window: TypeAlias = tuple[str, int, int]
"""A run with the characters around it, and between which places in it (the second left out) its numbers begin."""


class Seen:
    """Hold a folded text and the forms that are searched: of the same length, each made when it is first wanted.

    Args:
        text: the folded text.
    """

    _lowered: str | None = None
    _shape: str | None = None
    _hexed: str | None = None

    def __init__(self, text: str) -> None:
        self.text = text
        self.plain = text.encode("latin-1", "replace")

    @property
    def lowered(self) -> str:
        """The text with ASCII letters small and `?` for what is not Latin-1."""
        if self._lowered is None:
            self._lowered = self.plain.lower().decode("latin-1")
        return self._lowered

    @property
    def shape(self) -> str:
        """The text with `0` for every digit, `a` for every small and `A` for every capital letter."""
        if self._shape is None:
            self._shape = self.plain.translate(_SHAPE).decode("latin-1")
        return self._shape

    @property
    def hexed(self) -> str:
        """The text with `h` for every hexadecimal digit."""
        if self._hexed is None:
            self._hexed = self.plain.translate(_HEX).decode("latin-1")
        return self._hexed


def number_windows(shape: str) -> Iterator[tuple[int, Window]]:
    """Walk runs of digits and their separators, at least six characters long; long ones in overlapping windows.

    Yields:
        Where a window begins, and the window.
    """
    for match in _RUN.finditer(shape):
        start, end = match.span()
        begin = first = start - LEFT if start > LEFT else 0
        while end - start > 2 * STEP:
            yield begin, (shape[begin : start + 2 * STEP], first - begin, start + STEP - begin)
            start += STEP
            begin, first = start - LEFT, start
        yield begin, (shape[begin : end + RIGHT], first - begin, end - begin)


def token_starts(plain: bytes) -> Iterator[int]:
    """Walk where runs of at least 20 letters, digits, `_` and `-` begin: what a key or token is made of."""
    tokens = plain.translate(_TOKEN)
    start = tokens.find(_LONG_TOKEN)
    while start >= 0:
        yield start
        end = tokens.find(b" ", start + len(_LONG_TOKEN))
        start = tokens.find(_LONG_TOKEN, end) if end >= 0 else -1
