"""Tell cheaply which rules can match in a text at all: in one pass of google-re2 (extra `fast`), or gate by gate.

The findings are the same.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal, NamedTuple, TypeAlias

from ctxguard.pii.shapes import Seen

__all__ = ["NUMBERS", "TOKENS", "Gate", "Opened", "gatekeeper", "plain_gatekeeper"]

Opened: TypeAlias = Callable[[Seen], Sequence[int]]
"""Takes a text, gives the numbers of the gates that are open, in any order."""
_MEMORY: Final = 32 << 20
_MEMBERS: Final = {"shape": {"0": "0-9", "A": "A-Z", "a": r"a-z\xc0-\xff"}, "hex": {"h": "0-9A-Fa-f"}}
"""What one character of a form stands for."""
_RARE: Final = "~`^|=@/_z\\q:-.jxkvwbpy"
"""Characters by how rare they are in messages, the rarest first; all others are common."""
_SHAPE_PART: Final = re.compile(r"\\.|\[[^\]]*\]|\{[^}]*\}|.")
_COMMON: Final = ("000000", "00 00 00", "A0", "0")
"""Gates over the shape that hold one of these are not even looked at where a text does not."""


class Gate(NamedTuple):
    """Say what a text must hold for a rule to match.

    Attributes:
        form: `anchor`: a literal in small letters, found whatever its case; `shape` and `hex`: one in these forms of
            the text; `digits`: any digit.
        literal: the literal; always there where it is empty.
        pattern: the same in full, where the literal is only a part: an expression over the form, of the digits over the
            text.
    """

    form: Literal["anchor", "shape", "hex", "digits"]
    literal: str
    pattern: str = ""


TOKENS: Final = Gate("digits", "", "[0-9]")
"""No run of twenty: its length, next to the beginnings of all literals, would make the automaton twice as large."""
NUMBERS: Final = Gate("digits", "", "[0-9][0-9 .()/-]{5}")


def gatekeeper(gates: Sequence[Gate]) -> Opened:
    """Return what opens these gates: by google-re2 where it is installed.

    Its automaton is far below its memory limit: literals and classes of fixed length.
    """
    if importlib.util.find_spec("re2") is None:
        return plain_gatekeeper(gates)
    import re2

    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.max_mem = _MEMORY
    every = re2.Set.SearchSet(options)
    for gate in gates:
        every.Add(_expression(gate))
    every.Compile()
    match = every.Match

    def opened(seen: Seen) -> Sequence[int]:
        return match(seen.plain) or ()

    return opened


def plain_gatekeeper(gates: Sequence[Gate]) -> Opened:
    """Return what opens these gates one by one."""
    numbered = list(enumerate(gates))
    anchors = [(_rarest(gate.literal), gate.literal, number) for number, gate in numbered if gate.form == "anchor"]
    hexes = [(_rarest(gate.literal), gate.literal, number) for number, gate in numbered if gate.form == "hex"]
    digits = [number for number, gate in numbered if gate.form == "digits"]
    shaped = [(_common(gate.literal), gate.literal, number) for number, gate in numbered if gate.form == "shape"]
    commons = [(common, [one[1:] for one in shaped if one[0] == common]) for common in _COMMON]

    def opened(seen: Seen) -> Sequence[int]:
        lowered, hexed, shape = seen.lowered, seen.hexed, seen.shape
        numbers = [number for rare, literal, number in anchors if rare in lowered and literal in lowered]
        numbers += [number for rare, literal, number in hexes if rare in hexed and literal in hexed]
        if "0" not in shape:
            return numbers
        for common, members in commons:
            if members and common in shape:
                numbers += [number for literal, number in members if literal in shape]
        return numbers + digits

    return opened


def _rarest(literal: str) -> str:
    """Return the character of a literal that texts hold least often: looked for alone, it is found at memory speed."""
    return min(literal, key=lambda char: (_RARE + char).index(char), default="")


def _common(literal: str) -> str:
    return next(common for common in _COMMON if common in literal)


def _expression(gate: Gate) -> str:
    if gate.form == "anchor":
        return f"(?i:{re.escape(gate.literal)})"
    return gate.pattern if gate.form == "digits" else _spelt(gate.pattern, _MEMBERS[gate.form])


def _spelt(shape: str, members: Mapping[str, str]) -> str:
    """Return an expression over a form of the text as one over the text: `0` becomes `[0-9]`, `[ 0A]` `[ 0-9A-Z]`."""
    pieces = []
    for match in _SHAPE_PART.finditer(shape):
        part = match[0]
        if part[0] == "[":
            part = "".join(members.get(char, char) for char in part)
        elif part in members:
            part = f"[{members[part]}]"
        pieces.append(part)
    return "".join(pieces)
