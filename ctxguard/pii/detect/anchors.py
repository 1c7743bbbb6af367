"""Derive from a regular expression the literals that each match contains, and where it begins relative to them.

An expression implies which literals every match contains (the idea of RE2's `FilteredRE2`; Cox, "Regular Expression
Matching with a Trigram Index", 2012). Character classes count as literals, too, once each class is mapped to one
character: in the form with `h` for every hexadecimal digit, a hardware address contains `hh:hh:hh`. These literals are
derived, not written by hand, so they cannot disagree with the expression.
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
from ctxguard.pii.detect.normalize import PlainText

Literals: TypeAlias = frozenset[str]

_LONGEST: Final = 26  # characters of a literal: longer ones are hardly more selective
# Larger classes are not expanded into their characters.
_WIDEST: Final = 7
# An anchor as selective as four rare characters: no better one is searched for.
_ENOUGH: Final = 4.0
EDGE: Final = "\x00"
"""In a literal: the edge of a word. Placeholders are blanked with this character, so that no text has it."""
_EMPTY: Final[Literals] = frozenset({""})
_COMMON: Final = {" ": 0.3, "-": 0.5, ".": 0.5, "/": 0.6}
# How selective a character is that is common, or that stands for a class in a form; all others have 1.
_CLASSES: Final = {"0": 0.35, "A": 0.4, "a": 0.2, "h": 0.25, "w": 0.05}
_ASCII: Final[Chars] = frozenset(range(128))
_RANGE_BEYOND: Final = re.compile(r"[^\x00-\x7f]-[^\x00-\x7f]")


@dataclass(frozen=True, slots=True)
class Form:
    """A mapping of text in which every character of a class becomes the same character.

    Attributes:
        table: for `bytes.translate`.
        ignores_case: whether lower-case and capital letters become the same.
        weights: how selective a character is; 1 if not listed.
        most: maximum number of alternative literals; an anchor with more is not used.
        price: how much each further literal reduces the selectivity of an anchor.
        is_ascii: whether the literals apply to ASCII texts only; any other text is searched in full.
        is_apart: whether its literals get an automaton of their own. Nearly every character of a text continues one of
            them, and an automaton needs a state for each combination of literals that it may be inside of.
    """

    table: bytes
    ignores_case: bool
    weights: Mapping[str, float]
    most: int = 24
    price: float = 0.02
    is_ascii: bool = False
    is_apart: bool = False

    def fold(self, chars: Chars) -> Literals | None:
        """Return the characters that a class is mapped to; None if there are too many, or if some are beyond ASCII."""
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
"""For words of many languages, of which an ASCII text contains only ASCII ones; all separators map to one."""
_HEX: Final = _form(("x", map(ord, "hH")), ("h", map(ord, "0123456789abcdefABCDEF")))
_NAMES: Final = _form(("w", DIGITS | UPPER | frozenset(map(ord, "abcdefghijklmnopqrstuvwxyz_-"))), is_apart=True)
_FORMS: Final = (_form(("0", DIGITS)), SHAPE, _HEX, _NAMES)
FORMS: Final = (*_FORMS, WORDS)


@dataclass(frozen=True, slots=True)
class Anchor:
    """What every match of an expression contains, and where the match begins before it.

    Attributes:
        form: the form of the text in which the literals occur.
        literals: one of them is in every match; only the empty one if nothing is known.
        least: minimum number of characters from the beginning of a match to the literal.
        most: the maximum; None if unknown, so that the whole text is searched.
        lead: characters that may occur between the two, by their codes.
        bound: characters that never directly precede a match.
        beyond: non-ASCII characters; a text with one of them is searched even without the literals; empty for any text.
    """

    form: Form
    literals: tuple[str, ...]
    least: int = 0
    most: int | None = None
    lead: Chars = ALL
    bound: Chars = frozenset()
    beyond: frozenset[str] = frozenset()

    def searcher(self) -> Callable[[PlainText], Iterator[int]]:
        """Return a function that yields the offsets at which a match may begin, literal by literal."""
        least, most, table, literals = self.least, self.most or 0, self.form.table, self.literals
        # too many offsets do no harm, and few texts have non-ASCII characters here
        lead = frozenset(map(chr, self.lead)) if len(self.lead) < len(ALL) else frozenset(LATIN)
        bound = frozenset(chr(code) for code in self.bound if code < 128)
        free = re.compile(f"[^{re.escape(''.join(sorted(bound)))}]" if bound else "(?s:.)")

        def starts(view: PlainText) -> Iterator[int]:
            text, tried, edge = view.text, 0, 0
            find = _finder(literals, view.form(table))
            place = find(0)
            while place >= 0:
                start = last = place - least
                # offsets that were tried for the previous literal are skipped: else `::::` would take forty tries each
                floor = max(tried, place - most)
                while start > floor and (text[start - 1] in lead or text[start - 1] > "\x7f"):
                    start -= 1
                for first in range(max(tried, start), last + 1):
                    if first <= 0 or text[first - 1] not in bound:
                        yield first
                tried, place = last + 1 if last >= tried else tried, place + 1
                # no match begins inside a run of characters that never precede one: megabytes of one letter are one
                # step
                if edge < tried and text[tried - 1] in bound:
                    free_at = free.search(text, tried)
                    edge = len(text) if free_at is None else free_at.end()
                    place = max(place, edge + least)
                place = find(place)

        return starts


def _finder(literals: Sequence[str], form: str) -> Callable[[int], int]:
    """Return a function that finds the next of some literals in a form from an offset on; -1 if none."""
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


def anchor_of(pattern: str, *, forms: Sequence[Form] = _FORMS) -> Anchor:
    """Return the most selective anchor of an expression, over all forms."""
    parsed = parse(pattern)
    ignores_case = bool(parsed.state.flags & re.IGNORECASE)
    best = Anchor(forms[0], ("",))
    for form in forms:
        if form.ignores_case or not ignores_case:
            best = max(best, _Walk(form, parsed).best, key=worth)
        if worth(best) > _ENOUGH:
            break
    has_range = _RANGE_BEYOND.search(pattern) is not None
    # `EDGE` is always included: a rule with ASCII words only is not tried just because a text has other characters
    known = frozenset({EDGE, *(char for char in pattern.lower() if not char.isascii())})
    beyond = frozenset[str]() if has_range else known
    return replace(best, bound=_bound(parsed), beyond=beyond)


def worth(anchor: Anchor) -> float:
    """Return how selective an anchor is: as its least selective literal, reduced for each further literal.

    If equal, longer literals are more selective: `license` is rarer than `driver`.
    """
    weights = anchor.form.weights
    each = [sum(weights.get(char, 1.0) for char in literal) for literal in anchor.literals]
    weakest = min(each) + 0.01 * sum(each) / len(each)
    return weakest - anchor.form.price * len(anchor.literals) - (0.5 if anchor.most is None else 0.0)


class _Walk:
    """Read one sequence of an expression: the literal read so far, and the best anchor so far."""

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
        """All texts that the sequences match, as mapped by the form; None if they are too many or unknown."""
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
        """Add to the number of characters read."""
        self._least, self._most = self._least + least, self._most + most

    def _assert(self, direction: int, parsed: Parsed) -> None:
        """Use what must follow as an anchor; what must precede is used only to decide whether to search a text."""
        best = _Walk(self._form, parsed).best
        self._suggest(best.literals, best.least, best.most if direction > 0 else None, best.lead)

    def _look_around(self, kind: object, argument: object) -> None:
        if kind is op.ASSERT:
            self._assert(*argument)  # type: ignore[misc]
        elif kind is op.ASSERT_NOT:
            self._forbid(*argument)  # type: ignore[misc]

    def _forbid(self, direction: int, parsed: Parsed) -> None:
        """Record that no letter is next to a word, as in `inn`, which `beginning` contains."""
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
        """Read a group of alternatives."""
        walks = [walk for walk in alternatives if walk.is_possible]
        self.is_possible &= bool(walks)
        if all(walk.exact is not None for walk in walks):
            self._append(frozenset().union(*(walk.exact or () for walk in walks)))
            return
        # the parser moves a common prefix of the alternatives out of the group; with it, their heads are more selective
        heads = _joined(self._read, frozenset().union(*(walk.head for walk in walks)), self._form.most)
        self._offer(heads, frozenset().union(*(walk.lead for walk in walks)))
        self._break()
        anchors = [walk.best for walk in walks]
        farthest = [anchor.most for anchor in anchors]
        literals = frozenset().union(*(anchor.literals for anchor in anchors))
        # a literal that contains another of them says no more than that one
        kept = frozenset(one for one in literals if not any(other in one for other in literals if other is not one))
        # a dropped literal is represented by the one inside it, which may begin later
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
            # an optional part may be there or not; at the very beginning it contributes nothing
            self._offer(self._read, self.lead)
            self._append(exact | _EMPTY)
            self._widen(0, width[1])
            return
        exact = exact if least else None
        read = min(least, _LONGEST) if exact is not None else 0
        # each repetition separately: only then is the distance of a literal from the beginning known
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
            # whatever the number of repetitions, the last ones directly precede what follows
            self._read = _times(exact, read, self._form.most)
        self._widen((least - read) * width[0], min((most - read) * width[1], 2 * FARTHEST))

    def _append(self, exact: Literals | None) -> None:
        # an edge is searched for as the character beyond it, which must not be one that was already read
        if exact and self._read != _EMPTY and any(literal.startswith(EDGE) for literal in exact):
            self._break()
        longer = _joined(self._read, exact, self._form.most) if exact else None
        if longer is None:
            self._break()
            self._read = exact or _EMPTY
        else:
            self._read = longer

    def _break(self) -> None:
        """End the literal read so far: its distance to the next part is unknown."""
        self._offer(self._read, self.lead)
        if self._is_exact:
            self.head = self._read
        self._read = _EMPTY
        self._is_exact = False

    def _offer(self, literals: Literals | None, lead: Chars) -> None:
        """Offer literals that begin with the one read so far, which ends here, so its beginning is known."""
        sizes = [len(literal) for literal in self._read]
        least, most = max(0, self._least - max(sizes)), max(0, self._most - min(sizes))
        self._keep(Anchor(self._form, tuple(sorted(literals or _EMPTY)), least, most, self.lead | lead))

    def _suggest(self, literals: Iterable[str], least: int, most: int | None, lead: Chars) -> None:
        """Offer the anchor of a part that begins here."""
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
    """Return every head with every tail; None if these are too many or too long."""
    if len(heads) * len(tails) > most:
        return None
    both = frozenset([head + tail for head in heads for tail in tails])
    return both if max(map(len, both)) <= _LONGEST else None


def _bound(parsed: Parsed) -> Chars:
    """Return the characters that an expression forbids directly before a match, in an initial lookbehind."""
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
