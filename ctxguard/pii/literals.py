"""Work out of an expression itself what a text must hold for it to match anywhere: a few literals.

It is the idea of RE2's `FilteredRE2` (Cox, "Regular Expression Matching with a Trigram Index", 2012), with classes of
characters folded to one: in the form that has `h` for every hexadecimal digit, a hardware address holds `hh:hh:hh`. The
plain path of the engine passes over the expressions whose literals a text does not hold. Nobody writes these by
hand, so that they cannot disagree with the expressions: the findings are those of matching every one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from re import _constants as op  # type: ignore[attr-defined]  # the one parser that reads what `re` reads
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Final, TypeAlias

__all__ = ["Condition", "condition_of", "forms_of", "may_match", "width_of", "words_of"]

Literals: TypeAlias = frozenset[str]
Parsed: TypeAlias = Iterable[tuple[object, object]]
Condition: TypeAlias = tuple[int, tuple[bytes, ...]]
"""Number of a form, and the literals one of which it holds."""
_MOST: Final = 12
_LONGEST: Final = 16
_WIDEST: Final = 7
"""Characters of a class that are told apart."""
_ANY: Final[Literals] = frozenset()
"""No condition."""
_EMPTY: Final[Literals] = frozenset({""})
_COMMON: Final = {" ": 0.3, "-": 0.5, ".": 0.5, "/": 0.6, "0": 0.6, "A": 0.6, "a": 0.2, "h": 0.5, "w": 0.1}
"""How much a character tells in a form where it stands for many, or is common, against 1 of all others."""
_REPEATS: Final = (op.MAX_REPEAT, op.MIN_REPEAT, op.POSSESSIVE_REPEAT)
_UPPER: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_LOWER: Final = _UPPER.lower()
_DIGITS: Final = "0123456789"


@dataclass(frozen=True, slots=True)
class _Form:
    """Fold a text: every character of a class becomes one.

    Attributes:
        table: for `bytes.translate`.
        ignores_case: small and capital letters become the same.
        most: literals of which one must stand in the text; more are not looked for.
        is_ascii: nothing beyond ASCII stands in the text.
    """

    table: bytes
    ignores_case: bool
    most: int = _MOST
    is_ascii: bool = False

    def fold(self, code: int) -> str | None:
        """Return what a character becomes; None beyond ASCII, where `re` knows more than one spelling."""
        if code < 128:
            return chr(self.table[code])
        return "0" if chr(code).isdecimal() else None


def _form(*classes: tuple[str, str], ignores_case: bool = True) -> _Form:
    table = bytearray(range(256)).lower() if ignores_case else bytearray(range(256))
    for members, to in classes:
        for member in members:
            table[ord(member)] = ord(to)
    return _Form(bytes(table), ignores_case)


_FORMS: Final = (
    _form((_DIGITS, "0")),
    _form((_DIGITS, "0"), (_UPPER, "A"), (_LOWER, "a"), ignores_case=False),
    _form((_DIGITS + "abcdefABCDEF", "h"), ("hH", "x")),
    _form((_DIGITS + _UPPER + _LOWER + "_-", "w")),
)
_WORDS: Final = _Form(bytes(range(256)), ignores_case=False, most=100, is_ascii=True)


def words_of(pattern: str) -> frozenset[str]:
    """Return literals of which every ASCII text holds one that an expression matches; none where nothing is known."""
    return _Walk(_WORDS, parser.parse(pattern)).best


def width_of(pattern: str) -> int:
    """Return how many characters a match of an expression has at least."""
    return int(parser.parse(pattern).getwidth()[0])


def forms_of(plain: bytes) -> tuple[bytes, ...]:
    """Return the forms of a text in which literals are looked for.

    Args:
        plain: in Latin-1, with `?` for what has no place there; digits and letters that `re` takes for those of ASCII
            folded to them (see `fold`).
    """
    return tuple(plain.translate(form.table) for form in _FORMS)


def condition_of(pattern: str, flags: int = 0) -> Condition:
    """Return what every text holds that an expression matches: the empty literal where nothing is known."""
    parsed = parser.parse(pattern, flags)
    ignores_case = bool(parsed.state.flags & re.IGNORECASE)
    forms = [form if form.ignores_case or not ignores_case else None for form in _FORMS]
    found = [_ANY if form is None else _Walk(form, parsed).best for form in forms]
    number = max(range(len(found)), key=lambda number: _worth(found[number]))
    return number, tuple(sorted(literal.encode() for literal in found[number] or _EMPTY))


def may_match(condition: Condition, forms: Sequence[bytes]) -> bool:
    """Tell whether an expression with this condition can match in a text with these forms."""
    number, literals = condition
    form = forms[number]
    for literal in literals:  # noqa: SIM110 - half the time of any()
        if literal in form:
            return True
    return False


class _Walk:
    """Walk one sequence of an expression: what has been read so far exactly, and the best condition that was met."""

    def __init__(self, form: _Form, *sequences: Parsed) -> None:
        self._form = form
        self._read = _EMPTY
        self._best = _ANY
        self._is_exact = True
        self.is_possible = True
        for parsed in sequences:
            for kind, argument in parsed:
                self._node(kind, argument)
        self._offer(self._read)

    @property
    def best(self) -> Literals:
        """The best condition of the sequences, one after the other."""
        return self._best

    @property
    def exact(self) -> Literals | None:
        """All texts that the sequences match, folded; None where they are too many or unknown."""
        return self._read if self._is_exact else None

    def _node(self, kind: object, argument: object) -> None:
        if kind is op.AT or kind is op.ASSERT_NOT:
            return
        if kind is op.ASSERT:
            self._offer(_Walk(self._form, argument[1]).best)  # type: ignore[index]
        elif kind in _REPEATS:
            self._repeat(*argument)  # type: ignore[misc]
        elif kind is op.LITERAL:
            self.is_possible &= not self._form.is_ascii or argument < 128  # type: ignore[operator]
            self._append(self._members([(op.LITERAL, argument)]))
        elif kind is op.IN:
            self._append(self._members(argument))  # type: ignore[arg-type]
        elif kind is op.SUBPATTERN and (self._form.ignores_case or not argument[1] & re.IGNORECASE):  # type: ignore[index]
            self._within([argument[-1]])  # type: ignore[index]
        elif kind is op.ATOMIC_GROUP:
            self._within([argument])  # type: ignore[list-item]
        elif kind is op.BRANCH:
            self._within(argument[1])  # type: ignore[index]
        else:
            self._break()

    def _within(self, alternatives: Sequence[Parsed]) -> None:
        """Take in a group: one of its alternatives stands there."""
        walks = [walk for one in alternatives if (walk := _Walk(self._form, one)).is_possible]
        self.is_possible &= bool(walks)
        exact = [walk.exact for walk in walks]
        if None not in exact:
            self._append(frozenset().union(*(one for one in exact if one is not None)))
            return
        self._break()
        if all(walk.best for walk in walks):
            self._offer(_shortest(frozenset().union(*(walk.best for walk in walks))))

    def _repeat(self, least: int, most: int, repeated: Parsed) -> None:
        exact = _Walk(self._form, repeated).exact if least else None
        if exact is None:
            self._break()
            self._offer(_Walk(self._form, *[repeated] * min(least, 2)).best)
            return
        for _ in range(min(least, _LONGEST)):
            self._append(exact)
        if most != least or least > _LONGEST:
            self._break()
            # whatever the number, the last ones stand right before what follows
            self._read = _times(exact, min(least, _LONGEST), self._form.most)

    def _append(self, exact: Literals | None) -> None:
        longer = _joined(self._read, exact, self._form.most) if exact else None
        if longer is None:
            self._break()
            self._read = exact or _EMPTY
        else:
            self._read = longer

    def _break(self) -> None:
        """End what is known exactly: what comes now may stand anywhere behind."""
        self._offer(self._read)
        self._read = _EMPTY
        self._is_exact = False

    def _offer(self, condition: Literals) -> None:
        if len(condition) <= self._form.most and _worth(condition) > _worth(self._best):
            self._best = condition

    def _members(self, members: Sequence[tuple[object, object]]) -> Literals | None:
        """Return the characters of a class, folded; None where they are many."""
        codes: list[int] = []
        for kind, argument in members:
            if kind is op.LITERAL:
                codes.append(argument)  # type: ignore[arg-type]
            elif kind is op.RANGE and argument[1] < 256:  # type: ignore[index]
                codes += range(argument[0], argument[1] + 1)  # type: ignore[index]
            elif kind is op.CATEGORY and argument is op.CATEGORY_DIGIT:
                codes += map(ord, _DIGITS)
            else:
                return None
        chars = {self._form.fold(code) for code in codes}
        if None in chars or len(chars) > _WIDEST:
            return None
        return frozenset(char for char in chars if char is not None)


def _joined(heads: Literals, tails: Literals, most: int) -> Literals | None:
    """Return every head with every tail; None where it is too much."""
    if len(heads) * len(tails) > most:
        return None
    both = frozenset(map("".join, product(heads, tails)))
    return both if max(map(len, both)) <= _LONGEST else None


def _shortest(literals: Literals) -> Literals:
    """Return the literals without those that hold another one."""
    return frozenset(one for one in literals if not any(other in one for other in literals if other is not one))


def _times(exact: Literals, number: int, most: int) -> Literals:
    result = _EMPTY
    for _ in range(number):
        longer = _joined(result, exact, most)
        if longer is None:
            break
        result = longer
    return result


def _worth(condition: Literals) -> float:
    """Return how much a condition tells: what its weakest literal does, a little less for each other one."""
    if not condition:
        return 0.0
    weakest = min(sum(_COMMON.get(char, 1.0) for char in literal) for literal in condition)
    return weakest - 0.02 * len(condition)
