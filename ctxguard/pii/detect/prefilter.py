"""Select the expressions that may match in a text, by the literals that each match must contain.

One pass over the text finds all literals (Aho and Corasick, "Efficient string matching", 1975). `anchors` derives the
literals from the expressions.
"""

from __future__ import annotations

import json
import re
import unicodedata
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache, partial
from hashlib import sha256
from itertools import chain
from re import _constants as op  # type: ignore[attr-defined]
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from ahocorasick import Automaton

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
    first_of,
    in_both_cases,
    inner_of,
    may_ignore_case,
    members_of,
    parse,
    width_of,
)
from ctxguard.pii.detect.normalize import PlainText
from ctxguard.pii.rules.rule import EXPRESSIONS
from ctxguard.pii.rules.words import DATA

if TYPE_CHECKING:
    from ctxguard.pii.rules.rule import Rule


Literals: TypeAlias = frozenset[str]

_LONGEST: Final = 26  # maximum length of a literal: longer ones are hardly more selective
# Maximum number of characters to which a class may be mapped; a larger class ends the literal.
_WIDEST: Final = 7
# The selectivity of three rare characters and one that is common. If an anchor exceeds it, no other forms are tried.
_ENOUGH: Final = 3.4
EDGE: Final = "\x00"
"""Represents the edge of a word in a literal. Texts do not contain this character, except in blanked placeholders."""
_EMPTY: Final[Literals] = frozenset({""})
_COMMON: Final = {" ": 0.3, "-": 0.5, ".": 0.5, "/": 0.6}
# The selectivity of characters that represent a class in a form. All characters without an entry have 1.
_CLASSES: Final = {"0": 0.35, "A": 0.4, "a": 0.2, "h": 0.25, "w": 0.05}
# So many literals are searched for in less time than an expression.
_MOST_WITHIN: Final = 16
_ASCII: Final[Chars] = frozenset(range(128))
_LATIN: Final[Chars] = frozenset(range(256))
_RANGE_BEYOND: Final = re.compile(r"-[^\x00-\x7f]")
_ESCAPED: Final = re.compile(r"(?s)\\(?:x(..)|u(.{4})|U(.{8})|N\{([^}]+)\}|.)")


@dataclass(frozen=True, slots=True)
class Form:
    """A mapping of characters that replaces every character of a class by the same character.

    Attributes:
        table: Table for `bytes.translate`, which maps Latin-1 text.
        ignores_case: Whether lower-case and capital letters are mapped to the same character.
        weights: How much a character adds to the selectivity of a literal; 1 if the character is not listed. A literal
            is the more selective the fewer texts contain it.
        most: Maximum number of literals; an anchor with more literals is not used.
        price: The amount by which each literal reduces the selectivity of an anchor.
        is_latin: Whether the literals are only those that Latin-1 texts can contain. For other texts, see
            `Anchor.beyond`.
        toll: The amount by which the form reduces the selectivity of an anchor. Each form is one more pass over the
            text, so the forms that few expressions need are only used if they are much more selective.
    """

    table: bytes
    ignores_case: bool
    weights: Mapping[str, float]
    most: int = 24
    price: float = 0.02
    is_latin: bool = False
    toll: float = 0.0

    def fold(self, chars: Chars) -> Literals | None:
        """Return the characters to which a character class is mapped.

        Return None if there are too many, or if the class contains non-ASCII characters. With `is_latin`, those of
        Latin-1 are mapped like all others, and those beyond are ignored.
        """
        if self.is_latin:
            return _fold(self.table, chars & _LATIN)
        return _fold(self.table, chars) if chars <= _ASCII else None


@lru_cache(maxsize=1024)
def _fold(table: bytes, chars: Chars) -> Literals | None:
    folded = frozenset(chr(table[char]) for char in chars)
    return folded if len(folded) <= _WIDEST else None


def _form(
    *classes: tuple[str, Iterable[int]], ignores_case: bool = True, is_latin: bool = False, toll: float = 0.0
) -> Form:
    latin = "".join(map(chr, range(256)))
    table = bytearray((latin.lower() if ignores_case else latin).encode("latin-1"))
    for to, members in classes:
        for member in members:
            table[member] = ord(to)
    weights = _COMMON | {to: _CLASSES[to] for to, _ in classes if to in _CLASSES}
    size = (200, 0.012) if is_latin else (24, 0.02)
    return Form(bytes(table), ignores_case, weights, *size, is_latin=is_latin, toll=toll)


