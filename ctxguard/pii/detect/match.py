"""Find what rules describe, in five steps: normalize, prefilter, match, judge, and resolve overlaps.

Most rules describe the shape of a number. They are matched on shapes, in which every digit is replaced by `0`. Shapes
repeat, so their matches are cached. All other rules are matched only near a literal of their expression. `scan` uses
neither shortcut: it matches each expression against the whole text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from importlib import import_module
from itertools import pairwise, takewhile
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from ctxguard.errors import ConfigError
from ctxguard.pii.detect.echo import Names
from ctxguard.pii.detect.expressions import between, is_beyond_ascii, is_number, reach, runs_on, tells_digits_apart
from ctxguard.pii.detect.listed import Listed
from ctxguard.pii.detect.normalize import PlainText, views_of
from ctxguard.pii.detect.prefilter import SHAPE, WORDS, Anchor, Located, Prefilter, anchor_of, derived, worth
from ctxguard.pii.detect.tables import WINDOW, NearbyText, Windows, merged
from ctxguard.pii.placeholders import BLANK, LITERAL, UNCHECKED
from ctxguard.pii.spans import Span, resolve, start_of
from ctxguard.tokens.caches import TextCache

if TYPE_CHECKING:
    from ctxguard.pii.detect.tables import Windows
    from ctxguard.pii.rules.rule import Rule


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


# A run of digits and their separators in a shape. Every match of a number expression lies within the first group, which
# ends at the last digit or bracket. The separators after it are consumed as well, so that no search begins at them.
# Most runs are too short even with these separators.
_RUN: Final = re.compile(r"([0+(](?=[ ./(+)0-]{5})(?:[ ./(+-]*+[0)])*+)[ ./(+-]*+")
_SHORTEST_RUN: Final = 6  # minimum length of a run, in characters: no number rule matches fewer
# Number of characters before and after a run on which the boundaries of a number depend.
_AROUND: Final = 4
# A run of more characters is probably a table row, whose shape does not repeat.
_LONG_RUN: Final = 60
PERSON: Final = "PERSON"
"""Label of a person's name. Once a name is known, it is also searched for in other places."""
# Score of a known name at a place where nothing introduces it.
_ECHO: Final = 0.5
_PHONE: Final = "PHONE"
# Up to so many rules, their context words are searched for one rule at a time, without a prefilter. `scan` judges one
# rule at a time, so it never uses a prefilter.
_FEW: Final = 2
# Minimum number of digits of a phone number with area code. A remainder with fewer digits is not a separate number.
_PHONE_DIGITS: Final = 7
_GAP: Final = " /,;|"
_CLOSING: Final = re.compile(r"</[a-z][^<>]{0,38}>")
_UUID: Final = re.compile(r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}(?![0-9A-Za-z])")
_UUID_GROUPS: Final = (9, 14, 19, 24)
_ALIKE: Final = str.maketrans("123456789", "0" * 9)
# A text with numbers whose validators import libraries.
_SAMPLE: Final = (
    "call +49 30 901820 or 030 901820, card 4111 1111 1111 1111, IBAN DE89 3704 0044 0532 0130 00, jane@example.org"
)
Found: TypeAlias = list[tuple[int, Span]]
"""Findings, each with the index of its rule in the set."""
Candidate: TypeAlias = "tuple[tuple[Matcher, ...], int, int]"
"""The rules whose expression matches, and the start and end offset of the match. Context words and validators are not
checked yet."""


@lru_cache(maxsize=64)
def engine_of(rules: tuple[Rule, ...], allow: frozenset[str], deny: tuple[tuple[str, str], ...]) -> Engine:
    """Return the engine for these rules; calls with equal arguments share one engine."""
    return Engine(rules, allow, deny)


