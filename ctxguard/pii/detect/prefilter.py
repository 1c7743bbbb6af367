"""Select the expressions that may match in a text, by the literals that each match must contain.

One pass over the text finds all literals (Aho and Corasick, "Efficient string matching", 1975). `anchors` derives the
literals from the expressions.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import TypeAlias

from ahocorasick import Automaton

from ctxguard.pii.detect.anchors import EDGE, Anchor
from ctxguard.pii.detect.normalize import PlainText

_Words: TypeAlias = dict[tuple[int, bool, bool], set[int]]
Located: TypeAlias = tuple[int, int, frozenset[int]]
"""The start and end offset of a literal in a text, and the indexes of the anchors that have it."""


class Prefilter:
    """Finds out which anchors (see `anchors.Anchor`) have a literal that occurs in a text.

    Args:
        anchors: The anchors.
        located: The indexes of the anchors for which each occurrence of a literal is found, see `locate`.
    """

    def __init__(self, anchors: Sequence[Anchor], located: Container[int] = ()) -> None:
        self._always = {place for place, one in enumerate(anchors) if "" in one.literals}
        self._of_ascii = [(place, one.beyond) for place, one in enumerate(anchors) if one.form.is_ascii]
        literals: dict[bytes, dict[str, _Words]] = {}
        for place, one in enumerate(anchors):
            for literal in filter(None, one.literals):
                word = literal.strip(EDGE)
                edges = (len(word), literal[0] == EDGE, literal[-1] == EDGE)
                words = literals.setdefault(one.form.table, {}).setdefault(word, {})
                words.setdefault(edges, set()).add(place)
        self._automata = [(table, _automaton(words, located)) for table, words in literals.items()]

    def open(self, view: PlainText) -> set[int]:
        """Return the indexes of the anchors that have a literal in the text, so that their expressions may match."""
        return self.locate(view)[0]

    def locate(self, view: PlainText) -> tuple[set[int], list[Located]]:
        """Return what `open` returns, and the literals of the located anchors in the text."""
        found, plain, located = set(self._always), view.plain, list[Located]()
        for table, automaton in self._automata:
            for last, words in automaton.iter(view.form(table)):
                for (length, is_begin, is_end), places, those in words:
                    if not those and places <= found:
                        continue
                    first = last + 1 - length
                    if is_begin and plain[max(first - 1, 0) : first].isalpha():
                        continue
                    if is_end and plain[last + 1 : last + 2].isalpha():
                        continue
                    found |= places
                    if those:
                        located.append((first, last + 1, those))
        if not self._of_ascii or view.text.isascii():
            return found, located
        chars = view.beyond_ascii
        found.update(place for place, beyond in self._of_ascii if not beyond or not beyond.isdisjoint(chars))
        return found, located


def _automaton(literals: dict[str, _Words], located: Container[int]) -> Automaton:
    """Return an automaton that finds literals, and gives the indexes of the anchors that have them, all and located."""
    automaton = Automaton()
    for literal, words in literals.items():
        given = ((edges, places, frozenset(one for one in places if one in located)) for edges, places in words.items())
        automaton.add_word(literal, tuple(given))
    automaton.make_automaton()
    return automaton