SHAPE: Final = _form(("0", DIGITS), ("A", UPPER), ("a", LOWER), ignores_case=False)
WORDS: Final = _form(("0", DIGITS), ("-", map(ord, " _")), is_latin=True)
"""The form for context words in many languages. It has literals only for the words that can occur in a Latin-1 text.
Spaces and underscores are mapped to hyphens."""
_HEX: Final = _form(("x", map(ord, "hH")), ("h", map(ord, "0123456789abcdefABCDEF")), toll=0.25)
_NAMES: Final = _form(("w", DIGITS | UPPER | frozenset(map(ord, "abcdefghijklmnopqrstuvwxyz_-"))), toll=0.25)
_FORMS: Final = (_form(("0", DIGITS), ("-", map(ord, " _"))), SHAPE, _HEX, _NAMES)
FORMS: Final = (*_FORMS, WORDS)


@dataclass(frozen=True, slots=True)
class Anchor:
    """Literals of which every match of an expression contains at least one, and their distance from the match's start.

    Attributes:
        form: The mapping that is applied to a text before the literals are searched for.
        literals: The literals. One empty literal means that nothing is known.
        least: Minimum number of characters from the start of a match to the literal.
        most: Maximum number of characters from the start of a match to the literal; None if unknown, so that the whole
            text must be searched.
        lead: The codes of characters that may occur between the start of a match and the literal.
        bound: The codes of characters that never directly precede a match.
        first: The codes of characters with which a match may begin.
        beyond: Non-ASCII characters. A text with a character beyond Latin-1 is searched even without the literals, if
            one of these is its lower-case letter. If empty, every text beyond Latin-1 is searched. Only used if the
            form has `is_latin`.
    """

    form: Form
    literals: tuple[str, ...]
    least: int = 0
    most: int | None = None
    lead: Chars = ALL
    bound: Chars = frozenset()
    first: Chars = ALL
    beyond: frozenset[str] = frozenset()

    def is_rarer(self, view: PlainText, count: int) -> bool:
        """Return whether a text is known to hold fewer literals than `count`, so that searching near them is faster."""
        if self.most is None:
            return False
        counts = [view.count_of(literal, self.form.table) for literal in self.literals]
        return None not in counts and sum(filter(None, counts)) < count

    def is_within(self, form: str, begin: int, end: int) -> bool:
        """Return whether a match may begin in a part of a text, judging by the literals behind it.

        Args:
            form: The text in the form of the anchor.
            begin: Start offset of the part.
            end: The last offset at which a match may begin.
        """
        if self.most is None or len(self.literals) > _MOST_WITHIN:
            return True
        for literal in self.literals:  # noqa: SIM110 - a generator takes longer than most searches
            if form.find(literal, begin, end + self.most + len(literal)) >= 0:
                return True
        return False

    def searcher(self) -> Callable[[PlainText], Iterator[int]]:
        """Return a function that yields the offsets in a text at which a match may begin, in ascending order."""
        least, most, table, literals = self.least, self.most or 0, self.form.table, self.literals
        # additional offsets do no harm, so non-ASCII characters are always accepted before a literal
        lead = frozenset(map(chr, self.lead)) if len(self.lead) < len(ALL) else frozenset(LATIN)
        bound = frozenset(chr(code) for code in self.bound if code < 128)
        begins = frozenset(map(chr, self.first))
        free = re.compile(f"[^{re.escape(''.join(sorted(bound)))}]" if bound else "(?s:.)")

        def starts(view: PlainText) -> Iterator[int]:
            text, tried, edge = view.text, 0, 0
            find = _finder(literals, view, table)
            place = find(0)
            while place >= 0:
                start = last = place - least
                # offsets that were tried for the previous literal are skipped; otherwise, each colon in `::::` would
                # take forty tries
                floor = max(tried, place - most)
                while start > floor and (text[start - 1] in lead or text[start - 1] > "\x7f"):
                    start -= 1
                for first in range(max(tried, start, 0), last + 1):
                    if (text[first] in begins or text[first] > "\xff") and (not first or text[first - 1] not in bound):
                        yield first
                tried, place = last + 1 if last >= tried else tried, place + 1
                # no match begins inside a run of characters that never precede a match, so megabytes of one letter are
                # skipped in one step
                if edge < tried and text[tried - 1] in bound:
                    free_at = free.search(text, tried)
                    edge = len(text) if free_at is None else free_at.end()
                    place = max(place, edge + least)
                place = find(place)

        return starts


