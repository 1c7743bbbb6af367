"""A compiled rule: where its expression matches, and whether a match is a finding."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cached_property, lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from ctxguard.errors import ConfigError
from ctxguard.pii.detect.anchors import WORDS, Anchor, anchor_of, worth
from ctxguard.pii.detect.derived import derived
from ctxguard.pii.detect.expressions import is_number, reach, runs_on, tells_digits_apart
from ctxguard.pii.detect.normalize import PlainText

if TYPE_CHECKING:
    from ctxguard.pii.rules.rule import Rule

WINDOW: Final = 40
"""Characters before a candidate in which a context word counts."""
MEMO: Final = 20_000
"""Maximum entries of a cache."""
_FAR: Final = 1 << 30  # stands for an unlimited distance
_RUN_SIGNS: Final = frozenset("0 .()/+-")
Verdict: TypeAlias = Callable[..., bool | int]
"""Says yes or no, or how many of the characters are the finding."""


class Matcher:
    """A rule with its expressions compiled on first use, because most match in no text.

    Args:
        rule: the rule.
        order: its position in the set; the first of equal findings is kept.

    Attributes:
        heeds_words: whether some words must, or must not, precede a value.

    Raises:
        ConfigError: its validator cannot be imported.
    """

    def __init__(self, rule: Rule, order: int) -> None:
        vars(self).update(derived(rule))  # the cached properties that are in the file
        self.rule = rule
        self.order = order
        self.heeds_words = bool(rule.context or rule.quiet)
        self._validate, self._arguments = _function(rule, "validate")
        self._walk, _ = _function(rule, "walk")

    @cached_property
    def is_number(self) -> bool:
        """Whether its expression describes the shape of a number, see `is_number`."""
        return is_number(self.rule.pattern)

    @cached_property
    def tells_digits_apart(self) -> bool:
        """Whether its context words contain digits that matter."""
        return tells_digits_apart(self.rule.context) or tells_digits_apart(self.rule.quiet)

    @cached_property
    def anchor(self) -> Anchor:
        """The literals near which a match may begin."""
        return anchor_of(self.rule.pattern)

    @cached_property
    def evidence(self) -> Anchor:
        """The literals that a text to search must contain: of the expression, or its context words if rarer."""
        if self._walk is not None:
            return self.anchor
        words = self.words_before if self.rule.context else self.words_behind
        return max(self.anchor, words, key=worth)

    @cached_property
    def stands_alone(self) -> bool:
        """Whether it matches the same in a text alone and in that text between blank lines."""
        # a match across joined texts would be found in each of them, unless a validator rejects it
        farthest = WINDOW if self._validate is not None else _FAR
        return self.runs_on < farthest and runs_on(self.rule.tail) < WINDOW

    @cached_property
    def runs_on(self) -> int:
        """How far a match may extend over line breaks, see `runs_on`."""
        return runs_on(self.rule.pattern)

    @cached_property
    def words_before(self) -> Anchor:
        """The literals one of which the characters before a match must contain."""
        return anchor_of(self.rule.context, forms=(WORDS,))

    @cached_property
    def needs_word_before(self) -> bool:
        """Whether its context words contain something other than digits and their separators."""
        return _tells_word(self.words_before)

    @cached_property
    def reach(self) -> int:
        """Maximum number of characters, from the beginning of a match, that the expression depends on."""
        return reach(self.rule.pattern)

    @cached_property
    def _shapes(self) -> tuple[str, ...]:
        """Literals one of which is in the shape of each match; only the empty one if unknown."""
        literals = self.anchor.literals
        return literals if all(_RUN_SIGNS.issuperset(literal) for literal in literals) else ("",)

    def may_match(self, shape: str) -> bool:
        """Return whether a shape contains a literal that every match of this number rule has."""
        return any(literal in shape for literal in self._shapes)

    def may_stand_before(self, text: str, start: int, end: int) -> bool:
        """Return whether the words that the rule requires after a match may follow a row of numbers."""
        if not self.rule.behind or not _tells_word(self.words_behind) or self.words_behind.most is None:
            return True
        # the word follows the row, so the match ends near the end of the row
        near = self.words_behind.most + max(map(len, self.words_behind.literals))
        return any(self._behind.match(text, place) for place in range(max(start, end - near), end + 1))

    @cached_property
    def words_behind(self) -> Anchor:
        """The literals one of which the characters after a match must contain."""
        return anchor_of(self.rule.behind, forms=(WORDS,))

    def places(self, view: PlainText) -> Iterator[tuple[int, int]]:
        """Yield the matches in a text, searching only around its anchor if that is known."""
        if self.anchor.most is None or self._walk is not None:
            yield from self.everywhere(view.text)
            return
        match_at, done = self._pattern.match, 0
        for start in self._starts(view):
            # as `finditer` does: no match begins within the previous one
            match = match_at(view.text, start) if start >= done else None
            if match is not None:
                yield self._place(match)
                done = max(match.end(), start + 1)

    def everywhere(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield the matches in a whole text or shape, or the places that the rule's own function yields."""
        if self._walk is not None:
            return iter(self._walk(text))
        return map(self._place, self._pattern.finditer(text))

    def stands_after(self, before: str) -> bool:
        """Return whether the rule accepts a candidate after these characters, given in lower case."""
        if self.rule.context and self._context.search(before) is None:
            return False
        return not self.rule.quiet or self._silence.search(before) is None

    def judge(self, text: str, start: int, end: int) -> int:
        """Return how many characters of a candidate are the finding; 0 if it is not one."""
        if self.rule.behind and self._behind.match(text, end) is None:
            return 0
        # most candidates are rejected by their context; the validator may import a library
        if self._validate is None:
            return end - start
        verdict = _verdict(self._validate, text[start:end], *self._arguments)
        return end - start if verdict is True else int(verdict)

    def fault(self, text: str, end: int) -> str:
        """Return why a judged candidate is not a finding."""
        is_followed = not self.rule.behind or self._behind.match(text, end) is not None
        return "its check digits or its form are wrong" if is_followed else "no word of its context stands behind it"

    def end(self, text: str, end: int) -> int:
        """Return the end of a finding including its tail, such as a phone number's extension."""
        more = self._tail.match(text, end) if self._tail is not None else None
        return end if more is None else more.end()

    def _place(self, match: re.Match[str]) -> tuple[int, int]:
        start, end = match.span(self._group)
        # an alternative without the group may have matched
        return (start, end) if start >= 0 else match.span()

    @cached_property
    def _starts(self) -> Callable[[PlainText], Iterator[int]]:
        return self.anchor.searcher()

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        return re.compile(self.rule.pattern)

    @cached_property
    def _group(self) -> int | str:
        return "value" if "value" in self._pattern.groupindex else 0

    @cached_property
    def _context(self) -> re.Pattern[str]:
        return re.compile(self.rule.context)

    @cached_property
    def _behind(self) -> re.Pattern[str]:
        return re.compile(self.rule.behind, re.IGNORECASE)

    @cached_property
    def _silence(self) -> re.Pattern[str]:
        return re.compile(rf"(?:{self.rule.quiet})\Z")

    @cached_property
    def _tail(self) -> re.Pattern[str] | None:
        return re.compile(self.rule.tail) if self.rule.tail else None


def _tells_word(anchor: Anchor) -> bool:
    """Return whether each literal has a character that does not occur in a row of numbers."""
    return not any(_RUN_SIGNS.issuperset(literal) for literal in anchor.literals)


@lru_cache(MEMO)
def _verdict(validate: Verdict, value: str, *arguments: str) -> bool | int:
    return validate(value, *arguments)


def _function(rule: Rule, setting: str) -> tuple[Callable[..., Any] | None, list[str]]:
    """Return a function of a rule and its arguments after the text; a function given by name is imported."""
    given = getattr(rule, setting)
    if not isinstance(given, str):
        return given, []
    module, name, *arguments = given.split(":")
    try:
        return getattr(import_module(module), name), arguments
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            f"{setting} of rule {rule.name} names {given!r}, which cannot be imported: {error}", setting=setting
        ) from error