class Engine:
    """Finds what rules describe. Thread-safe; its caches are bounded.

    Args:
        rules: The rules, in order of precedence.
        allow: Values in lower case that are never findings.
        deny: Pairs of a value that is always a finding, and its label.

    Raises:
        ConfigError: If the validator of a rule cannot be imported.
    """

    def __init__(self, rules: Iterable[Rule], allow: frozenset[str], deny: tuple[tuple[str, str], ...]) -> None:
        self._matchers = tuple(Matcher(rule, order) for order, rule in enumerate(rules))
        self._numbers = tuple(one for one in self._matchers if one.is_number)
        self._others = tuple(one for one in self._matchers if not one.is_number)
        self._have_digits = all("0" in literal for one in self._numbers for literal in one.anchor.literals)
        # the evidence of each rule, and for rules that are searched for only after their context words, these words
        # and the literals of the expression
        near = [place for place, one in enumerate(self._others) if one.is_near_words]
        first = len(self._others)
        self._words = {place: first + number for number, place in enumerate(near)}
        self._needed = {place: {place} for place in range(first)}
        self._needed |= {place: {place, words, words + len(near)} for place, words in self._words.items()}
        self._shared = [(one.rule.pattern, one.rule.walk) for one in self._others]
        self._prefilter = Prefilter(
            [
                *(one.evidence for one in self._others),
                *(self._others[place].words_before for place in near),
                *(self._others[place].anchor for place in near),
            ],
            located=frozenset(self._words.values()),
        )
        self._allow = allow
        self._denied = Listed(deny) if deny else None
        labels = (*(one.rule.label for one in self._matchers), *(label for _, label in deny))
        self._labels = frozenset((*labels, LITERAL, UNCHECKED))
        self._fits = lru_cache(MEMO)(self._match_shape)
        self._finds_number = lru_cache(MEMO)(self.find)
        self._filter_lowered = lru_cache(MEMO)(self._filter_lowered_anew)
        self._found: TextCache[tuple[Span, ...]] = TextCache()
        self._echoes = tuple(one for one in self._matchers if one.rule.echo)

    def warm(self) -> None:
        """Load now what is otherwise loaded when a text first needs it: expressions, automata, and validators."""
        for one in self._matchers:
            one.warm()
        self.find(_SAMPLE)
        self.scan(_SAMPLE)

    @cached_property
    def is_joinable(self) -> bool:
        """Whether each rule finds the same in a text alone and in that text between blank lines."""
        return all(one.stands_alone for one in self._matchers)

    def find(self, text: str) -> tuple[Span, ...]:
        """Return the findings, sorted by offset and without overlaps. The findings of the latest texts are cached."""
        found = self._found.get(text)
        if found is None:
            found = self._search(text, self._candidates)
            self._found.put(text, found)
        return found

    def scan(self, text: str) -> tuple[Span, ...]:
        """Return the findings like `find`, with each expression matched against the whole text."""
        return self._search(text, self._all_candidates)

    def _search(self, text: str, candidates: Callable[[PlainText], Iterator[Candidate]]) -> tuple[Span, ...]:
        first, *others = views_of(text, self._can_write)
        spans = self._search_view(first, candidates)
        for view in others:
            more = self._search_view(view, candidates)
            if more:
                spans = joined(text, first, spans, more)
        if not self._echoes or not (values := [text[one.start : one.end] for one in spans if one.label == PERSON]):
            return spans
        # a name that is introduced at the end of a text is also masked at its beginning
        return resolve((*spans, *self._find_names(Names(values), (first, *others))), text)

    def names(self, text: str) -> Sequence[str]:
        """Return the names that a text introduces, regardless of what other rules find in it."""
        if not self._echoes:
            return ()
        spans: list[Span] = []
        for view in views_of(text, self._can_write):
            candidates = (((one,), start, end) for one in self._echoes for start, end in one.everywhere(view.text))
            spans += view.originals(span for _, span in self._judge(view.text, candidates))
        return [text[span.start : span.end] for span in resolve(spans, text)]

    def known(self, text: str, names: Names, *, until: int | None = None) -> Sequence[Span]:
        """Return the occurrences of known names in a text, see `Names.find`."""
        return resolve(self._find_names(names, views_of(text, self._can_write), until=until), text)

    def _find_names(self, names: Names, views: Iterable[PlainText], *, until: int | None = None) -> Iterator[Span]:
        for view in views:
            places = (Span(*place, PERSON, _ECHO) for place in names.find(view.text, until=until))
            yield from view.originals(one for one in places if not self._allows(view.text[one.start : one.end].lower()))

    def _search_view(self, view: PlainText, candidates: Callable[[PlainText], Iterator[Candidate]]) -> tuple[Span, ...]:
        found = self._judge(view.text, candidates(view))
        if self._denied is not None:
            found += ((len(self._matchers), span) for span in self._denied.find(view.text))
        return _choose(view, found) if found else ()

    def _candidates(self, view: PlainText) -> Iterator[Candidate]:
        opened, located = self._prefilter.locate(view)
        # rules that differ only in their context words share an expression, which is matched once
        shared: dict[object, list[int]] = {}
        is_ascii = view.text.isascii()
        for place in sorted(opened & self._needed.keys()):
            if self._needed[place] <= opened and not (is_ascii and self._others[place].is_beyond_ascii):
                shared.setdefault(self._shared[place], []).append(place)
        for numbers in shared.values():
            matchers = (*map(self._others.__getitem__, numbers),)
            places = matchers[0].places(view, self._windows(numbers, located, view))
            yield from ((matchers, start, end) for start, end in places)
        if not self._numbers:
            return
        shape = view.form(SHAPE.table)
        if self._have_digits and "0" not in shape:
            return
        # numbers have few different shapes (`000-00-0000`), so each shape is matched once for all texts
        for run in (match.span(1) for match in _RUN.finditer(shape)):
            if run[1] - run[0] < _SHORTEST_RUN:
                continue
            start, end = max(0, run[0] - _AROUND), run[1] + _AROUND
            # a long shape does not repeat, and would evict others from the cache
            is_row = end - start > _LONG_RUN
            fitting = self._match_row(view, run, shape[start:end]) if is_row else self._fits(shape[start:end])
            yield from ((fit, start + first, start + last) for fit, first, last in fitting)

    def _windows(self, numbers: Sequence[int], located: Iterable[Located], view: PlainText) -> Windows | None:
        """Return the parts of a text in which findings of some rules may begin: those after their context words.

        Return None if they may begin anywhere, or if these words occur more often than the literals of the expression.
        A table with a context word is one part, because the words of its headings and rows are the context of all its
        cells.
        """
        if not self._words.keys() >= {*numbers}:
            return None
        anchors = [self._others[number].words_before for number in numbers]
        if any("" in anchor.literals or (view.beyond_latin and not anchor.beyond) for anchor in anchors):
            return None
        wanted = {self._words[number] for number in numbers}
        ends = [place for words, places in located if not wanted.isdisjoint(words) for place in places]
        if view.beyond_latin:
            letters = frozenset[str]().union(*(anchor.beyond for anchor in anchors))
            beyond = view.offsets_of(letters, most=len(view.text) / WINDOW)
            if beyond is None:
                return None
            ends += ((first, first + 1) for first in beyond)
        if self._others[numbers[0]].anchor.is_rarer(view, len(ends)):
            return None
        blocks = _nearby_text(view.text).blocks({first for first, _ in ends})
        return merged((*((end, first + WINDOW) for first, end in ends), *blocks))

    def _all_candidates(self, view: PlainText) -> Iterator[Candidate]:
        # a text without the literals of an expression is not searched, whatever its context words are
        opened = self._prefilter.open(view)
        for one in (one for place, one in enumerate(self._others) if place in opened):
            yield from (((one,), start, end) for start, end in one.everywhere(view.text))
        shape = view.form(SHAPE.table)
        for one in (self._numbers[place] for place in self._number_literals.open(view)):
            yield from (((one,), start, end) for start, end in one.everywhere(shape))

    @cached_property
    def _number_literals(self) -> Prefilter:
        return Prefilter([one.anchor for one in self._numbers])

    def _match_shape(self, shape: str) -> Sequence[Candidate]:
        """Return the matches of number rules in a shape, which is a piece of text with `0` in place of every digit."""
        fitting = map(self._numbers.__getitem__, sorted(self._shape_literals.open(PlainText(shape))))
        return _by_place((one, one.everywhere(shape)) for one in fitting)

    @cached_property
    def _shape_literals(self) -> Prefilter:
        return Prefilter([replace(one.anchor, literals=one.shapes) for one in self._numbers])

    def _match_row(self, view: PlainText, run: tuple[int, int], shape: str) -> Sequence[Candidate]:
        """Return the matches of number rules in a row of numbers.

        Most matches that lack their context word are omitted: only the first and last numbers of a row have words next
        to them, so most rules do not need to be tried on the other numbers. In a table, each number has the words of
        its column heading.
        """
        before = PlainText(view.text[max(0, run[0] - WINDOW) : run[0] + WINDOW])
        named = self._context_words.open(before)
        headed = self._context_words.open(PlainText(_nearby_text(view.text).headings_at(run[0])))
        first = WINDOW + _AROUND
        fits = []
        for one in self._numbers:
            is_first = one.needs_word_before and one.order not in headed
            head = shape[: first + one.reach] if is_first else shape
            is_possible = (one.order in named or one.order in headed) and one.may_stand_before(view.text, *run)
            if is_possible and one.may_match(head):
                places = one.everywhere(head)
                fits.append((one, takewhile(lambda at: at[0] < first, places) if is_first else places))
        return _by_place(fits)

    def _judge(self, text: str, candidates: Iterable[Candidate]) -> Found:
        """Return the candidates that pass the checks of context words, validator, and allow list, as findings."""
        found: Found = []
        for matchers, start, end in candidates:
            # the cheapest check first: context words are a lookup, check digits are computed
            for one in self._filter_by_context(matchers, text, start):
                size = one.judge(text, start, end)
                if not size or (self._allow and self._allows(text[start : start + size].lower())):
                    continue
                if text[start - 1 : start] == "-" and _is_in_uuid(text, start):
                    continue
                found.append((one.order, Span(start, one.end(text, start + size), one.rule.label, one.rule.score)))
        return found

    def _filter_by_context(self, matchers: tuple[Matcher, ...], text: str, start: int) -> Sequence[Matcher]:
        """Return the rules that accept one of the contexts of a candidate, see `NearbyText.of`."""
        if not _heeds_words(matchers):
            return matchers
        first, *others = _nearby_text(text).of(start)
        accepting = self._filter_by_words(matchers, first)
        for context in others:
            accepting = [*accepting, *(m for m in self._filter_by_words(matchers, context) if m not in accepting)]
        return accepting

    def _filter_by_words(self, matchers: tuple[Matcher, ...], before: str) -> Sequence[Matcher]:
        """Return the rules that accept the characters before a candidate.

        Most rules treat all digits alike, so digits are replaced by `0` to make the cached results reusable.
        """
        return self._filter_lowered(matchers, before if _tells_digits_apart(matchers) else before.translate(_ALIKE))

    def _filter_lowered_anew(self, matchers: tuple[Matcher, ...], before: str) -> Sequence[Matcher]:
        """Return the rules that accept the characters before a candidate. Cached, because JSON keys repeat often."""
        # a word before a placeholder was the context of the masked value, not of the text after the placeholder; quotes
        # are escaped in JSON inside JSON
        lowered = before[before.rfind(BLANK) + 1 :].lower().replace('\\"', '"')
        # the name in a closing tag is not context for the text after it
        if "</" in lowered:
            lowered = _CLOSING.sub("</b>", lowered)
        if len(matchers) > _FEW:
            # searching for the words of all rules at once is ten times as fast as for each rule
            possible = self._context_words.open(PlainText(lowered))
            return [one for one in matchers if one.order in possible and one.stands_after(lowered)]
        return [one for one in matchers if one.stands_after(lowered)]

    @cached_property
    def _context_words(self) -> Prefilter:
        return Prefilter([one.words_before for one in self._matchers])

    def judged(self, text: str) -> Iterator[tuple[Span, str, Sequence[str]]]:
        """Yield each match of a rule's expression, with the rule's name and the reasons why it is not a finding.

        The reasons are empty if the match is a finding.
        """
        for view in views_of(text, self._can_write):
            for one in self._matchers:
                for start, end in one.everywhere(view.form(SHAPE.table) if one.is_number else view.text):
                    size = one.judge(view.text, start, end)
                    last = one.end(view.text, start + size) if size else end
                    span = Span(start, last, one.rule.label, one.rule.score)
                    reasons = [*self._against(one, view.text, span)]
                    reasons += [] if size else [one.fault(view.text, end)]
                    yield from ((original, one.rule.name, reasons) for original in view.originals((span,)))
            spans = self._denied.find(view.text) if self._denied is not None else ()
            yield from ((span, "deny", ()) for span in view.originals(spans))

    def _against(self, one: Matcher, text: str, span: Span) -> Iterator[str]:
        if not self._filter_by_context((one,), text, span.start):
            yield NO_WORD if one.rule.context else "a word before it shows that it is something else"
        if self._allow and self._allows(text[span.start : span.end].lower()):
            yield "it is allowed"

    def _allows(self, value: str) -> bool:
        domain = value.rpartition("@")[2]
        return value in self._allow or (domain != value and f"@{domain}" in self._allow)

    def _can_write(self, label: str, number: str) -> bool:
        """Return whether masking with these rules can have written a placeholder.

        Its label must be known, and no rule may match its number. Other text that looks like a placeholder is searched
        like any text.
        """
        return label in self._labels and not (number and self._finds_number(number))


