"""Rules made ready to run: expressions compiled, validators at hand, and the words around a candidate remembered."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from itertools import count
from typing import TYPE_CHECKING, Final, TypeAlias

from ctxguard.pii.gates import anchor_pattern, hex_pattern, shape_pattern

if TYPE_CHECKING:
    from ctxguard.pii.rules import Rule

__all__ = ["MEMO", "Prepared", "Surroundings", "Words", "joined", "prepare", "stands"]

WINDOW: Final = 40
"""Characters before a candidate in which a context word counts."""
MEMO: Final = 20_000
"""Entries that one memory of an engine holds at most."""
_EDGE: Final = r"(?<![A-Za-z0-9_-])(?=[A-Za-z_.:-]{0,64}[0-9])(?![0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-)"
"""What every key and token is: at an edge, with a digit among its first characters, no UUID."""
_STOP: Final = r"(?![A-Za-z0-9_-])"
_NUMBERS: Final = count()
Verdict: TypeAlias = Callable[[str], bool | int]
"""Says yes or no, or how many of the characters are the finding."""


@dataclass(frozen=True, slots=True)
class Words:
    """Hold words that may stand before a candidate.

    Attributes:
        number: the same for the same words, so that an answer is remembered once.
        pattern: over small letters.
    """

    number: int
    pattern: re.Pattern[str]


@lru_cache(maxsize=4096)
def _words(pattern: str) -> Words:
    return Words(next(_NUMBERS), re.compile(pattern))


@dataclass(frozen=True, slots=True)
class Prepared:
    """Hold a rule with its expressions compiled.

    Attributes:
        rule: the rule.
        pattern: over the text, or over the shape for number rules.
        on_shape: the pattern of a number rule, over the shape in bytes.
        shape: where a match may begin, over the shape.
        places: the same, or the anchor in small letters; None where the pattern is searched everywhere.
        gate: what the shape or the text in small letters must contain.
        context: words one of which must stand before.
        quiet: words right before that silence it.
        tail: what belongs to a finding if it follows.
        is_valid: judges the matched text.
        group: which group of a match is the finding.
    """

    rule: Rule
    pattern: re.Pattern[str]
    on_shape: re.Pattern[bytes] | None
    shape: re.Pattern[bytes] | None
    places: re.Pattern[bytes] | None
    gate: bytes
    context: Words | None
    quiet: Words | None
    tail: re.Pattern[str] | None
    is_valid: Verdict | None
    group: int | str

    @property
    def is_hex(self) -> bool:
        """True where places and gate are over the text with hexadecimal digits as `h`."""
        return "h" in self.rule.shape

    @property
    def sieve_pattern(self) -> str:
        """What a text must hold for the rule to match, as an expression of google-re2."""
        if self.shape is None:
            return anchor_pattern(self.gate)
        return hex_pattern(self.gate) if self.is_hex else shape_pattern(self.gate)


def prepare(rule: Rule) -> Prepared:
    """Compile a rule."""
    number = rule.kind == "number"
    source = {"number": f"(?=({rule.pattern}))", "token": f"{_EDGE}(?:{rule.pattern}){_STOP}"}.get(
        rule.kind, rule.pattern
    )
    shape = re.compile(rule.shape.encode("ascii")) if rule.shape else None
    anchor = rule.anchor.lower().encode("ascii")
    return Prepared(
        rule,
        re.compile(source),
        re.compile(source.encode("ascii")) if number else None,
        shape,
        shape if rule.lead is None or shape is not None else re.compile(re.escape(anchor)),
        rule.gate.encode("ascii") if rule.shape else anchor,
        _words(rule.context) if rule.needs_context else None,
        _words(rf"(?:{rule.quiet})\Z") if rule.quiet else None,
        re.compile(rule.tail) if rule.tail else None,
        _function(rule.validate),
        1 if number else ("value" if "(?P<value>" in source else 0),
    )


def _function(validate: str | Verdict | None) -> Verdict | None:
    """Return a validator; one given by name (`module:function:argument`) is imported when it is first asked."""
    if not isinstance(validate, str):
        return validate
    module, name, *arguments = validate.split(":")
    return lambda value: _imported(module, name)(value, *arguments)


@lru_cache(maxsize=256)
def _imported(module: str, name: str) -> Callable[..., bool | int]:
    function: Callable[..., bool | int] = getattr(import_module(module), name)
    return function


class Surroundings:
    """Remember which words stand before a candidate: the same JSON keys and phrases come again and again.

    Args:
        remembers: False asks anew every time.
    """

    def __init__(self, *, remembers: bool) -> None:
        self._remembers = remembers
        self._windows: dict[str, dict[int, bool]] = {}

    def of(self, text: str, start: int) -> tuple[str, dict[int, bool]]:
        """Return the characters before a place, and what is known about them."""
        window = text[max(0, start - WINDOW) : start]
        known = self._windows.get(window)
        if known is None:
            known = {}
            if self._remembers:
                if len(self._windows) >= MEMO:
                    self._windows = {}
                self._windows[window] = known
        return window, known


def stands(words: Words, before: tuple[str, dict[int, bool]]) -> bool:
    """Tell whether one of the words is among the characters before a place."""
    window, known = before
    answer = known.get(words.number)
    if answer is None:
        answer = known[words.number] = words.pattern.search(window.lower()) is not None
    return answer


def joined(tokens: tuple[Prepared, ...]) -> re.Pattern[str] | None:
    """Return one expression that says which token rule may match at a place."""
    if not tokens:
        return None
    forms = "|".join(f"(?P<t{number}>{p.rule.pattern})" for number, p in enumerate(tokens))
    return re.compile(f"{_EDGE}(?:{forms}){_STOP}")
