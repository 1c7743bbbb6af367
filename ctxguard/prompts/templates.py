"""The grammar of a template: text, variables, and includes. Parsing takes time linear in the length of the text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Final, TypeAlias


class Variable(str):
    """A variable as written in the template, such as `{name}`. Its value is given when the prompt is loaded."""

    __slots__ = ()

    @property
    def name(self) -> str:
        """The name between the braces."""
        return self[1:-1]


@dataclass(frozen=True, slots=True)
class Include:
    """An include directive, or something that looks like a directive.

    Attributes:
        path: Path of the included template as written; None if the directive is malformed, so that the template cannot
            be used.
        text: The first 60 characters of a malformed directive, up to the end of the line; empty for a valid one.
        line: Line number of the directive, counted from 1.
    """

    path: str | None
    text: str
    line: int


Piece: TypeAlias = str | Include

# Thanks to possessive repeats and classes that stop at the next brace, the search never backtracks.
_TOKEN: Final = re.compile(
    r"""
    (?P<double>\{\{)
    | \{%-?[ \t]*+include[ \t]*+(?P<include>'[^'{}\n]++'|"[^"{}\n]++")[ \t]*+-?%\}
    | (?P<stray>\{%-?[ \t]*+(?:include\b|[^\W\d][^{}%\n]*+%\}))
    | \{(?P<variable>[^\W\d]\w*+)\}
    | (?P<single>\{)
    | (?P<close>\})
    """,
    re.VERBOSE,
)
_SINGLE: Final = -1


def parse_template(text: str) -> tuple[Piece, ...]:
    """Split a template into texts, variables, and includes, in order."""
    pieces: list[Piece] = []
    unclosed: list[int] = []  # for each open brace: the index of a doubled brace in `pieces`, or _SINGLE
    at, line, counted = 0, 1, 0
    while found := _TOKEN.search(text, at):
        pieces.append(text[at : found.start()])
        at = found.end()
        line += text.count("\n", counted, found.start())
        counted = found.start()
        match found.lastgroup:
            case "variable":
                pieces.append(Variable(found[0]))
            case "include":
                pieces.append(Include(found["include"][1:-1], "", line))
            case "close":
                at = _close(text, at, pieces, unclosed)
            case "stray":
                pieces.append(Include(None, text[counted : counted + 60].partition("\n")[0], line))
            case kind:
                unclosed.append(len(pieces) if kind == "double" else _SINGLE)
                pieces.append(found[0])
    pieces.append(text[at:])
    return tuple(_join(pieces))


def _join(pieces: list[Piece]) -> Iterator[Piece]:
    """Join adjacent texts into one, and leave out empty texts."""
    for is_text, run in groupby(pieces, lambda piece: type(piece) is str):
        if not is_text:
            yield from run
        elif text := "".join(map(str, run)):
            yield text


def _close(text: str, at: int, pieces: list[Piece], unclosed: list[int]) -> int:
    """Parse a closing brace, or the two braces that close a doubled pair. A doubled pair becomes a single pair.

    Args:
        text: The template.
        at: Offset after the first closing brace.
        pieces: The pieces so far; changed in place.
        unclosed: For each open pair so far, the index of its opening piece if it is doubled; changed in place.

    Returns:
        The offset after the brace or braces.
    """
    opened = unclosed.pop() if unclosed else _SINGLE
    pieces.append("}")
    if opened == _SINGLE:
        return at
    if text.startswith("}", at):
        pieces[opened] = "{"
        return at + 1
    unclosed.append(_SINGLE)  # as in `{{a}, {b}}`: two pairs begin at the same place, and the outer one is still open
    return at
