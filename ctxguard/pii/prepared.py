"""Rules made ready to run: expressions compiled, validators at hand, and the words around a candidate remembered."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
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
    "WINDOW",
    "Prepared",
    "Surroundings",
    "Together",
    "Words",
    "before",
    "context_gate",
    "joined",
    "sources",
]

WINDOW: Final = 40
"""Characters before a candidate in which a context word counts."""
MEMO: Final = 20_000
"""Entries that one memory of an engine holds at most."""
EDGE: Final = r"(?<![A-Za-z0-9_-])(?=[A-Za-z_.:-]{0,64}+[0-9])(?![0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-)"
"""What every key and token is: at an edge, with a digit among its first characters, no UUID."""
_STOP: Final = r"(?![A-Za-z0-9_-])"
_NUMBERS: Final = count()
_NAMED: Final = re.compile(r"\(\?P[<=]")
_NOT_JOINED: Final = re.compile(r"\\[1-9]|\(\?(?:\(|[aiLmsux-]+[:)])")
"""A group that is meant by its number, which is another one where expressions are joined, or flags of the whole."""
_SIGN: Final = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|[(|)]", re.DOTALL)
Verdict: TypeAlias = Callable[[str], bool | int]
"""Says yes or no, or how many of the characters are the finding."""


@dataclass(frozen=True, slots=True)
class Words:
    """Hold words that may stand before a candidate.

    Attributes:
        number: the same for the same words, so that an answer is remembered once.
        pattern: over small letters.
        literals: finds one that stands in every ASCII text that the pattern matches; None where none is known.
    """

    number: int
    pattern: re.Pattern[str]
    literals: re.Pattern[str] | None

    def stand_in(self, window: str) -> bool:
        """Tell whether one of the words stands among characters in small letters; most often literals alone tell."""
        if self.literals is not None and window.isascii() and self.literals.search(window) is None:
            return False
        return self.pattern.search(window) is not None


@lru_cache(maxsize=4096)
def _words(pattern: str, *, by_literals: bool) -> Words:
    literals = "|".join(map(re.escape, sorted(words_of(pattern)))) if by_literals else ""
    return Words(next(_NUMBERS), re.compile(pattern), re.compile(literals) if literals else None)


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
    def places(self) -> Callable[[str], Iterator[int]] | None:
        """What finds where a match may begin (with a lead: stand around); None where every place is tried.

        Over the shape, the text with `h` for hexadecimal digits, or the text, in small letters if the anchor has any.
        """
        if self.rule.shape:
            return partial(_starts, re.compile(self.rule.shape))
        if self.rule.lead is None:
            return None
        if self.rule.anchor.isascii():
            return partial(_occurrences, self.gate.literal)
        return partial(_starts, re.compile(re.escape(self.rule.anchor), re.IGNORECASE))

    @cached_property
    def context(self) -> Words | None:
        """Words one of which must stand before."""
        return _words(self.rule.context, by_literals=True) if self.rule.needs_context else None

    @cached_property
    def quiet(self) -> Words | None:
        """Words right before that silence it."""
        return _words(self._source["quiet"][0], by_literals=False) if self.rule.quiet else None

    @cached_property
    def words(self) -> tuple[tuple[Words, bool], ...]:
        """Words that have a say, and whether they must stand before or must not."""
        said = ((self.context, True), (self.quiet, False))
        return tuple((words, wanted) for words, wanted in said if words is not None)

    @cached_property
    def has_letters(self) -> bool:
        """Tell whether the gate's literal is looked for whatever its case."""
        return self.gate.literal.upper() != self.gate.literal

    @cached_property
    def has_words(self) -> bool:
        """Tell whether the characters before a match have a say."""
        return self.rule.needs_context or bool(self.rule.quiet)

    @cached_property
    def alone(self) -> Together:
        """The rule as the only one that is asked for."""
        return Together((self,))

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
            return seen.lowered if self.has_letters else seen.text
        return seen.hexed if self.gate.form == "hex" else seen.shape