def _finder(literals: Sequence[str], view: PlainText, table: bytes) -> Callable[[int], int]:
    """Return a function that takes an offset and returns the offset of the next literal; -1 if there is none.

    Args:
        literals: The literals.
        view: The text.
        table: The table of the form of the text that contains the literals.
    """
    if len(literals) == 1:
        return partial(view.form(table).find, literals[0])
    places = sorted(chain.from_iterable(view.places_of(literal, table) for literal in literals))

    def find(begin: int) -> int:
        number = bisect_left(places, begin)
        return places[number] if number < len(places) else -1

    return find


def _unescape(match: re.Match[str]) -> str:
    """Return the character that an escape in an expression names by its code or name; other escapes stay."""
    code = match[1] or match[2] or match[3]
    return unicodedata.lookup(match[4]) if match[4] else chr(int(code, 16)) if code else match[0]


def anchor_of(pattern: str, *, forms: Sequence[Form] = _FORMS) -> Anchor:
    """Derive an anchor from an expression for each form, and return the most selective of these anchors."""
    parsed = parse(pattern)
    both = may_ignore_case(parsed)
    best = Anchor(forms[0], ("",))
    for form in forms:
        if form.ignores_case or not parsed.state.flags & re.IGNORECASE:
            best = max(best, _Walk(form, parsed, both=both).best, key=worth)
        if worth(best) > _ENOUGH:
            break
    spelled = _ESCAPED.sub(_unescape, pattern)
    has_range = _RANGE_BEYOND.search(spelled) is not None
    # `EDGE` is always included, so that `beyond` is not empty for a rule with only ASCII words: that would mean that
    # every text beyond Latin-1 is searched
    known = frozenset({EDGE, *(char for char in spelled.lower() if not char.isascii())})
    beyond = frozenset[str]() if has_range else known
    return replace(best, bound=_bound(parsed), first=first_of(parsed), beyond=beyond)


def worth(anchor: Anchor) -> float:
    """Return the selectivity of an anchor.

    This is the selectivity of the anchor's least selective literal, reduced by the form's `price` for each literal, by
    its `toll`, and by 0.5 if the distance is unknown. If two anchors are equal otherwise, the one with longer literals
    is more selective: `license` is rarer than `driver`.
    """
    weights = anchor.form.weights
    each = [sum(weights.get(char, 1.0) for char in literal) for literal in anchor.literals]
    weakest = min(each) + 0.01 * sum(each) / len(each)
    reduced = weakest - anchor.form.price * len(anchor.literals) - anchor.form.toll
    return reduced - (0.5 if anchor.most is None else 0.0)


