"""A text's shape: the same length in bytes, every digit `0`, capital `A`, small letter `a`.

`re` scans a pattern that starts with one literal byte at memory speed; in a shape all digits are one byte.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

__all__ = ["hex_shape_of", "number_windows", "shape_of", "token_starts"]


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
_TOKEN: Final = _table((_UPPER + _LOWER + _DIGITS + b"_-", b"a"))
_HEX: Final = _table((b"0123456789abcdefABCDEF", b"h"), (b"hH", b"x"))
LEFT: Final = 3
"""Characters before a run that its boundaries are judged by, and in which a `+` or a bracket may stand."""
RIGHT: Final = 2
STEP: Final = 128
"""No number is longer; a window is twice as long, so that each number is whole in one."""
_RUN: Final = re.compile(rb"0[0 .()/-]{5,}")
_LONG_TOKEN: Final = re.compile(rb"aaaaaaaaaaaaaaaaa{3,}")


def shape_of(plain: bytes) -> bytes:
    """Return the shape of a text in Latin-1; one byte a character, so that offsets are the same."""
    return plain.translate(_SHAPE)


def hex_shape_of(plain: bytes) -> bytes:
    """Return a text in Latin-1 with every hexadecimal digit as `h`; one byte a character."""
    return plain.translate(_HEX)


def number_windows(shape: bytes) -> Iterator[tuple[int, int, int, int]]:
    """Walk runs of digits and their separators, at least six characters long; long ones in overlapping windows.

    Yields:
        Where a window begins and ends with the characters around it, and between which places (the second left out) a
        number must begin to be this window's, counted from where the window begins.
    """
    for match in _RUN.finditer(shape):
        start, end = match.span()
        begin = first = max(0, start - LEFT)
        while end - start > 2 * STEP:
            yield begin, start + 2 * STEP, first - begin, start + STEP - begin
            start += STEP
            begin, first = start - LEFT, start
        yield begin, end + RIGHT, first - begin, end - begin


def token_starts(plain: bytes) -> list[int]:
    """Return where runs of at least 20 letters, digits, `_` and `-` begin: what a key or token is made of."""
    tokens = plain.translate(_TOKEN)
    if b"aaaaaaaaaaaaaaaaaaaa" not in tokens:
        return []
    return [match.start() for match in _LONG_TOKEN.finditer(tokens)]