def sources(rule: Rule) -> Iterator[tuple[str, str, int]]:
    """Walk the expressions of a rule: the field, the expression as it is compiled, and its flags."""
    source = f"{EDGE}(?:{rule.pattern}){_STOP}" if rule.kind == "token" else rule.pattern
    yield "pattern", source, re.ASCII if rule.kind == "number" else 0
    yield "context", rule.context, 0
    yield "quiet", rf"(?:{rule.quiet})\Z", 0
    yield "tail", rule.tail, 0
    yield "shape", rule.shape, 0


def _starts(pattern: re.Pattern[str], form: str) -> Iterator[int]:
    """Walk where an expression matches."""
    return (match.start() for match in pattern.finditer(form))


def _occurrences(literal: str, form: str) -> Iterator[int]:
    """Walk where a literal stands, faster than an expression would."""
    place = form.find(literal)
    while place >= 0:
        yield place
        place = form.find(literal, place + max(1, len(literal)))


def _gate(rule: Rule) -> Gate:
    if not rule.shape:
        # a form of a text holds Latin-1 alone, and small letters of ASCII alone: for another anchor the gate is open
        return Gate("anchor", rule.anchor.lower() if rule.anchor.isascii() else "")
    return Gate("hex" if "h" in rule.shape else "shape", rule.gate, rule.shape)


def context_gate(rule: Rule) -> Gate | None:
    """Return the gate that is open in an ASCII text with a context word of a rule; None where that is not worth it."""
    literals = words_of(rule.context) if rule.rare_context and rule.needs_context else ()
    either = "|".join(map(re.escape, sorted(literals)))
    return Gate("digits", "", f"(?i:{either})") if either else None


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


@dataclass(frozen=True, slots=True, eq=False)
class Together:
    """Hold the rules that find the same characters, the surest first.

    Attributes:
        rules: the rules.
        gates: numbers of gates one of which is open in every ASCII text that they find something in; none where that is
            not known of all of them.
        known: which of them stand after which characters, as far as is remembered.
    """

    rules: tuple[Prepared, ...]
    gates: frozenset[int] = frozenset()
    known: dict[str, tuple[Prepared, ...]] = field(default_factory=dict, repr=False)

    def standing_after(self, window: str) -> tuple[Prepared, ...]:
        """Return those of the rules that characters in small letters right before let stand."""
        answers: dict[int, bool] = {}
        kept = []
        for rule in self.rules:
            for words, wanted in rule.words:
                answer = answers.get(words.number)
                if answer is None:
                    answer = answers[words.number] = words.stand_in(window)
                if answer is not wanted:
                    break
            else:
                kept.append(rule)
        return tuple(kept)


class Surroundings:
    """Remember which rules stand after which characters: the same JSON keys and phrases come again and again."""

    def __init__(self) -> None:
        self._remembered: list[Together] = []

    def standing(self, together: Together, text: str, start: int) -> tuple[Prepared, ...]:
        """Return those of some rules that the words before a place let stand, in their order."""
        window = text[start - WINDOW if start > WINDOW else 0 : start]
        kept = together.known.get(window)
        return self._remember(together, window) if kept is None else kept

    def _remember(self, together: Together, window: str) -> tuple[Prepared, ...]:
        if len(self._remembered) >= MEMO:
            forgotten, self._remembered = self._remembered, []
            for one in forgotten:
                one.known.clear()
        self._remembered.append(together)
        kept = together.known[window] = together.standing_after(window.lower())
        return kept


def joined(tokens: tuple[Prepared, ...]) -> re.Pattern[str] | None:
    """Return one expression that says which token rule may match at a place.

    The groups that say it are empty and stand last: in front they would keep `re` from passing over an alternative by
    its first character.
    """
    if not tokens:
        return None
    forms = "|".join(f"(?:{p.rule.pattern})(?P<t{number}>)" for number, p in enumerate(tokens))
    return re.compile(f"{EDGE}(?:{forms}){_STOP}")
