"""Select the expressions that may match in a text, by the literals that each match must contain.

One pass over the text finds all literals (Aho and Corasick, "Efficient string matching", 1975). `anchors` derives the
literals from the expressions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from ahocorasick import Automaton

from ctxguard.pii.detect.anchors import EDGE, Anchor
from ctxguard.pii.detect.normalize import PlainText

_Words: TypeAlias = dict[tuple[int, bool, bool], set[int]]


class Prefilter:
    """Finds out which anchors (see `anchors.Anchor`) have a literal that occurs in a text."""

    def __init__(self, anchors: Sequence[Anchor]) -> None:
        self._always = {place for place, one in enumerate(anchors) if "" in one.literals}
        self._of_ascii = [(place, one.beyond) for place, one in enumerate(anchors) if one.form.is_ascii]
        literals: dict[bytes, dict[str, _Words]] = {}
        for place, one in enumerate(anchors):
            for literal in filter(None, one.literals):
                word = literal.strip(EDGE)
                edges = (len(word), literal[0] == EDGE, literal[-1] == EDGE)
                words = literals.setdefault(one.form.table, {}).setdefault(word, {})
                words.setdefault(edges, set()).add(place)
        self._automata = [(table, _automaton(words)) for table, words in literals.items()]

    def open(self, view: PlainText) -> set[int]:
        """Return the indexes of the anchors that have a literal in the text, so that their expressions may match."""
        found, plain = set(self._always), view.plain
        for table, automaton in self._automata:
            for last, words in automaton.iter(view.form(table)):
                for (length, is_begin, is_end), places in words:
                    if places <= found:
                        continue
                    first = last + 1 - length
                    if is_begin and plain[max(first - 1, 0) : first].isalpha():
                        continue
                    if is_end and plain[last + 1 : last + 2].isalpha():
                        continue
                    found |= places
        if not self._of_ascii or view.text.isascii():
            return found
        chars = view.beyond_ascii
        return found.union(place for place, beyond in self._of_ascii if not beyond or not beyond.isdisjoint(chars))


def _automaton(literals: dict[str, _Words]) -> Automaton:
    """Return an automaton that finds literals, and gives for each literal the indexes of the anchors that have it."""
    automaton = Automaton()
    for literal, words in literals.items():
        automaton.add_word(literal, tuple(words.items()))
    automaton.make_automaton()
    return automaton
