"""Tell in one pass of google-re2 (extra `fast`) which rules can match in a text at all.

Without it the gates of the rules are asked one by one; the findings are the same.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

__all__ = ["NUMBERS", "TOKENS", "Sieve", "anchor_pattern", "hex_pattern", "shape_pattern", "sieve"]

Sieve: TypeAlias = Callable[[bytes], Sequence[int]]
"""Takes a text in Latin-1, gives the numbers of the patterns that occur in it, in their order."""
TOKENS: Final = "[A-Za-z0-9_-]{20}"
NUMBERS: Final = "[0-9][0-9 .()/-]{5}"
_MEMORY: Final = 32 << 20
_SHAPES: Final = {"0": "[0-9]", "A": "[A-Z]", "a": r"[a-z\xc0-\xff]"}


def anchor_pattern(literal: bytes) -> str:
    """Return a literal that is found whatever its case."""
    return f"(?i:{re.escape(literal.decode('ascii'))})"


def shape_pattern(gate: bytes) -> str:
    """Return what has a gate as (part of) its shape."""
    return "".join(_SHAPES.get(char) or re.escape(char) for char in gate.decode("ascii"))


def hex_pattern(gate: bytes) -> str:
    """Return what has a gate as (part of) its shape of hexadecimal digits."""
    return "".join("[0-9A-Fa-f]" if char == "h" else re.escape(char) for char in gate.decode("ascii"))


def sieve(patterns: Sequence[str]) -> Sieve | None:
    """Return a sieve for these patterns, or None where google-re2 is not installed.

    Its automaton is far below its memory limit: literals and classes of fixed length.
    """
    if importlib.util.find_spec("re2") is None:
        return None
    import re2

    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.max_mem = _MEMORY
    every = re2.Set.SearchSet(options)
    for pattern in patterns:
        every.Add(pattern)
    every.Compile()
    return lambda text: sorted(every.Match(text) or ())