@lru_cache(maxsize=2)  # a text is searched, and then its candidates are judged
def _nearby_text(text: str) -> NearbyText:
    return NearbyText(text)


def _is_in_uuid(text: str, start: int) -> bool:
    """Return whether a group of a UUID, other than the first one, starts here; some groups look like a phone number."""
    return any(start >= before and _UUID.match(text, start - before) is not None for before in _UUID_GROUPS)


def _by_place(matches: Iterable[tuple[Matcher, Iterable[tuple[int, int]]]]) -> Sequence[Candidate]:
    """Group matches by position: each candidate has all rules that match there."""
    fits: dict[tuple[int, int], list[Matcher]] = {}
    for one, places in matches:
        for place in places:
            fits.setdefault(place, []).append(one)
    return [((*matchers,), start, end) for (start, end), matchers in fits.items()]


@lru_cache(MEMO)
def _heeds_words(matchers: tuple[Matcher, ...]) -> bool:
    return any(one.heeds_words for one in matchers)


@lru_cache(MEMO)
def _tells_digits_apart(matchers: tuple[Matcher, ...]) -> bool:
    return any(one.tells_digits_apart for one in matchers)


def _choose(view: PlainText, found: Found) -> tuple[Span, ...]:
    """Resolve overlaps among the findings in a view, and return them with their offsets in the original text."""
    if len(found) > 1:
        found.sort(key=start_of)
        if any(one[1].end > other[1].start for one, other in pairwise(found)):
            found = _shorten_numbers(view.text, found)
            found.sort(key=itemgetter(0))
            # compare lengths in the view, not in the original, where `%2B` has three characters instead of one
            return view.originals(resolve(map(_span, found), view.text))
    return view.originals(map(_span, found))


