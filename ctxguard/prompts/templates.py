"""The grammar of a template: text, variables, includes. Time is linear in the text."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Final, TypeAlias

from ctxguard.errors import PromptError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Include", "Piece", "Template", "Variable", "parse_template"]


@dataclass(frozen=True, slots=True)
class Variable:
    """Stand for a value that is given when the prompt is loaded.

    Attributes:
        name: a plain identifier.
    """

    name: str


@dataclass(frozen=True, slots=True)
class Include:
    """Stand for another template.

    Attributes:
        path: as it is written.
        position: characters before the directive.
    """

    path: str
    position: int


Piece: TypeAlias = str | Variable | Include


@dataclass(frozen=True, slots=True)
class Template:
    """Hold a parsed template.

    Attributes:
        name: what messages call it.
        text: as it was read.
        pieces: what it is made of, in order.
    """

    name: str
    text: str
    pieces: tuple[Piece, ...]

    def place(self, position: int) -> str:
        """Return `name:line` of a position."""
        return _place(self.name, self.text, position)


# Possessive repeats, and classes that stop at the next brace: no text makes the search go back.
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


def parse_template(text: str, name: str) -> Template:
    """Return the pieces of a template.

    Args:
        text: the template.
        name: what error messages call it.

    Raises:
        PromptError: there is a directive in it that is no well-formed include.
    """
    pieces: list[Piece] = []
    unclosed: list[int] = []  # where in `pieces` a doubled brace stands, or that it is a single one
    at = 0
    while found := _TOKEN.search(text, at):
        pieces.append(text[at : found.start()])
        at = found.end()
        match found.lastgroup:
            case "variable":
                pieces.append(Variable(found["variable"]))
            case "include":
                pieces.append(Include(found["include"][1:-1], found.start()))
            case "close":
                at = _close(text, at, pieces, unclosed)
            case "stray":
                raise _stray(text, name, found.start())
            case kind:
                unclosed.append(len(pieces) if kind == "double" else _SINGLE)
                pieces.append(found[0])
    pieces.append(text[at:])
    return Template(name, text, tuple(_joined(pieces)))


def _joined(pieces: list[Piece]) -> Iterator[Piece]:
    """Make one text of those that stand side by side."""
    for is_text, run in groupby(pieces, lambda piece: isinstance(piece, str)):
        if not is_text:
            yield from run
        elif text := "".join(map(str, run)):
            yield text


def _close(text: str, at: int, pieces: list[Piece], unclosed: list[int]) -> int:
    """Take one closing brace, or both of a doubled pair, which makes it a single pair; return where to go on."""
    opened = unclosed.pop() if unclosed else _SINGLE
    pieces.append("}")
    if opened == _SINGLE:
        return at
    if text.startswith("}", at):
        pieces[opened] = "{"
        return at + 1
    unclosed.append(_SINGLE)  # `{{a}, {b}}`: two pairs that happen to begin together, and one is still open
    return at


def _stray(text: str, name: str, position: int) -> PromptError:
    shown = text[position : position + 60].partition("\n")[0]
    return PromptError(
        _place(name, text, position),
        f"{shown!r} is no directive; write {{% include 'path.md' %}}, or {{{{% … %}}}} where it is meant as text",
    )


def _place(name: str, text: str, position: int) -> str:
    return f"{name}:{text.count(chr(10), 0, position) + 1}"