class _Walk:
    """Reads the nodes of an expression, and tracks the literals read so far and the best anchor so far.

    Args:
        form: The form of the literals.
        sequences: The nodes.
        both: Whether letters may also occur in the other case.
    """

    def __init__(self, form: Form, *sequences: Parsed, both: bool) -> None:
        self._form = form
        self._both = both
        self._read = _EMPTY
        self.lead: Chars = frozenset()
        self._is_exact = True
        self._least = self._most = 0
        self.best = Anchor(form, ("",))
        self._best_worth = worth(self.best)
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
        """All strings that the nodes match, as mapped by the form; None if there are too many, or they are unknown."""
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
            alternatives = [_Walk(self._form, one, both=self._both) for one in argument[1]]  # type: ignore[index]
            self._branch(alternatives)
            consumed = frozenset[int]().union(*(one.lead for one in alternatives))
        elif kind in (op.LITERAL, op.IN):
            chars = members_of(kind, argument)
            self.is_possible &= not self._form.is_latin or not chars.isdisjoint(_LATIN)
            self._append(self._form.fold(chars))
            consumed = in_both_cases(chars) if self._both else chars
        else:
            self._break()
        if kind not in REPEATS:
            self._widen(*width_of(kind, argument))
        self.lead |= consumed_by([(kind, argument)], both=self._both) if consumed is None else consumed

    def _widen(self, least: int, most: int) -> None:
        """Add to the minimum and maximum number of characters read so far."""
        self._least, self._most = self._least + least, self._most + most

    def _assert(self, direction: int, parsed: Parsed) -> None:
        """Use the content of a positive lookaround as an anchor.

        The literals of a lookbehind have no known distance from the match, so they only decide whether a text is
        searched.
        """
        best = _Walk(self._form, parsed, both=self._both).best
        self._suggest(best.literals, best.least, best.most if direction > 0 else None, best.lead)

    def _look_around(self, kind: object, argument: object) -> None:
        if kind is op.ASSERT:
            self._assert(*argument)  # type: ignore[misc]
        elif kind is op.ASSERT_NOT:
            self._forbid(*argument)  # type: ignore[misc]

    def _forbid(self, direction: int, parsed: Parsed) -> None:
        """Note that a word begins or ends here, if a negative lookaround forbids a letter in this place.

        The literals read so far then get an `EDGE`, which distinguishes the word `inn` from the letters in `beginning`.
        """
        nodes = list(parsed)
        if not self._form.is_latin or len(nodes) != 1 or nodes[0][0] not in ONE:
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
        # the parser of `re` moves a common prefix of the alternatives before the group; joined with the prefix again,
        # the beginnings of the alternatives are more selective
        heads = _concatenate(self._read, frozenset().union(*(walk.head for walk in walks)), self._form.most)
        self._offer(heads, frozenset().union(*(walk.lead for walk in walks)))
        # the literals that begin the alternatives also begin the word
        edge = EDGE if self._read == frozenset({EDGE}) else ""
        self._break()
        anchors = [walk.best for walk in walks]
        farthest = [anchor.most for anchor in anchors]
        edged = ((edge if walk.head.issuperset(walk.best.literals) else "", walk.best.literals) for walk in walks)
        literals = frozenset(prefix + literal for prefix, those in edged for literal in those)
        # a text with a literal that contains another one also contains the other one, so the longer one is redundant
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
        exact = _Walk(self._form, repeated, both=self._both).exact if least or most == 1 else None
        if exact is not None and not least and self._read != _EMPTY:
            # an optional part may be present or absent; at the start of the literal, it contributes nothing
            self._offer(self._read, self.lead)
            self._append(exact | _EMPTY)
            self._widen(0, width[1])
            return
        exact = exact if least else None
        read = min(least, _LONGEST) if exact is not None else 0
        # read each repetition separately, so that the distance of the literals from the start is known
        for _ in range(read):
            self._append(exact)
            self._widen(*width)
        if exact is None:
            self._break()
            if least:
                best = _Walk(self._form, *[repeated] * min(least, 2), both=self._both).best
                self._suggest(best.literals, best.least, best.most, best.lead)
        elif most != least or least > _LONGEST:
            self._break()
            # whatever the number of repetitions is, the last ones directly precede the next node
            self._read = _repeat_literals(exact, read, self._form.most)
        self._widen((least - read) * width[0], min((most - read) * width[1], 2 * FARTHEST))

    def _append(self, exact: Literals | None) -> None:
        # an edge is matched as the character outside the word, which must not be a character that was already read
        if exact and self._read != _EMPTY and any(literal.startswith(EDGE) for literal in exact):
            self._break()
        longer = _concatenate(self._read, exact, self._form.most) if exact else None
        if longer is None:
            self._break()
            self._read = exact or _EMPTY
        else:
            self._read = longer

    def _break(self) -> None:
        """End the literals read so far, because their distance to the next node is unknown."""
        self._offer(self._read, self.lead)
        if self._is_exact:
            self.head = self._read
        self._read = _EMPTY
        self._is_exact = False

    def _offer(self, literals: Literals | None, lead: Chars) -> None:
        """Make an anchor of literals, and keep it if it is the best anchor so far.

        The literals begin with those read so far, which end at the current node, so their distance is known.
        """
        sizes = [len(literal) for literal in self._read]
        least, most = max(0, self._least - max(sizes)), max(0, self._most - min(sizes))
        self._keep(Anchor(self._form, _shortest(literals or _EMPTY), least, most, self.lead | lead))

    def _suggest(self, literals: Iterable[str], least: int, most: int | None, lead: Chars) -> None:
        """Keep the anchor of a nested part, which begins at the current node, if it is the best anchor so far."""
        farthest = None if most is None else self._most + most
        self._keep(Anchor(self._form, _shortest(literals), self._least + least, farthest, self.lead | lead))

    def _keep(self, anchor: Anchor) -> None:
        if any(not literal.strip(EDGE) for literal in anchor.literals) or len(anchor.literals) > self._form.most:
            return
        # trying hundreds of offsets for each literal would take longer than searching the whole text
        if anchor.most is not None and anchor.most > FARTHEST:
            anchor = Anchor(anchor.form, anchor.literals)
        if (tells := worth(anchor)) > self._best_worth:
            self.best, self._best_worth = anchor, tells


