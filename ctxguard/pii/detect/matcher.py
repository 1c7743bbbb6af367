"""A compiled rule: where its expression matches, and whether a match is a finding."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property, lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from ctxguard.errors import ConfigError
from ctxguard.pii.detect.anchors import SHAPE, WORDS, Anchor, anchor_of, worth
from ctxguard.pii.detect.derived import derived
from ctxguard.pii.detect.expressions import between, is_beyond_ascii, is_number, reach, runs_on, tells_digits_apart
from ctxguard.pii.detect.normalize import PlainText

if TYPE_CHECKING:
    from ctxguard.pii.detect.tables import Windows
    from ctxguard.pii.rules.rule import Rule

WINDOW: Final = 40
"""Number of characters before a candidate that are searched for context words."""
MEMO: Final = 20_000
"""Maximum number of entries in a cache."""
_FAR: Final = 1 << 30  # more than any limited repeat
# The search of an expression is limited to parts of a text only if its matches are not much longer than these.
_FARTHEST_REACH: Final = 1_000
_RUN_SIGNS: Final = frozenset("0 .()/+-")
Verdict: TypeAlias = Callable[..., bool | int]
"""A validator: returns whether a match is a finding, or the number of leading characters that are the finding."""


class Matcher:
    """A rule whose expressions are compiled on first use, because most expressions are never needed.

    Args:
        rule: The rule.
        order: The index of the rule in its set. Of equal findings, the one with the lowest index is kept.

    Attributes:
        heeds_words: Whether the rule depends on the words before a match.

    Raises:
        ConfigError: If a function of the rule cannot be imported.
    """

    def __init__(self, rule: Rule, order: int) -> None:
        vars(self).update(derived(rule))  # fill the cached properties from the file of derived properties
        self.rule = rule
        self.order = order
        self.heeds_words = bool(rule.context or rule.quiet)
        self._validate, self._arguments = _function(rule, "validate")
        self._walk, self._walk_arguments = _function(rule, "walk")

    @cached_property
    def is_number(self) -> bool:
        """Whether the rule's expression describes the shape of a number, see `expressions.is_number`."""
        return is_number(self.rule.pattern)

    @cached_property
    def tells_digits_apart(self) -> bool:
        """Whether the context words of the rule distinguish between digits."""
        return tells_digits_apart(self.rule.context) or tells_digits_apart(self.rule.quiet)

    @cached_property
    def anchor(self) -> Anchor:
        """The literals of the expression, and how far from a literal a match may begin."""
        return anchor_of(self.rule.pattern, forms=(SHAPE,)) if self.is_number else anchor_of(self.rule.pattern)

    @cached_property
    def evidence(self) -> Anchor:
        """The literals that decide whether a text is searched: it must contain at least one of them.

        These are the literals of the expression or those of the required context words, whichever are rarer.
        """
        if self._walk is not None:
            return self.anchor
        words = self.words_before if self.rule.context else self.words_behind
        return max(self.anchor, words, key=worth)

    @cached_property
    def stands_alone(self) -> bool:
        """Whether the rule matches the same in a text alone and in that text between blank lines."""
        # a match across joined texts would be found in each of them, unless a validator rejects it
        farthest = WINDOW if self._validate is not None else _FAR
        return self.runs_on < farthest and runs_on(self.rule.tail) < WINDOW

    @cached_property
    def runs_on(self) -> int:
        """Maximum number of line breaks that a repeat in a match can contain, see `expressions.runs_on`."""
        return runs_on(self.rule.pattern)

    @cached_property
    def words_before(self) -> Anchor:
        """The literals of the context words; at least one literal must occur in the characters before a match."""
        anchor = anchor_of(self.rule.context, forms=(WORDS,))
        # a quote in the context may be escaped in the text, and then has a backslash before it
        parts = (max(literal.split('"'), key=len) for literal in anchor.literals)
        return replace(anchor, literals=tuple(dict.fromkeys(parts)))

    @cached_property
    def needs_word_before(self) -> bool:
        """Whether every context word contains something other than digits and their separators."""
        return _contains_words(self.words_before)

    @cached_property
    def reach(self) -> int:
        """Maximum number of characters, counted from the start of a match, on which the match depends."""
        return reach(self.rule.pattern)

    @cached_property
    def shapes(self) -> tuple[str, ...]:
        """Literals of which the shape of every match contains at least one; one empty literal if they are unknown."""
        literals = self.anchor.literals
        return literals if all(_RUN_SIGNS.issuperset(literal) for literal in literals) else ("",)

    def may_match(self, shape: str) -> bool:
        """Return whether this number rule may match in a shape, judging by the literals that its matches contain.

        A shape is a piece of text with `0` in place of every digit.
        """
        return any(literal in shape for literal in self.shapes)

    def may_stand_before(self, text: str, start: int, end: int) -> bool:
        """Return whether the rule may match in a row of numbers, judging by the text that it requires after a match.

        Args:
            text: The text.
            start: Start offset of the row.
            end: End offset of the row.
        """
        if not self.rule.behind or not _contains_words(self.words_behind) or self.words_behind.most is None:
            return True
        # the word follows the row, so the match ends near the end of the row
        near = self.words_behind.most + max(map(len, self.words_behind.literals))
        return any(self._behind.match(text, place) for place in range(max(start, end - near), end + 1))

    @cached_property
    def words_behind(self) -> Anchor:
        """The literals of the text that the rule requires after a match; at least one literal must occur there."""
        return anchor_of(self.rule.behind, forms=(WORDS,))

    @cached_property
    def is_near_words(self) -> bool:
        """Whether a search may be limited to the text after the rule's context words."""
        return bool(self.rule.context) and self._walk is None and "\n" in self.between and self.reach < _FARTHEST_REACH

    @cached_property
    def is_beyond_ascii(self) -> bool:
        """Whether each match contains a non-ASCII character, see `expressions.is_beyond_ascii`."""
        return self._walk is None and is_beyond_ascii(self.rule.pattern)

    @cached_property
    def between(self) -> str:
        """Some characters that never occur in a match, so that no match extends over them."""
        return between(self.rule.pattern)

    def warm(self) -> None:
        """Compile all expressions of the rule now rather than when they are first needed."""
        for name in ("_pattern", "_context", "_behind", "_silence", "_tail"):
            getattr(self, name)
        if self._walk is not None:
            list(self._walk("", *self._walk_arguments))

    def places(self, view: PlainText, windows: Windows | None = None) -> Iterator[tuple[int, int]]:
        """Yield the start and end offset of each match, searching only near the anchor's literals if possible.

        Args:
            view: The text.
            windows: The parts of the text in which findings may begin; None means all of it. Matches outside of them
                may be omitted.
        """
        if windows is not None:
            yield from self._places_within(view, windows)
            return
        if self.anchor.most is None or self._walk is not None:
            yield from self.everywhere(view.text)
            return
        match_at, done = self._pattern.match, 0
        for start in self._starts(view):
            # like `finditer`: no match begins within the previous match
            match = match_at(view.text, start) if start >= done else None
            if match is not None:
                yield self._place(match)
                done = max(match.end(), start + 1)

    def _places_within(self, view: PlainText, windows: Windows) -> Iterator[tuple[int, int]]:
        text, form, done = view.text, view.form(self.anchor.form.table), 0
        for begin, end in windows:
            # like `finditer` from the beginning of the text: no match extends over the character before `start`
            start = max([done, *(text.rfind(char, done, begin) + 1 for char in self.between)])
            if self.anchor.is_within(form, start, end):
                for match in self._pattern.finditer(text, start, end + self.reach + 1):
                    if match.start() > end:
                        break
                    yield self._place(match)
                    done = match.end()
            done = max(done, end + 1)

    def everywhere(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield the start and end offset of each candidate in a whole text or shape.

        The candidates are the matches of the expression, or the results of the rule's `walk` function.
        """
        if self._walk is not None:
            return iter(self._walk(text, *self._walk_arguments))
        return map(self._place, self._pattern.finditer(text))

    def stands_after(self, before: str) -> bool:
        """Return whether the rule accepts a candidate after these characters, which must be in lower case."""
        if self.rule.context and self._context.search(before) is None:
            return False
        return not self.rule.quiet or self._silence.search(before) is None

    def judge(self, text: str, start: int, end: int) -> int:
        """Return the number of leading characters of a candidate that are the finding; 0 if it is not a finding.

        The context words before the candidate are not checked here, see `stands_after`.
        """
        if self.rule.behind and self._behind.match(text, end) is None:
            return 0
        # most candidates are rejected by their context; the validator may import a library
        if self._validate is None:
            return end - start
        verdict = _verdict(self._validate, text[start:end], *self._arguments)
        return end - start if verdict is True else int(verdict)

    def fault(self, text: str, end: int) -> str:
        """Return the reason why `judge` rejected a candidate, as a message for the user."""
        is_followed = not self.rule.behind or self._behind.match(text, end) is not None
        return "its check digits or its form are wrong" if is_followed else "none of its context words is after it"

    def end(self, text: str, end: int) -> int:
        """Return the end offset of a finding including its tail, such as a phone extension."""
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
        return compiled(self.rule.pattern)

    @cached_property
    def _group(self) -> int | str:
        return "value" if "value" in self._pattern.groupindex else 0

    @cached_property
    def _context(self) -> re.Pattern[str]:
        return compiled(self.rule.context)

    @cached_property
    def _behind(self) -> re.Pattern[str]:
        return compiled(self.rule.behind, re.IGNORECASE)

    @cached_property
    def _silence(self) -> re.Pattern[str]:
        return compiled(rf"(?:{self.rule.quiet})\Z")

    @cached_property
    def _tail(self) -> re.Pattern[str] | None:
        return compiled(self.rule.tail) if self.rule.tail else None


# rule sets share rules, and all expressions are more than the cache of `re` holds
compiled: Final = lru_cache(maxsize=4_096)(re.compile)


def _contains_words(anchor: Anchor) -> bool:
    """Return whether each literal contains a character that does not occur in a row of numbers."""
    return not any(_RUN_SIGNS.issuperset(literal) for literal in anchor.literals)


@lru_cache(MEMO)
def _verdict(validate: Verdict, value: str, *arguments: str) -> bool | int:
    return validate(value, *arguments)


def _function(rule: Rule, setting: str) -> tuple[Callable[..., Any] | None, list[str]]:
    """Return a function of a rule, imported if the rule names it, and the arguments to pass after the text."""
    given = getattr(rule, setting)
    if not isinstance(given, str):
        return given, []
    module, name, *arguments = given.split(":", 2)
    try:
        return getattr(import_module(module), name), arguments
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            f"{setting} of rule {rule.name} names {given!r}, which cannot be imported: {error}", setting=setting
        ) from error
