"""Analyze regular expressions with the parser of `re`: the characters, lengths, and ends of their matches."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from math import inf, log10
from re import _constants as op  # type: ignore[attr-defined]  # the one parser that reads what `re` reads
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any, Final, NamedTuple, TypeAlias, cast

Chars: TypeAlias = frozenset[int]
"""A character class: codes below 256, and `BEYOND` if it contains any other character."""
Parsed: TypeAlias = Iterable[tuple[object, object]]

BEYOND: Final = 256
# Maximum distance from the start of a match to its literal. If it can be greater, the whole text is searched.
FARTHEST: Final = 200
# The steps that repeating a group once takes in addition to what is in the group, measured with `re`.
_STEPS_OF_REPEAT: Final = 10.0
# Nodes that match one character.
ONE: Final = (op.LITERAL, op.NOT_LITERAL, op.IN, op.ANY)
REPEATS: Final = (op.MAX_REPEAT, op.MIN_REPEAT, op.POSSESSIVE_REPEAT)
LATIN: Final = [chr(code) for code in range(256)]
DIGITS: Final = frozenset(map(ord, "0123456789"))
UPPER: Final = frozenset(map(ord, "ABCDEFGHIJKLMNOPQRSTUVWXYZ"))
LOWER: Final = frozenset(map(ord, "abcdefghijklmnopqrstuvwxyz")) | frozenset(range(0xC0, 0x100))
LETTERS: Final = frozenset(range(0x61, 0x7B))
_ASCII: Final[Chars] = frozenset(range(128))
ALL: Final[Chars] = frozenset(range(BEYOND + 1))
_CATEGORIES: Final = {
    # texts are normalized, so all digits are ASCII digits
    op.CATEGORY_DIGIT: DIGITS,
    op.CATEGORY_NOT_DIGIT: ALL - DIGITS,
    op.CATEGORY_SPACE: frozenset(ord(c) for c in LATIN if c.isspace()) | {BEYOND},
    op.CATEGORY_NOT_SPACE: frozenset(ord(c) for c in LATIN if not c.isspace()) | {BEYOND},
    op.CATEGORY_WORD: frozenset(ord(c) for c in LATIN if c.isalnum() or c == "_") | {BEYOND},
    op.CATEGORY_NOT_WORD: frozenset(ord(c) for c in LATIN if not (c.isalnum() or c == "_")) | {BEYOND},
}
_NUMBER_SIGNS: Final = DIGITS | frozenset(map(ord, " .()/+-"))
_NUMBER_ENDS: Final = DIGITS | frozenset(map(ord, "+()"))
_NUMBER_WIDTHS: Final = range(6, 129)

_SEPARATING: Final = " \n\",'():<>=\t"

# each expression is analyzed several times, and many rules share one
parse: Final = lru_cache(maxsize=512)(parser.parse)


def is_number(pattern: str) -> bool:
    """Return whether an expression describes the shape of a number, whatever its digits and letters are.

    Such an expression consumes only digits and their separators, at least six characters. It is matched on shapes, in
    which every digit is replaced by `0`. Unlike texts, shapes repeat, so their matches can be cached.
    """
    parsed = parse(pattern)
    least, most = parsed.getwidth()
    # a lookahead at the first character also sets a minimum length
    least = max([least, *(ahead[1].getwidth()[0] for kind, ahead in parsed if kind is op.ASSERT and ahead[0] > 0)])
    return (
        least in _NUMBER_WIDTHS
        and most in _NUMBER_WIDTHS
        and not parsed.state.flags & (re.IGNORECASE | re.MULTILINE)
        and all(map(_is_shape, _classes(parsed)))
        and consumed_by(parsed) <= _NUMBER_SIGNS
        and _edge(parsed, 1) | _edge(parsed, -1) <= _NUMBER_ENDS
    )


def tells_digits_apart(pattern: str) -> bool:
    """Return whether an expression distinguishes between digits: `sha256` does, `[a-z0-9]+` does not."""
    return any(chars & DIGITS not in (frozenset(), DIGITS) for chars in _classes(parse(pattern)))


def reach(pattern: str) -> int:
    """Return the maximum number of characters, counted from the start of a match, on which the match depends.

    This includes lookaheads, which begin within the match or directly after it.
    """
    parsed = parse(pattern)
    ahead = sum(argument[1].getwidth()[1] for kind, argument in _nodes(parsed) if kind in (op.ASSERT, op.ASSERT_NOT))  # type: ignore[index]
    return int(parsed.getwidth()[1] + ahead)


def between(pattern: str) -> str:
    """Return up to three characters that never occur in a match, those first that separate most texts into short parts.

    A match may still depend on such a character next to it.
    """
    consumed = consumed_by(parse(pattern))
    has_reference = any(kind in (op.GROUPREF, op.GROUPREF_EXISTS) for kind, _ in _nodes(parse(pattern)))
    return "" if has_reference else "".join(char for char in _SEPARATING if ord(char) not in consumed)[:3]


def is_beyond_ascii(pattern: str) -> bool:
    """Return whether each match contains a non-ASCII character, so that ASCII texts need not be searched."""
    parsed = parse(pattern)
    # some non-ASCII letters match an ASCII letter in another case
    return not parsed.state.flags & re.IGNORECASE and _is_beyond_ascii(parsed)


def _is_beyond_ascii(parsed: Parsed) -> bool:
    for kind, argument in parsed:
        if kind in ONE:
            found = members_of(kind, argument).isdisjoint(_ASCII)
        elif kind is op.BRANCH:
            found = all(map(_is_beyond_ascii, inner_of(kind, argument)))
        elif kind in REPEATS:
            found = argument[0] > 0 and _is_beyond_ascii(argument[2])  # type: ignore[index]
        else:
            is_group = kind is op.ATOMIC_GROUP or (kind is op.SUBPATTERN and not argument[1])  # type: ignore[index]
            found = is_group and any(map(_is_beyond_ascii, inner_of(kind, argument)))
        if found:
            return True
    return False


def runs_on(pattern: str) -> int:
    """Return the maximum number of repeats of any part that can match a line break.

    An expression matches the same in a text alone as in that text between more blank lines than that. If the expression
    has anchors such as `^` and `$`, or forbids a line break next to the match, no number of blank lines is enough. The
    result is then the largest repeat count of `re`.
    """
    most = 0
    for kind, argument in _nodes(parse(pattern)):
        if kind is op.AT and "BOUNDARY" not in str(argument):
            return int(parser.MAXREPEAT)
        # the outermost character of a lookaround decides: between blank lines, it is always a line break
        if kind is op.ASSERT_NOT and ord("\n") in _edge(argument[1], -argument[0]):  # type: ignore[index]
            return int(parser.MAXREPEAT)
        if kind in REPEATS and any(ord("\n") in chars for chars in _classes([(kind, argument)])):
            most = max(most, int(argument[1]))  # type: ignore[index]
    return most


def most_steps(pattern: str) -> float:
    """Return an upper bound for the steps that `re` takes to match an expression at one offset, as a power of ten.

    A step compares one character. Where something is repeated or optional, `re` tries what comes after it in each way
    in which it can match, except behind atomic groups, possessive repeats, and lookarounds, of which it tries one way.
    A back reference compares the text of its group each time. The bound is infinite if something is repeated without
    a limit. It is far more than `re` takes in most texts, but a hostile text can come near it.
    """
    parsed = parse(pattern)
    widths = [None if width is None else width[1] for width in parsed.state.groupwidths]
    return log10(max(1.0, _work(parsed, widths).steps))


class _Work(NamedTuple):
    """What matching a part of an expression takes: the ways in which it can match, as a power of ten, and the steps."""

    ways: float
    steps: float


def _work(parsed: Parsed, widths: Sequence[int | None]) -> _Work:
    ways = steps = 0.0
    for kind, argument in parsed:
        inner = [_work(one, widths) for one in inner_of(kind, argument)]
        most = max((one.ways for one in inner), default=0.0)
        taken = sum(one.steps for one in inner) or 1.0
        if kind is op.GROUPREF and widths:
            taken = float(widths[cast("int", argument)] or 1)
        if kind in REPEATS:
            least, limit = argument[:2]  # type: ignore[index]
            is_simple = [node[0] in ONE for node in cast("Sequence[Any]", argument)[2]] == [True]
            once = taken if is_simple else taken + _STEPS_OF_REPEAT
            tried = 0.0 if kind is op.POSSESSIVE_REPEAT else limit * most
            taken = inf if limit is parser.MAXREPEAT else limit * once * _power(tried)
            most = inf if limit is parser.MAXREPEAT else limit * most + log10(limit - least + 1)
        if kind is op.BRANCH:
            most += log10(len(inner))
        if kind in (op.POSSESSIVE_REPEAT, op.ATOMIC_GROUP, op.ASSERT, op.ASSERT_NOT) and most < inf:
            most = 0.0
        steps += _power(ways) * taken
        ways += most
    return _Work(ways, steps)


def _power(ways: float) -> float:
    return 10 ** min(ways, 100.0)


def _nodes(parsed: Parsed) -> Iterator[tuple[object, object]]:
    """Yield all nodes of a parsed expression, including nested nodes."""
    for kind, argument in parsed:
        yield kind, argument
        for inner in inner_of(kind, argument):
            yield from _nodes(inner)


def inner_of(kind: object, argument: object) -> Sequence[Parsed]:
    """Return the sequences of nodes that are nested in a node."""
    if kind is op.BRANCH:
        return argument[1]  # type: ignore[index, no-any-return]
    if kind is op.GROUPREF_EXISTS:
        return [one for one in argument[1:] if one is not None]  # type: ignore[index]
    if kind is op.ATOMIC_GROUP:
        return [argument]  # type: ignore[list-item]
    if kind in (*REPEATS, op.SUBPATTERN, op.ASSERT, op.ASSERT_NOT):
        return [argument[-1]]  # type: ignore[index]
    return []


def members_of(kind: object, argument: object) -> Chars:
    """Return the characters that a node for one character matches."""
    if kind is op.ANY:
        return ALL
    if kind in (op.LITERAL, op.NOT_LITERAL):
        one = _range(argument, argument)
        return one if kind is op.LITERAL else ALL - one
    members: set[int] = set()
    negated = False
    for inner, value in argument:  # type: ignore[attr-defined]
        if inner is op.NEGATE:
            negated = True
        elif inner is op.LITERAL:
            members |= _range(value, value)
        elif inner is op.RANGE:
            members |= _range(*value)
        else:
            members |= _CATEGORIES[value]
    return (ALL - members) | {BEYOND} if negated else frozenset(members)


@lru_cache(maxsize=1024)
def _range(first: int, last: int) -> Chars:
    return frozenset(range(min(first, BEYOND), min(last, BEYOND) + 1))


def width_of(kind: object, argument: object) -> tuple[int, int]:
    """Return the minimum and maximum number of characters that a node matches."""
    if kind in ONE:
        return 1, 1
    if kind is op.GROUPREF:
        return 0, 2 * FARTHEST
    least, most = parser.SubPattern(parser.State(), [(kind, argument)]).getwidth()
    return int(least), min(int(most), 2 * FARTHEST)


def _classes(parsed: Parsed) -> Iterator[Chars]:
    """Yield the character class of each node for one character, including those in lookarounds."""
    return (members_of(kind, argument) for kind, argument in _nodes(parsed) if kind in ONE)


def consumed_by(parsed: Parsed, *, both: bool = True) -> Chars:
    """Return all characters that can occur in a match, with both cases of each ASCII letter unless `both` is false."""
    consumed: Chars = frozenset()
    for kind, argument in parsed:
        if kind in ONE:
            chars = members_of(kind, argument)
            consumed |= in_both_cases(chars) if both else chars
        elif kind not in (op.ASSERT, op.ASSERT_NOT, op.AT, op.GROUPREF):
            consumed = consumed.union(*(consumed_by(one, both=both) for one in inner_of(kind, argument)))
    return consumed


def may_ignore_case(parsed: Parsed) -> bool:
    """Return whether an expression or a group in it ignores the case of letters."""
    groups = (argument for kind, argument in _nodes(parsed) if kind is op.SUBPATTERN)
    return bool(parsed.state.flags & re.IGNORECASE) or any(group[1] & re.IGNORECASE for group in groups)  # type: ignore[attr-defined, index]


def first_of(parsed: Parsed) -> Chars:
    """Return the characters with which a match can begin."""
    if not may_ignore_case(parsed):
        return _edge(parsed, 1)
    # letters beyond ASCII may match in another case
    return in_both_cases(_edge(parsed, 1)) | (ALL - _ASCII)


def in_both_cases(chars: Chars) -> Chars:
    """Return a character class extended by the other case of each ASCII letter."""
    return chars | {letter ^ 0x20 for letter in chars & (UPPER | LETTERS)}


def _edge(parsed: Iterable[tuple[object, object]], step: int) -> Chars:
    """Return the characters that can be the first (`step` 1) or the last (`step` -1) of a match."""
    edge: Chars = frozenset()
    for kind, argument in list(parsed)[::step]:
        if kind in (op.ASSERT, op.ASSERT_NOT, op.AT):
            continue
        if kind is op.GROUPREF:
            return ALL
        inner = inner_of(kind, argument)
        edge = edge.union(*(_edge(one, step) for one in inner)) if inner else edge | members_of(kind, argument)
        if width_of(kind, argument)[0]:
            break
    return edge


def _is_shape(chars: Chars) -> bool:
    """Return whether matching a character class on shapes gives the same result as on texts.

    In a shape, every digit is replaced by `0`, every capital by `A`, and every lower-case letter by `a`. So the class
    must contain all digits or none, all capitals or none, and all lower-case letters or none. In a shape, `?` also
    stands for all characters beyond Latin-1. So the class must contain `?` and these characters, or neither.
    """
    whole = all(chars & kind in (frozenset(), kind) for kind in (DIGITS, UPPER, LOWER))
    return whole and (ord("?") in chars) is (BEYOND in chars)