def _shortest(literals: Iterable[str]) -> tuple[str, ...]:
    """Return the literals that begin with no other one, sorted: where one of the others is, a shorter one begins."""
    shortest: list[str] = []
    for literal in sorted(literals):
        if not shortest or not literal.startswith(shortest[-1]):
            shortest.append(literal)
    return tuple(shortest)


def _concatenate(heads: Literals, tails: Literals, most: int) -> Literals | None:
    """Return each head followed by each tail; None if there are too many, or one is too long."""
    if len(heads) * len(tails) > most:
        return None
    both = frozenset([head + tail for head in heads for tail in tails])
    return both if max(map(len, both)) <= _LONGEST else None


def _bound(parsed: Parsed) -> Chars:
    """Return the characters that an initial negative lookbehind forbids directly before a match."""
    kind, argument = next(iter(parsed), (None, None))
    if kind is not op.ASSERT_NOT or argument[0] > 0:  # type: ignore[index]
        return frozenset()
    behind = list(argument[1])  # type: ignore[index]
    return members_of(*behind[0]) if len(behind) == 1 and behind[0][0] in ONE else frozenset()


def _repeat_literals(exact: Literals, number: int, most: int) -> Literals:
    result = _EMPTY
    for _ in range(number):
        longer = _concatenate(result, exact, most)
        if longer is None:
            break
        result = longer
    return result


FILE: Final = DATA / "derived.json"


def derived(rule: Rule) -> Mapping[str, Any]:
    """Return the stored properties of a rule's matcher, by name.

    The result is empty if the file has no properties for the rule's current expressions.
    """
    of, properties = _stored().get(rule.name, ("", {}))
    if of != fingerprint(rule):
        return {}
    return {name: _anchor(**value) if isinstance(value, dict) else value for name, value in properties.items()}


def fingerprint(rule: Rule) -> str:
    """Return a hash of a rule's expressions, which changes if any of them changes."""
    return sha256("\0".join(getattr(rule, one) for one in EXPRESSIONS).encode()).hexdigest()[:16]


@cache
def _stored() -> Mapping[str, tuple[str, Mapping[str, Any]]]:
    read: Mapping[str, tuple[str, Mapping[str, Any]]] = json.loads(FILE.read_text("utf-8"))
    return read


def _anchor(form: int, literals: list[str], beyond: str = "", **others: Any) -> Anchor:  # noqa: ANN401 - other fields
    others |= {name: frozenset(map(ord, others[name])) for name in ("lead", "bound", "first") if name in others}
    return Anchor(FORMS[form], tuple(literals), beyond=frozenset(beyond), **others)


Located: TypeAlias = "tuple[frozenset[int], list[tuple[int, int]]]"
"""The indexes of the anchors that have a literal, and the start and end offset of each occurrence in a text."""
_FEW: Final = 12
"""Up to so many literals of a form are searched for one by one, which takes less time than an automaton."""
_LETTERS: Final = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")


class _Word(NamedTuple):
    """The meaning of a literal without its edges.

    Attributes:
        length: Number of characters.
        is_begin: Whether no letter may be before it.
        is_end: Whether no letter may be after it.
        places: The indexes of the anchors that have the literal.
        located: Those of them for which each occurrence is found.
    """

    length: int
    is_begin: bool
    is_end: bool
    places: frozenset[int]
    located: frozenset[int]

    @property
    def is_everywhere(self) -> bool:
        """Whether it does not matter where the literal occurs."""
        return not (self.is_begin or self.is_end or self.located)


class _Automaton(NamedTuple):
    """The literals that are searched for in one form of the texts.

    Attributes:
        table: The table of the form.
        singly: The literals that are searched for one by one, with the indexes of the anchors that have them: the few
            of a form, and those of one repeated character, which an automaton would find at each place of a long run.
        automaton: Finds all other literals in one pass, and gives their indexes; None if there are none.
        literals: The literals of the automaton, with their indexes.
        words: What each of them means.
    """

    table: bytes
    singly: Sequence[tuple[str, frozenset[int]]]
    automaton: Automaton | None
    literals: Mapping[str, int]
    words: Sequence[Sequence[_Word]]


