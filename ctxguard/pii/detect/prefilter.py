"""Select the expressions that may match in a text, by the literals that each match must contain.

One pass over the text finds all literals (Aho and Corasick, "Efficient string matching", 1975). `anchors` derives the
literals from the expressions.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from ahocorasick import Automaton

from ctxguard.pii.detect.anchors import EDGE, Anchor
from ctxguard.pii.detect.normalize import PlainText

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


class _Form(NamedTuple):
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
        self._forms = [_form(table, words) for table, words in _words_of(anchors, located).items()]

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


def _search(one: _Form, form: str, view: PlainText, found: set[int], located: list[Located]) -> None:
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


def _form(table: bytes, literals: Mapping[str, Sequence[_Word]]) -> _Form:
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
    return _Form(table, places, automaton if numbers else None, numbers, [literals[literal] for literal in numbers])
