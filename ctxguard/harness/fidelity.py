"""Measure how much of what the next step needs a context contains, without asking a model.

Next-action support looks at the paths, ids, numbers, and names in the recorded agent's next message. Of those that only
the older part of the history contains, it measures how many are in the context. This measures the context and not a
model's use of it, so always read it together with the bill.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final, Generic, TypeVar

from ctxguard.artifacts import Artifact, Kind
from ctxguard.history import exchanges
from ctxguard.history.pairing import whole_until

Given = TypeVar("Given")
Made = TypeVar("Made")


class ByIdentity(Generic[Given, Made]):
    """Calls a function once for each object, and caches the results by object identity."""

    def __init__(self, make: Callable[[Given], Made]) -> None:
        self._make = make
        self._known: dict[int, tuple[Given, Made]] = {}

    def __call__(self, given: Given) -> Made:
        """Return the function's result for an object."""
        known = self._known.get(id(given))
        if known is None:  # keep a reference to the object, so that its id stays unique
            known = self._known[id(given)] = (given, self._make(given))
        return known[1]


NEAR: Final = 100
"""Number of characters on each side of an occurrence that count as its context."""
WORDS_NEEDED: Final = 3
"""Number of words around an occurrence that must also surround the string in the history."""
_RUN: Final = re.compile(r"[A-Za-z0-9_./@:#-]{4,}")
_LONGEST: Final = 120  # characters; longer strings are data, not names
_MARKED: Final = re.compile(r"[0-9_/]|.[A-Z]|.\..")
_WORD: Final = re.compile(r"[A-Za-z]{4,}")
_SENTENCE_ENDS: Final = ".:-"


@dataclass(frozen=True, slots=True)
class Need:
    """One string that the next message uses and that only the older history contains.

    Attributes:
        string: Path, id, number, or name.
        words: Words of four or more letters within 100 characters of the string in the history.
    """

    string: str
    words: frozenset[str]


@dataclass(frozen=True, slots=True)
class Support:
    """The number of needed strings, and how many of them a context contains.

    Attributes:
        needed: Number of strings that the next message needs.
        held: Number of needed strings that are anywhere in the context.
        held_in_context: Number of needed strings that are in the context near at least three of the words that surround
            them in the history.
    """

    needed: int
    held: int
    held_in_context: int

    @property
    def plain(self) -> float:
        """Share of the needed strings that the context contains; 1.0 if none is needed."""
        return self.held / self.needed if self.needed else 1.0

    @property
    def with_context(self) -> float:
        """Share of the needed strings that are in the context with some of their words; 1.0 if none is needed."""
        return self.held_in_context / self.needed if self.needed else 1.0


def distinctive_strings(text: str) -> list[str]:
    """Return the distinctive strings in a text, without repetitions, in order of first appearance.

    A distinctive string has 4 to 120 characters of `[A-Za-z0-9_./@:#-]` and contains a digit, `_`, `/`, an inner
    capital, or an inner dot. Punctuation that ends a sentence is not part of it.
    """
    runs = (run.rstrip(_SENTENCE_ENDS) for run in _RUN.findall(text))
    return list(dict.fromkeys(run for run in runs if 4 <= len(run) <= _LONGEST and _MARKED.search(run)))


class Fidelity:
    """Measures next-action support call by call. Use one instance for each session, since it caches searches.

    Args:
        mask: Function that masks personal data in a string. Strings that it changes are left out, since no masked
            context can contain them. None leaves nothing out.
    """

    def __init__(self, mask: Callable[[str], str] | None = None) -> None:
        self._mask = mask
        self._words_near = cache(_words_near)
        self._text: ByIdentity[Artifact, str] = ByIdentity(text_of)

    def __call__(self, history: Sequence[Artifact], context: Iterable[Artifact], following: Artifact) -> Support:
        """Return which share of what the next message, `following`, needs from `history` is in `context`."""
        return self.support(self.needs(history, following), context)

    def needs(self, history: Sequence[Artifact], following: Artifact) -> list[Need]:
        """Return the strings that the message `following` takes from older history.

        Strings in the system prompt, the task, the last user message, and the last tool exchange are left out, because
        every valid context contains them.
        """
        wanted = self._unmasked_strings(self._text(following))
        if not wanted or not history:
            return []
        given = _always_present(history)
        texts = [(position in given, self._text(artifact)) for position, artifact in enumerate(history)]
        found = []
        for string in wanted:
            holding = [(is_given, text) for is_given, text in texts if string in text]
            if holding and not any(is_given for is_given, _ in holding):
                around = (words for _, text in holding for words in self._words_near(text, string))
                found.append(Need(string, frozenset().union(*around)))
        return found

    def support(self, needs: Sequence[Need], context: Iterable[Artifact]) -> Support:
        """Return the number of needs, and how many of them a context contains."""
        texts = [self._text(artifact) for artifact in context]
        held = supported = 0
        for need in needs:
            holding = [text for text in texts if need.string in text]
            held += bool(holding)
            supported += any(self._tells(text, need) for text in holding)
        return Support(len(needs), held, supported)

    def _tells(self, text: str, need: Need) -> bool:
        return any(len(words & need.words) >= WORDS_NEEDED for words in self._words_near(text, need.string))

    def _unmasked_strings(self, text: str) -> list[str]:
        """Return the distinctive strings in a text that masking leaves unchanged."""
        strings = distinctive_strings(text)
        if self._mask is None or not strings:
            return strings
        left = set(distinctive_strings(self._mask(text)))
        return [string for string in strings if string in left and self._mask(string) == string]


def text_of(artifact: Artifact) -> str:
    """Return what a model reads of an artifact: its text, and the names and arguments of its calls."""
    calls = (f"{call.name} {call.arguments}" for call in artifact.calls)
    return "\n".join((artifact.text, *calls)) if artifact.calls else artifact.text


def end_of_pieces(text: str, pieces: Sequence[str], start: int) -> int | None:
    """Return the end of the last piece if a text contains all pieces in order after `start`; otherwise None."""
    for piece in pieces:
        found = text.find(piece, start)
        if found < 0:
            return None
        start = found + len(piece)
    return start


def _always_present(history: Sequence[Artifact]) -> frozenset[int]:
    """Return the positions that any valid context contains: system, task, last user message, and last tool exchange."""
    positions = {p for p, artifact in enumerate(history) if artifact.kind in (Kind.SYSTEM, Kind.TASK)}
    positions.update(_newest_exchange(history))
    last_user = next((p for p in range(len(history) - 1, -1, -1) if history[p].kind is Kind.USER), None)
    return frozenset(positions if last_user is None else positions | {last_user})


def _newest_exchange(history: Sequence[Artifact]) -> Iterator[int]:
    """Yield the positions of the last exchange. What is before it is paired only if it is not well-formed."""
    last = max((n for n, artifact in enumerate(history) if artifact.kind is not Kind.TOOL), default=0)
    begin = whole_until(history, end=last) or 0
    return (begin + position for position in exchanges(history[begin:])[-1].positions)


def _words_near(text: str, string: str) -> tuple[frozenset[str], ...]:
    """Return the set of words around each occurrence of a string in a text."""
    return tuple(dict.fromkeys(_words_around(text, string)))


def _words_around(text: str, string: str) -> Iterator[frozenset[str]]:
    start = text.find(string)
    while start >= 0:
        end = start + len(string)
        before, after = text[max(0, start - NEAR) : start], text[end : end + NEAR]
        yield frozenset((*_WORD.findall(before), *_WORD.findall(after)))
        start = text.find(string, end)
