"""Derive from a rule's expression where in a text it can match at all.

An expression says itself which literals every match holds (the idea of RE2's `FilteredRE2`; Cox, "Regular Expression
Matching with a Trigram Index", 2012). Classes of characters are literals, too, once each class is folded to one
character: in the form that has `h` for every hexadecimal digit, a hardware address holds `hh:hh:hh`. Nobody writes
these literals by hand, so they cannot disagree with the expression.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from re import _constants as op  # type: ignore[attr-defined]
from typing import Final, TypeAlias

from ctxguard.pii.detect.expressions import (
    ALL,
    DIGITS,
    FARTHEST,
    LATIN,
    LETTERS,
    LOWER,
    ONE,
    REPEATS,
    UPPER,
    Chars,
    Parsed,
    consumed_by,
    in_both_cases,
    inner_of,
    members_of,
    parse,
    width_of,
)
from ctxguard.pii.detect.normalize import View

Literals: TypeAlias = frozenset[str]

_LONGEST: Final = 26
# Characters of a class that are told apart.
_WIDEST: Final = 7
# An anchor as selective as four rare characters: no better one is searched for.
_ENOUGH: Final = 4.0
EDGE: Final = "\x00"
"""In a literal: the edge of a word. Placeholders are blanked with this character, so that no text has it."""
_EMPTY: Final[Literals] = frozenset({""})
_COMMON: Final = {" ": 0.3, "-": 0.5, ".": 0.5, "/": 0.6}
# How selective a character is that is common, or that represents a class in a form; all others have 1.
_CLASSES: Final = {"0": 0.35, "A": 0.4, "a": 0.2, "h": 0.25, "w": 0.05}
_ASCII: Final[Chars] = frozenset(range(128))
_RANGE_BEYOND: Final = re.compile(r"[^\x00-\x7f]-[^\x00-\x7f]")


@dataclass(frozen=True, slots=True)
class Form:
    """Fold a text: every character of a class becomes one.

    Attributes:
        table: for `bytes.translate`.
        ignores_case: small and capital letters become the same.
        weights: how much a character tells; 1 where it is not named.
        most: literals of which one must stand in the text; more are not looked for.
        price: what each literal takes off what an anchor tells.
        is_ascii: what is derived holds of ASCII texts only; every other text passes.
        is_apart: its literals get an automaton of their own. Nearly every character of a text continues one of them,
            and an automaton needs a state for each combination of literals that it may be inside of.
    """

    table: bytes
    ignores_case: bool
    weights: Mapping[str, float]
    most: int = 24
    price: float = 0.02
    is_ascii: bool = False
    is_apart: bool = False

    def fold(self, chars: Chars) -> Literals | None:
        """Return what the members of a class become; None where they are many, or beyond ASCII and so of many forms."""
        return _folded(self.table, chars & _ASCII if self.is_ascii else chars)


@lru_cache(maxsize=1024)
def _folded(table: bytes, chars: Chars) -> Literals | None:
    if not chars <= _ASCII:
        return None
    folded = frozenset(chr(table[char]) for char in chars)
    return folded if len(folded) <= _WIDEST else None


def _form(
    *classes: tuple[str, Iterable[int]], ignores_case: bool = True, is_ascii: bool = False, is_apart: bool = False
) -> Form:
    table = bytearray(range(256)).lower() if ignores_case else bytearray(range(256))
    for to, members in classes:
        for member in members:
            table[member] = ord(to)
    weights = _COMMON | {to: _CLASSES[to] for to, _ in classes if to in _CLASSES}
    size = (200, 0.012) if is_ascii else (24, 0.02)
    return Form(bytes(table), ignores_case, weights, *size, is_ascii=is_ascii, is_apart=is_apart)


SHAPE: Final = _form(("0", DIGITS), ("A", UPPER), ("a", LOWER), ignores_case=False)
WORDS: Final = _form(("0", DIGITS), ("-", map(ord, " _")), is_ascii=True, is_apart=True)
"""For words of many languages, of which an ASCII text can hold the ASCII ones alone; what joins words is one sign."""
_HEX: Final = _form(("x", map(ord, "hH")), ("h", map(ord, "0123456789abcdefABCDEF")))
_NAMES: Final = _form(("w", DIGITS | UPPER | frozenset(map(ord, "abcdefghijklmnopqrstuvwxyz_-"))), is_apart=True)
_FORMS: Final = (_form(("0", DIGITS)), SHAPE, _HEX, _NAMES)


@dataclass(frozen=True, slots=True)
class Anchor:
    """Say what every text holds that an expression matches, and where a match begins before it.

    Attributes:
        form: the form of the text in which the literals stand.
        literals: one of them is in every match; the empty one where nothing is known.
        least: characters from the beginning of a match to the literal, at least.
        most: the same at most; None where it is not known, so that the whole text is to be searched.
        lead: characters that may stand between the two, by their codes.
        bound: characters that do not stand right before a match.
        beyond: characters one of which every other text holds that the literals say nothing of; empty where any may.
    """

    form: Form
    literals: tuple[str, ...]
    least: int = 0
    most: int | None = None
    lead: Chars = ALL
    bound: Chars = frozenset()
    beyond: frozenset[str] = frozenset()

    def searcher(self) -> Callable[[View], Iterator[int]]:
        """Return what walks the places where a match may begin, in order for each occurrence of a literal."""
        least, most, table, literals = self.least, self.most or 0, self.form.table, self.literals
        # more places than needed do no harm, and few texts have other characters here than those of ASCII
        lead = frozenset(map(chr, self.lead)) if len(self.lead) < len(ALL) else frozenset(LATIN)
        bound = frozenset(chr(code) for code in self.bound if code < 128)
        free = re.compile(f"[^{re.escape(''.join(sorted(bound)))}]" if bound else "(?s:.)")

        def starts(view: View) -> Iterator[int]:
            text, tried, edge = view.text, 0, 0
            find = _finder(literals, view.form(table))
            place = find(0)
            while place >= 0:
                start = last = place - least
                # what was tried for the literal before needs no second try: else `::::` would take forty for each
                floor = max(tried, place - most)
                while start > floor and (text[start - 1] in lead or text[start - 1] > "\x7f"):
                    start -= 1
                for first in range(max(tried, start), last + 1):
                    if first <= 0 or text[first - 1] not in bound:
                        yield first
                tried, place = last + 1 if last >= tried else tried, place + 1
                # no match begins amid a run of what cannot stand before one: megabytes of one letter take one look
                if edge < tried and text[tried - 1] in bound:
                    free_at = free.search(text, tried)
                    edge = len(text) if free_at is None else free_at.end()
                    place = max(place, edge + least)
                place = find(place)

        return starts


def _finder(literals: Sequence[str], form: str) -> Callable[[int], int]:
    """Return what finds the first of some literals in a form from an offset on; -1 where there is none any more."""
    if len(literals) == 1:
        return partial(form.find, literals[0])
    places = {literal: place for literal in literals if (place := form.find(literal)) >= 0}

    def find(begin: int) -> int:
        for literal in [literal for literal, place in places.items() if place < begin]:
            places[literal] = form.find(literal, begin)
            if places[literal] < 0:
                del places[literal]
        return min(places.values(), default=-1)

    return find


def anchor_of(pattern: str, flags: int = 0, *, forms: Sequence[Form] = _FORMS) -> Anchor:
    """Return the anchor of an expression in the form where it tells most."""
    parsed = parse(pattern, flags)
    ignores_case = bool(parsed.state.flags & re.IGNORECASE)
    best = Anchor(forms[0], ("",))
    for form in forms:
        if form.ignores_case or not ignores_case:
            best = max(best, _Walk(form, parsed).best, key=worth)
        if worth(best) > _ENOUGH:
            break
    has_range = _RANGE_BEYOND.search(pattern) is not None
    # `EDGE` is always among them: a rule whose words are all ASCII is not tried because a text has other characters
    known = frozenset({EDGE, *(char for char in pattern.lower() if not char.isascii())})
    beyond = frozenset[str]() if has_range else known
    return replace(best, bound=_bound(parsed), beyond=beyond)


def worth(anchor: Anchor) -> float:
    """Return how much an anchor tells: what its weakest literal does, less for each other one to look for.

    Of two that are equal in this, the one with the longer literals tells more: `license` is rarer than `driver`.
    """
    weights = anchor.form.weights
    each = [sum(weights.get(char, 1.0) for char in literal) for literal in anchor.literals]
    weakest = min(each) + 0.01 * sum(each) / len(each)
    return weakest - anchor.form.price * len(anchor.literals) - (0.5 if anchor.most is None else 0.0)


class _Walk:
    """Walk one sequence of an expression: what has been read so far exactly, and the best anchor that was met."""

    def __init__(self, form: Form, *sequences: Parsed) -> None:
        self._form = form
        self._read = _EMPTY
        self.lead: Chars = frozenset()
        self._is_exact = True
        self._least = self._most = 0
        self.best = Anchor(form, ("",))
        self._tells = worth(self.best)
        self.head = _EMPTY
        self.is_possible = True
        for parsed in sequences:
            for kind, argument in parsed:
                self._node(kind, argument)
        self._offer(self._read, self.lead)
        if self._is_exact:
            self.head = self._read

    @property
    def exact(self) -> Literals | None:
        """All texts that the sequences match, folded; None where they are too many or unknown."""
        return self._read if self._is_exact else None

    def _node(self, kind: object, argument: object) -> None:
        if kind in (op.AT, op.ASSERT, op.ASSERT_NOT):
            self._look_around(kind, argument)
            return
        consumed: Chars | None = None
        if kind is op.SUBPATTERN and argument[1] & re.IGNORECASE and not self._form.ignores_case:  # type: ignore[index]
            self._break()
        elif kind in (op.SUBPATTERN, op.ATOMIC_GROUP):
            for inner in inner_of(kind, argument)[0]:
                self._node(*inner)
            return
        elif kind in REPEATS:
            self._repeat(*argument)  # type: ignore[misc]
        elif kind is op.BRANCH:
            alternatives = [_Walk(self._form, one) for one in argument[1]]  # type: ignore[index]
            self._branch(alternatives)
            consumed = frozenset[int]().union(*(one.lead for one in alternatives))
        elif kind in (op.LITERAL, op.IN):
            chars = members_of(kind, argument)
            self.is_possible &= not self._form.is_ascii or not chars.isdisjoint(_ASCII)
            self._append(self._form.fold(chars))
            consumed = in_both_cases(chars)
        else:
            self._break()
        if kind not in REPEATS:
            self._widen(*width_of(kind, argument))
        self.lead |= consumed_by([(kind, argument)]) if consumed is None else consumed

    def _widen(self, least: int, most: int) -> None:
        """Count characters that were read."""
        self._least, self._most = self._least + least, self._most + most

    def _assert(self, direction: int, parsed: Parsed) -> None:
        """Take what must follow as an anchor; what must stand before tells of the text alone, not of a place."""
        best = _Walk(self._form, parsed).best
        self._suggest(best.literals, best.least, best.most if direction > 0 else None, best.lead)

    def _look_around(self, kind: object, argument: object) -> None:
        if kind is op.ASSERT:
            self._assert(*argument)  # type: ignore[misc]
        elif kind is op.ASSERT_NOT:
            self._forbid(*argument)  # type: ignore[misc]

    def _forbid(self, direction: int, parsed: Parsed) -> None:
        """Keep that no letter stands beside a word: `inn` is in `beginning`."""
        nodes = list(parsed)
        if not self._form.is_ascii or len(nodes) != 1 or nodes[0][0] not in ONE:
            return
        if not members_of(*nodes[0]) >= LETTERS:
            return
        if direction < 0 and self._read == _EMPTY:
            self._read = frozenset({EDGE})
        elif direction > 0 and self._read not in (_EMPTY, frozenset({EDGE})):
            self._read = frozenset(literal + EDGE for literal in self._read)
            self._break()

    def _branch(self, alternatives: Sequence[_Walk]) -> None:
        """Take in a group: one of its alternatives stands there."""
        walks = [walk for walk in alternatives if walk.is_possible]
        self.is_possible &= bool(walks)
        if all(walk.exact is not None for walk in walks):
            self._append(frozenset().union(*(walk.exact or () for walk in walks)))
            return
        # the parser takes out what alternatives have in common in front: with it their heads tell more
        heads = _joined(self._read, frozenset().union(*(walk.head for walk in walks)), self._form.most)
        self._offer(heads, frozenset().union(*(walk.lead for walk in walks)))
        self._break()
        anchors = [walk.best for walk in walks]
        farthest = [anchor.most for anchor in anchors]
        literals = frozenset().union(*(anchor.literals for anchor in anchors))
        kept = _shortest(literals)
        # one that is left out stands for the one within it, which may begin later
        later = max(map(len, literals)) if kept != literals else 0
        self._suggest(
            kept,
            min(anchor.least for anchor in anchors),
            None if None in farthest else max(one for one in farthest if one is not None) + later,
            frozenset().union(*(anchor.lead for anchor in anchors)),
        )

    def _repeat(self, least: int, most: int, repeated: Parsed) -> None:
        width = repeated.getwidth()  # type: ignore[attr-defined]
        exact = _Walk(self._form, repeated).exact if least or most == 1 else None
        if exact is not None and not least and self._read != _EMPTY:
            # what may be left out stands there or does not; in front of all it tells nothing
            self._offer(self._read, self.lead)
            self._append(exact | _EMPTY)
            self._widen(0, width[1])
            return
        exact = exact if least else None
        read = min(least, _LONGEST) if exact is not None else 0
        # each repetition by itself: only so it is known how far from the beginning a literal ends
        for _ in range(read):
            self._append(exact)
            self._widen(*width)
        if exact is None:
            self._break()
            if least:
                best = _Walk(self._form, *[repeated] * min(least, 2)).best
                self._suggest(best.literals, best.least, best.most, best.lead)
        elif most != least or least > _LONGEST:
            self._break()
            # whatever the number, the last ones stand right before what follows
            self._read = _times(exact, read, self._form.most)
        self._widen((least - read) * width[0], min((most - read) * width[1], 2 * FARTHEST))

    def _append(self, exact: Literals | None) -> None:
        # an edge is looked for by the character beyond it, which must not be one that was read
        if exact and self._read != _EMPTY and any(literal.startswith(EDGE) for literal in exact):
            self._break()
        longer = _joined(self._read, exact, self._form.most) if exact else None
        if longer is None:
            self._break()
            self._read = exact or _EMPTY
        else:
            self._read = longer

    def _break(self) -> None:
        """End what is known exactly: what comes now may stand anywhere behind."""
        self._offer(self._read, self.lead)
        if self._is_exact:
            self.head = self._read
        self._read = _EMPTY
        self._is_exact = False

    def _offer(self, literals: Literals | None, lead: Chars) -> None:
        """Offer literals that begin with what has been read, which ends here: so it began as many characters ago."""
        sizes = [len(literal) for literal in self._read]
        least, most = max(0, self._least - max(sizes)), max(0, self._most - min(sizes))
        self._keep(Anchor(self._form, tuple(sorted(literals or _EMPTY)), least, most, self.lead | lead))

    def _suggest(self, literals: Iterable[str], least: int, most: int | None, lead: Chars) -> None:
        """Suggest the anchor of a part that begins here."""
        farthest = None if most is None else self._most + most
        self._keep(Anchor(self._form, tuple(sorted(literals)), self._least + least, farthest, self.lead | lead))

    def _keep(self, anchor: Anchor) -> None:
        if any(not literal.strip(EDGE) for literal in anchor.literals) or len(anchor.literals) > self._form.most:
            return
        # trying hundreds of offsets for each literal would take longer than searching the text
        if anchor.most is not None and anchor.most > FARTHEST:
            anchor = Anchor(anchor.form, anchor.literals)
        if (tells := worth(anchor)) > self._tells:
            self.best, self._tells = anchor, tells


def _joined(heads: Literals, tails: Literals, most: int) -> Literals | None:
    """Return every head with every tail; None where it is too much."""
    if len(heads) * len(tails) > most:
        return None
    both = frozenset([head + tail for head in heads for tail in tails])
    return both if max(map(len, both)) <= _LONGEST else None


def _bound(parsed: Parsed) -> Chars:
    """Return which characters an expression forbids right before a match in its first look behind."""
    kind, argument = next(iter(parsed), (None, None))
    if kind is not op.ASSERT_NOT or argument[0] > 0:  # type: ignore[index]
        return frozenset()
    behind = list(argument[1])  # type: ignore[index]
    return members_of(*behind[0]) if len(behind) == 1 and behind[0][0] in ONE else frozenset()


def _times(exact: Literals, number: int, most: int) -> Literals:
    result = _EMPTY
    for _ in range(number):
        longer = _joined(result, exact, most)
        if longer is None:
            break
        result = longer
    return result


def _shortest(literals: Literals) -> Literals:
    """Return the literals without those that hold another one."""
    return frozenset(one for one in literals if not any(other in one for other in literals if other is not one))
