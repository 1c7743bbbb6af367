"""The grammar of a template: text, variables, includes. Time is linear in the text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Final, TypeAlias

from ctxguard.errors import PromptError


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable: a value is given by name when the prompt is loaded."""

    name: str


@dataclass(frozen=True, slots=True)
class Include:
    """An include: the path of another template as written, and the line of the directive, counted from 1."""

    path: str
    line: int


@dataclass(frozen=True, slots=True)
class Stray:
    """A malformed directive, which makes the template unusable: its first 60 characters and its line."""

    text: str
    line: int


Piece: TypeAlias = str | Variable | Include | Stray


@dataclass(frozen=True, slots=True)
class Template:
    """A parsed template: its name in messages, its text, and its pieces in order."""

    name: str
    text: str
    pieces: tuple[Piece, ...]

    def place(self, piece: Include | Stray) -> str:
        """Return `name:line` of a directive."""
        return f"{self.name}:{piece.line}"

    def refusal(self, stray: Stray) -> PromptError:
        """Return the error for a malformed directive."""
        remedy = "write {% include 'path.md' %}, or {{% … %}} where it is meant as text"
        return PromptError(self.place(stray), f"{stray.text!r} is not a directive; {remedy}")


# Possessive repeats, and classes that stop at the next brace: the search never backtracks.
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
    """Return the pieces of a template; `name` is its name in error messages."""
    pieces: list[Piece] = []
    unclosed: list[int] = []  # the index in `pieces` of a doubled brace, or _SINGLE
    at, line, counted = 0, 1, 0
    while found := _TOKEN.search(text, at):
        pieces.append(text[at : found.start()])
        at = found.end()
        line += text.count("\n", counted, found.start())
        counted = found.start()
        match found.lastgroup:
            case "variable":
                pieces.append(Variable(found["variable"]))
            case "include":
                pieces.append(Include(found["include"][1:-1], line))
            case "close":
                at = _close(text, at, pieces, unclosed)
            case "stray":
                pieces.append(Stray(text[counted : counted + 60].partition("\n")[0], line))
            case kind:
                unclosed.append(len(pieces) if kind == "double" else _SINGLE)
                pieces.append(found[0])
    pieces.append(text[at:])
    return Template(name, text, tuple(_joined(pieces)))


def _joined(pieces: list[Piece]) -> Iterator[Piece]:
    """Join adjacent texts into one."""
    for is_text, run in groupby(pieces, lambda piece: isinstance(piece, str)):
        if not is_text:
            yield from run
        elif text := "".join(map(str, run)):
            yield text


def _close(text: str, at: int, pieces: list[Piece], unclosed: list[int]) -> int:
    """Parse one closing brace, or both of a doubled pair, which becomes a single pair; return the offset after it."""
    opened = unclosed.pop() if unclosed else _SINGLE
    pieces.append("}")
    if opened == _SINGLE:
        return at
    if text.startswith("}", at):
        pieces[opened] = "{"
        return at + 1
    unclosed.append(_SINGLE)  # `{{a}, {b}}`: two pairs that happen to begin together, and one is still open
    return at