def joined(text: str, first: PlainText, spans: Sequence[Span], more: Iterable[Span]) -> tuple[Span, ...]:
    """Merge the findings in several views of a text (see `normalize.views_of`).

    In the first view, escapes are decoded. A finding of a later view is dropped if it begins or ends inside an escape
    and overlaps a finding of the first view.

    Args:
        text: The original text.
        first: The first view.
        spans: The findings in the first view.
        more: The findings in the later views.
    """
    kept = [
        span
        for span in more
        if not (first.cuts(span) and any(one.start < span.end and span.start < one.end for one in spans))
    ]
    return resolve((*spans, *kept), text)


def _shorten_numbers(text: str, found: Found) -> Found:
    """Shorten a number if a more certain finding begins inside it and ends after it.

    A group of digits between the two may belong to either. Without this, the longer finding would be kept in full, and
    the other would be truncated.
    """
    ordered = list(found)
    for place, (order, span) in enumerate(ordered):
        if number := _number_before_next(text, ordered, place):
            ordered[place] = (order, Span(span.start, span.start + len(number), span.label, span.score))
    return ordered


def _number_before_next(text: str, ordered: Found, place: int) -> str:
    """Return the part of the number at index `place` that comes before a more certain, overlapping finding.

    The other finding begins inside the number and ends after it.

    Returns:
        The part; an empty string if there is no such finding, or if the part is not a number of its own.
    """
    span = ordered[place][1]
    for number in range(place + 1, len(ordered)):
        other = ordered[number][1]
        if other.start >= span.end:
            break
        is_surer = other.label != span.label and (span.label == _PHONE or other.score > span.score)
        if is_surer and other.end > span.end and _is_whole(text[span.start : other.start]):
            return text[span.start : other.start].rstrip(_GAP)
    return ""


NO_WORD: Final = "none of its context words is before it"
_span: Final = itemgetter(1)


def _is_whole(number: str) -> bool:
    return number[-1:] in _GAP and sum(map(str.isdigit, number)) >= _PHONE_DIGITS
