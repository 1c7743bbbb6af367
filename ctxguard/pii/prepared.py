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
    "Prepared",
    "Surroundings",
    "Words",
    "before",
    "joined",
    "sources",
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


@dataclass(frozen=True, slots=True)
class Words:
    """Hold words that may stand before a candidate.

    Attributes:
        number: the same for the same words, so that an answer is remembered once.
        pattern: over small letters.
        literals: one of them stands in every ASCII text that the pattern matches; empty where none is known.
    """

    number: int
    pattern: re.Pattern[str]
    literals: frozenset[str]

    def stand_in(self, window: str) -> bool:
        """Tell whether one of the words stands among characters in small letters; most often literals alone tell."""
        if self.literals and window.isascii() and not any(map(window.__contains__, self.literals)):
            return False
        return self.pattern.search(window) is not None


@lru_cache(maxsize=4096)
def _words(pattern: str, *, by_literals: bool) -> Words:
    return Words(next(_NUMBERS), re.compile(pattern), words_of(pattern) if by_literals else frozenset())


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
    def group(self) -> int | str:
        """Which group of a match is the finding."""
        return "value" if "value" in self.pattern.groupindex else 0

    @cached_property
    def ascii_lead(self) -> str | None:
        """What of the lead stands in ASCII texts: many times faster to strip than all letters that addresses use."""
        return self.rule.lead and "".join(filter(str.isascii, self.rule.lead))

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
        return _words(self.rule.context, by_literals=True) if self.rule.needs_context else None

    @cached_property
    def quiet(self) -> Words | None:
        """Words right before that silence it."""
        return _words(self._source["quiet"][0], by_literals=False) if self.rule.quiet else None

    @cached_property
    def has_words(self) -> bool:
        """Tell whether the characters before a match have a say."""
        return self.rule.needs_context or bool(self.rule.quiet)

    @cached_property
    def alone(self) -> tuple[Prepared, ...]:
        """The rule as the only one that is asked for."""
        return (self,)

    @cached_property
    def tail(self) -> re.Pattern[str] | None:
        """What belongs to a finding if it follows."""
        return re.compile(self.rule.tail) if self.rule.tail else None

    def stands_after(self, window: str) -> bool:
        """Tell whether characters in small letters right before a match let it stand."""
        context, quiet = self.context, self.quiet
        if context is not None and context.pattern.search(window) is None:
            return False
        return quiet is None or quiet.pattern.search(window) is None

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


def before(text: str, start: int) -> str:
    """Return the characters before a place whose words count, in small letters."""
    return text[start - WINDOW if start > WINDOW else 0 : start].lower()


class Surroundings:
    """Remember which rules stand after which characters: the same JSON keys and phrases come again and again."""

    def __init__(self) -> None:
        self._windows: dict[str, _Before] = {}

    def standing(self, rules: tuple[Prepared, ...], text: str, start: int) -> tuple[Prepared, ...]:
        """Return those of some rules that the words before a place let stand, in their order."""
        window = text[start - WINDOW if start > WINDOW else 0 : start]
        known = self._windows.get(window)
        if known is None:
            known = self._remember(window)
        kept = known.kept.get(rules)
        return known.keep(rules) if kept is None else kept

    def _remember(self, window: str) -> _Before:
        if len(self._windows) >= MEMO:
            self._windows = {}
        known = self._windows[window] = _Before(window.lower())
        return known


class _Before:
    """Hold the characters before a place and what is known of them.

    Args:
        window: the characters, in small letters.
    """

    __slots__ = ("_answers", "_window", "kept")

    def __init__(self, window: str) -> None:
        self._window = window
        self._answers: dict[int, bool] = {}
        self.kept: dict[tuple[Prepared, ...], tuple[Prepared, ...]] = {}

    def keep(self, rules: tuple[Prepared, ...]) -> tuple[Prepared, ...]:
        """Find out which of some rules stand here."""
        kept = self.kept[rules] = tuple(filter(self._lets, rules))
        return kept

    def _lets(self, prepared: Prepared) -> bool:
        context, quiet = prepared.context, prepared.quiet
        return (context is None or self._hold(context)) and (quiet is None or not self._hold(quiet))

    def _hold(self, words: Words) -> bool:
        answer = self._answers.get(words.number)
        if answer is None:
            answer = self._answers[words.number] = words.stand_in(self._window)
        return answer


def joined(tokens: tuple[Prepared, ...]) -> re.Pattern[str] | None:
    """Return one expression that says which token rule may match at a place."""
    if not tokens:
        return None
    forms = "|".join(f"(?P<t{number}>{p.rule.pattern})" for number, p in enumerate(tokens))
    return re.compile(f"{EDGE}(?:{forms}){_STOP}")