class Prefilter:
    """Finds out which anchors (see `anchors.Anchor`) have a literal that occurs in a text.

    Args:
        anchors: The anchors.
        located: The indexes of the anchors for which each occurrence of a literal is found, see `locate`.
    """

    def __init__(self, anchors: Sequence[Anchor], located: Container[int] = ()) -> None:
        self._always = {place for place, one in enumerate(anchors) if "" in one.literals}
        self._beyond = [(place, one.beyond) for place, one in enumerate(anchors) if one.form.is_latin and one.beyond]
        self._letters = frozenset[str]().union(*(letters for _, letters in self._beyond))
        self._always_beyond = {place for place, one in enumerate(anchors) if one.form.is_latin and not one.beyond}
        self._forms = [_automaton_of(table, words) for table, words in _words_of(anchors, located).items()]

    def open(self, view: PlainText) -> set[int]:
        """Return the indexes of the anchors that have a literal in the text, so that their expressions may match."""
        return self.locate(view)[0]

    def locate(self, view: PlainText) -> tuple[set[int], list[Located]]:
        """Return what `open` returns, and the literals of the located anchors in the text.

        The view keeps the offsets of all literals, see `PlainText.places_of`. A view with dashes is not searched again:
        it has no other literals than the view with hyphens in their place.
        """
        if view.hyphened is None:
            found, located = self._locate(view)
        else:
            found, located = self._locate(view.hyphened)
            view.share_places(view.hyphened)
        if view.beyond_latin:
            found |= self._always_beyond
            if letters := self._letters & view.beyond_latin.keys():
                found.update(place for place, beyond in self._beyond if not beyond.isdisjoint(letters))
        return found, located

    def _locate(self, view: PlainText) -> tuple[set[int], list[Located]]:
        by, opened, places_of = view.located
        if by is self:
            return set(opened), places_of
        found, located = set(self._always), list[Located]()
        for one in self._forms:
            form = view.form(one.table)
            for literal, places in one.singly:
                if literal in form:
                    found |= places
            _search(one, form, view, found, located)
        view.located = self, frozenset(found), located
        return found, located


def _search(one: _Automaton, form: str, view: PlainText, found: set[int], located: list[Located]) -> None:
    """Add to `found` and `located` what the automaton of a form finds in a text."""
    if one.automaton is None:
        return
    ends: defaultdict[int, list[int]] = defaultdict(list)
    for last, number in one.automaton.iter(form):
        ends[number].append(last + 1)
    view.keep_places(one.table, one.literals, ends)
    for number, those in ends.items():
        for word in one.words[number]:
            if word.located or not word.places <= found:
                _read(word, those, view.plain, found, located)


def _read(word: _Word, ends: Sequence[int], plain: bytes, found: set[int], located: list[Located]) -> None:
    """Add to `found` and `located` what a literal means that ends at these offsets of a text."""
    length, is_begin, is_end, places, those = word
    if is_begin:
        ends = [end for end in ends if end == length or plain[end - length - 1] not in _LETTERS]
    if is_end:
        ends = [end for end in ends if end == len(plain) or plain[end] not in _LETTERS]
    if ends:
        found |= places
        if those:
            located.append((those, [(end - length, end) for end in ends]))


def _words_of(anchors: Sequence[Anchor], located: Container[int]) -> dict[bytes, dict[str, list[_Word]]]:
    """Return the literals of the anchors without their edges, and what they mean, by the table of their form."""
    places: dict[tuple[bytes, str], set[int]] = {}
    for place, one in enumerate(anchors):
        for literal in filter(None, one.literals):
            places.setdefault((one.form.table, literal), set()).add(place)
    words: dict[bytes, dict[str, list[_Word]]] = {}
    for (table, literal), those in places.items():
        given = frozenset(one for one in those if one in located)
        name = literal.strip(EDGE)
        word = _Word(len(name), literal[0] == EDGE, literal[-1] == EDGE, frozenset(those), given)
        words.setdefault(table, {}).setdefault(name, []).append(word)
    return words


def _automaton_of(table: bytes, literals: Mapping[str, Sequence[_Word]]) -> _Automaton:
    """Return what searches for the literals of one form."""
    singly = {literal for literal, words in literals.items() if all(word.is_everywhere for word in words)}
    if len(literals) > _FEW or len(singly) < len(literals):
        singly = {literal for literal in singly if len(set(literal)) == 1}
    places = [(one, frozenset[int]().union(*(word.places for word in literals[one]))) for one in sorted(singly)]
    numbers = {literal: number for number, literal in enumerate(one for one in literals if one not in singly)}
    automaton = Automaton()
    for literal, number in numbers.items():
        automaton.add_word(literal, number)
    automaton.make_automaton()
    return _Automaton(
        table, places, automaton if numbers else None, numbers, [literals[literal] for literal in numbers]
    )
