"""Rules made ready to run: expressions compiled, validators at hand, and the words around a candidate remembered."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from importlib import import_module
from itertools import count
from typing import TYPE_CHECKING, Final, TypeAlias

from ctxguard.errors import ConfigError
from ctxguard.pii.gates import Gate
from ctxguard.pii.literals import width_of, words_of
from ctxguard.pii.shapes import Seen

if TYPE_CHECKING:
    from ctxguard.pii.rules import Rule

__all__ = [
    "EDGE",
    "MEMO",
    "NOTHING",
    "Before",
    "Prepared",
    "Surroundings",
    "Words",
    "joined",
    "sources",
    "stands",
]

WINDOW: Final = 40
"""Characters before a candidate in which a context word counts."""
MEMO: Final = 20_000
"""Entries that one memory of an engine holds at most."""
EDGE: Final = r"(?<![A-Za-z0-9_-])(?=[A-Za-z_.:-]{0,64}[0-9])(?![0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-)"
"""What every key and token is: at an edge, with a digit among its first characters, no UUID."""
_STOP: Final = r"(?![A-Za-z0-9_-])"
_NUMBERS: Final = count()
Verdict: TypeAlias = Callable[[str], bool | int]
"""Says yes or no, or how many of the characters are the finding."""
Before: TypeAlias = tuple[str, dict[int, bool]]
"""The characters before a candidate in small letters, and which words are known to stand there."""
NOTHING: Final[Before] = ("", {})


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


class Prepared:
    """Hold a rule made ready; its expressions are compiled when they are first wanted, which most are in no text.

    Args:
        rule: the rule.
        order: its place in the set; the first of equal findings is kept.

    Raises:
        ConfigError: its validator is not there.
    """

    def __init__(self, rule: Rule, order: int) -> None:
        self.rule = rule
        self.order = order
        self.gate = _gate(rule)
        self.is_valid = _function(rule)
        self._source = {field: (expression, flags) for field, expression, flags in sources(rule)}

    @property
    def rank(self) -> tuple[float, int]:
        """Where it stands among rules that find the same characters: the surest first, then the first of the set."""
        return -self.rule.score, self.order

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """Over the text, or over the shape for number rules."""
        return re.compile(*self._source["pattern"])

    @cached_property
    def width(self) -> int:
        """Characters that a match has at least."""
        return width_of(self._source["pattern"][0])

    @cached_property
    def words(self) -> frozenset[str]:
        """What an ASCII text with a finding holds one of; nothing where that is not known."""
        return words_of(self.rule.context) if self.rule.needs_context else frozenset()

    @cached_property
    def group(self) -> int | str:
        """Which group of a match is the finding."""
        return "value" if "value" in self.pattern.groupindex else 0

    @cached_property
    def places(self) -> re.Pattern[str] | None:
        """Where a match may begin (or, with a lead, stand around); None where the pattern is searched everywhere.

        Over the shape, the text with `h` for hexadecimal digits, or the text in small letters.
        """
        if self.rule.shape:
            return re.compile(self.rule.shape)
        return None if self.rule.lead is None else re.compile(re.escape(self.gate.literal))

    @cached_property
    def context(self) -> Words | None:
        """Words one of which must stand before."""
        return _words(self.rule.context) if self.rule.needs_context else None

    @cached_property
    def quiet(self) -> Words | None:
        """Words right before that silence it."""
        return _words(self._source["quiet"][0]) if self.rule.quiet else None

    @cached_property
    def tail(self) -> re.Pattern[str] | None:
        """What belongs to a finding if it follows."""
        return re.compile(self.rule.tail) if self.rule.tail else None

    def form(self, seen: Seen) -> str:
        """Return the form of a text that the gate and the places are searched in."""
        if self.gate.form == "anchor":
            return seen.lowered
        return seen.hexed if self.gate.form == "hex" else seen.shape


def sources(rule: Rule) -> Iterator[tuple[str, str, int]]:
    """Walk the expressions of a rule: the field, the expression as it is compiled, and its flags."""
    source = f"{EDGE}(?:{rule.pattern}){_STOP}" if rule.kind == "token" else rule.pattern
    yield "pattern", source, re.ASCII if rule.kind == "number" else 0
    yield "context", rule.context, 0
    yield "quiet", rf"(?:{rule.quiet})\Z", 0
    yield "tail", rule.tail, 0
    yield "shape", rule.shape, 0


def _gate(rule: Rule) -> Gate:
    if not rule.shape:
        return Gate("anchor", rule.anchor.lower())
    return Gate("hex" if "h" in rule.shape else "shape", rule.gate, rule.shape)


def _function(rule: Rule) -> Verdict | None:
    """Return the validator; one given by name (`module:function:argument`) is imported."""
    if not isinstance(rule.validate, str):
        return rule.validate
    module, name, *arguments = rule.validate.split(":")
    try:
        function: Callable[..., bool | int] = getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            f"validate of rule {rule.name} names {rule.validate!r}, which cannot be imported: {error}",
            setting="validate",
        ) from error
    return partial(_asked, function, arguments[0]) if arguments else function


def _asked(function: Callable[..., bool | int], argument: str, value: str) -> bool | int:
    return function(value, argument)


class Surroundings:
    """Remember which words stand before a candidate: the same JSON keys and phrases come again and again.

    Args:
        remembers: False asks anew every time.
    """

    def __init__(self, *, remembers: bool) -> None:
        self._remembers = remembers
        self._windows: dict[str, Before] = {}

    def of(self, text: str, start: int) -> Before:
        """Return the characters before a place in small letters, and what is known about them."""
        window = text[start - WINDOW if start > WINDOW else 0 : start]
        known = self._windows.get(window)
        if known is None:
            known = (window.lower(), {})
            if self._remembers:
                if len(self._windows) >= MEMO:
                    self._windows = {}
                self._windows[window] = known
        return known


def stands(words: Words, before: Before) -> bool:
    """Tell whether one of the words is among the characters before a place."""
    window, known = before
    answer = known.get(words.number)
    if answer is None:
        answer = known[words.number] = words.pattern.search(window) is not None
    return answer


def joined(tokens: tuple[Prepared, ...]) -> re.Pattern[str] | None:
    """Return one expression that says which token rule may match at a place."""
    if not tokens:
        return None
    forms = "|".join(f"(?P<t{number}>{p.rule.pattern})" for number, p in enumerate(tokens))
    return re.compile(f"{EDGE}(?:{forms}){_STOP}")
