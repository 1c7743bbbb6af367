"""Select the expressions that may match in a text, by the literals that each match must contain.

With google-re2 (extra `fast`), one pass finds all literals; without it, each literal is searched for separately. Both
use the same literals, which `anchors` derives from the expressions.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import Final

from ctxguard.pii.detect.anchors import EDGE, Anchor, Form
from ctxguard.pii.detect.normalize import PlainText

_MEMORY: Final = 64 << 20  # memory limit of an RE2 automaton, in bytes


class Prefilter:
    """Finds out which anchors have a literal that occurs in a text."""

    def __init__(self, anchors: Sequence[Anchor]) -> None:
        self._anchors = tuple(anchors)
        self._of_ascii = [(place, one.beyond) for place, one in enumerate(anchors) if one.form.is_ascii]
        self._automata = _automata(self._anchors) if importlib.util.find_spec("re2") is not None else None

    def open(self, view: PlainText) -> set[int]:
        """Return the indexes of the anchors that have a literal in the text, so that their expressions may match."""
        found = set(self._one_by_one(view) if self._automata is None else self._automata(view.plain))
        if not self._of_ascii or view.text.isascii():
            return found
        chars = view.beyond_ascii
        return found.union(place for place, beyond in self._of_ascii if not beyond or not beyond.isdisjoint(chars))

    def _one_by_one(self, view: PlainText) -> Iterator[int]:
        # an anchor has few literals, and `in` is very fast if a literal does not occur
        for place, anchor in enumerate(self._anchors):
            form = view.form(anchor.form.table)
            for literal in anchor.literals:
                if literal.strip(EDGE) in form:
                    yield place
                    break


def _automata(anchors: Sequence[Anchor]) -> Callable[[bytes], Iterable[int]]:
    """Return a function that finds the indexes of anchors with a literal in Latin-1 text.

    It uses one RE2 automaton for all anchors, except for forms with `is_apart`, which have their own automaton.
    """
    parts: dict[bytes, list[int]] = {}
    for place, anchor in enumerate(anchors):
        parts.setdefault(anchor.form.table if anchor.form.is_apart else b"", []).append(place)
    automata = [(_re2_set([anchors[place] for place in places]), places) for places in parts.values()]
    return lambda plain: (places[number] for match, places in automata for number in match(plain) or ())


def _re2_set(anchors: Iterable[Anchor]) -> Callable[[bytes], Sequence[int] | None]:
    """Compile the literals of some anchors to one RE2 automaton, and return its match function.

    The literals consist of characters and classes and have a fixed length, so the automaton stays far below its memory
    limit.
    """
    import re2

    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    # beyond its memory limit, RE2 discards its states and becomes many times slower
    options.max_mem = _MEMORY
    every = re2.Set.SearchSet(options)
    for anchor in anchors:
        every.Add("|".join(_spelling(literal, anchor.form) for literal in anchor.literals))
    every.Compile()
    matching: Callable[[bytes], Sequence[int] | None] = every.Match
    return matching


def _spelling(literal: str, form: Form) -> str:
    """Return an expression that matches all spellings of a form's literal in the original text."""
    if literal[:1] == EDGE:
        return f"(?:^|[^A-Za-z]){_spelling(literal[1:], form)}"
    if literal[-1:] == EDGE:
        return f"{_spelling(literal[:-1], form)}(?:[^A-Za-z]|$)"
    return "".join(_class(char, form.table) for char in literal)


@cache
def _class(char: str, table: bytes) -> str:
    return "[" + "".join(f"\\x{code:02x}" for code in range(256) if chr(table[code]) == char) + "]"
