"""Search for known names.

A name becomes known when a text introduces a person by it. Later texts are searched for the name as it was written, in
capitals, and for each of its words that is not an ordinary word: for `Roe` after `Jane Roe` was introduced. Each of
these, the full name and the single words, is a form of the name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from ctxguard.history.memory import Memory
from ctxguard.pii.detect.normalize import view_of
from ctxguard.pii.rules.words import words

_WORD: Final = re.compile(r"[^\W\d_]+")
_LETTER: Final = re.compile(r"\w")
_NEVER_IN_A_NAME: Final = re.compile(r"[\d@_/\\:=]|[^\W\d_]\.[^\W\d_]{2}")
_BETWEEN: Final = re.compile(r"[ \t\n.,'’-]{1,3}")
_SHORTEST: Final = 3  # minimum number of letters of a single-word form: shorter words are usually common words
# Up to so many known words, searching for each is faster than splitting the text into words.
_FEW: Final = 40
_COMMON: Final = frozenset(words("names_that_are_words"))
_NEVER_ALONE: Final = frozenset(
    word for section in ("no_names", "particles", "organizations", "titles") for word in words(section)
)
_ACTING: Final = frozenset(words("acting"))
_BEFORE_THINGS: Final = frozenset(words("before_things"))
# A word or an initial before a surname: `for Brown`, `A. Brown`.
_BEFORE: Final = re.compile(r"(?<![^\W_])(?:(?P<word>[^\W\d_]{1,20}) |[^\W\d_]\. ?)\Z")
# Text after a word that shows that the word is not a surname: `Page 17`, `Snow Leopard`, `Brown & Co`.
_OF_THING: Final = re.compile(r" ?[\d&#|-]| [^\W\d_a-zß-öø-ÿ]")
_BEHIND: Final = re.compile(r"['’]s?(?![^\W_])| (?P<word>[^\W\d_]+)")
_NEAR: Final = 24  # number of characters before a name that are examined
# The capitalized word before or after a part of a name: `Mark Young`, `Young, Mark`.
_NAME_BEFORE: Final = re.compile(r"(?<![^\W_])([^\W\d_a-zß-öø-ÿ][^\W\d_]{1,20}),? \Z")
_NAME_BEHIND: Final = re.compile(r",? ([^\W\d_a-zß-öø-ÿ][^\W\d_]{1,20})(?![^\W_])")


class Names:
    """The known names of a conversation, in the order in which they were learned.

    Args:
        values: The first names.
        memory: Memory through which names can be taken back; None if they never are.
    """

    def __init__(self, values: Iterable[str] = (), *, memory: Memory | None = None) -> None:
        self._memory = memory
        self._forms: dict[tuple[str, ...], int] = {}
        self._beginning: dict[str, list[tuple[int, tuple[str, ...]]]] = {}
        self.learn(values)

    def __len__(self) -> int:
        """Return the number of forms (full names and single words)."""
        return len(self._forms)

    def learn(self, values: Iterable[str]) -> Sequence[str]:
        """Add names, and return their new forms (full names and single words), in the order in which they are added."""
        new: list[str] = []
        for value in values:
            for form in _forms(view_of(value).text):
                if form not in self._forms:
                    self._add(form)
                    new.append(" ".join(form))
        return new

    def find(self, text: str, *, until: int | None = None) -> Iterator[tuple[int, int]]:
        """Yield the start and end offset of each known name in a text. At each offset, only the longest name counts.

        Args:
            text: The text to search.
            until: Number of forms (full names and single words) to search for, in the order in which they were learned;
                None means all.
        """
        for word in self._occurring_words(text):
            forms = [form for number, form in self._beginning[word] if until is None or number < until]
            start = text.find(word) if forms else -1
            while start >= 0:
                end = max((_end(text, start, form) for form in forms), default=0)
                if (
                    end
                    and not (start and _LETTER.match(text, start - 1))
                    and self._is_name_here(text, start, end, until)
                ):
                    yield start, end
                start = text.find(word, start + len(word))

    def _occurring_words(self, text: str) -> Iterable[str]:
        """Return the first word of each known form (full name or single word) that may occur in a text."""
        if len(self._beginning) <= _FEW:
            return [word for word in self._beginning if word in text]
        return self._beginning.keys() & set(_WORD.findall(text))

    def _is_name_here(self, text: str, start: int, end: int, until: int | None) -> bool:
        """Return whether an occurrence of a known form (full name or single word) is a name at this place.

        A form that is also a common word (`Young`) is a name only if the words around it indicate a person, or if
        another known name is next to it, as in `Mark Young` after a first and a last name were learned from two fields.
        """
        if text[start:end].lower() not in _COMMON or _is_somebody(text, start, end):
            return True
        beside = (_NAME_BEFORE.search(text, max(0, start - _NEAR), start), _NAME_BEHIND.match(text, end))
        numbers = (self._forms.get((_capital(one[1]),)) for one in beside if one is not None)
        return any(number is not None and (until is None or number < until) for number in numbers)

    def _forget_last(self) -> None:
        form, number = self._forms.popitem()
        for spelled in _spellings(form):
            self._beginning[spelled[0]] = [one for one in self._beginning[spelled[0]] if one[0] != number]

    def _add(self, form: tuple[str, ...]) -> None:
        number = self._forms[form] = len(self._forms)
        for spelled in _spellings(form):
            self._beginning.setdefault(spelled[0], []).append((number, spelled))
        if self._memory is not None:
            self._memory.undo(self._forget_last)


def _end(text: str, start: int, form: tuple[str, ...]) -> int:
    """Return the end offset of a name's words that begin at `start`; 0 if the text does not contain them there."""
    end = start + len(form[0])
    for number, word in enumerate(form[1:], 2):
        if (gap := _BETWEEN.match(text, end)) is None:
            return 0
        end = gap.end() + len(word)
        there = text[gap.end() : end]
        # an inner word may be a particle, which is written in any case: `Ana de la Cruz`
        if there != word and (number == len(form) or there.lower() != word.lower()):
            return 0
    return 0 if _LETTER.match(text, end) else end


def _is_somebody(text: str, start: int, end: int) -> bool:
    """Return whether the words around a common word indicate a person: `for Brown`, `A. Brown`, `Brown wants`."""
    if _OF_THING.match(text, end):
        return False
    before, behind = _BEFORE.search(text, max(0, start - _NEAR), start), _BEHIND.match(text, end)
    word = before["word"] if before else ""
    if word and word.lower() in _BEFORE_THINGS:
        return False
    return bool(before and (not word or word.islower())) or bool(
        behind and (not behind["word"] or behind["word"] in _ACTING)
    )


def _forms(value: str) -> Iterator[tuple[str, ...]]:
    """Yield the forms of a name: the full name, and each of its words that is not an ordinary word."""
    parts = tuple(_WORD.findall(value))
    if len(parts) > 1:
        yield tuple(map(_capital, parts))
    for part in parts:
        if len(part) >= _SHORTEST and part.lower() not in _NEVER_ALONE:
            yield (_capital(part),)


def is_part_of_name(part: str, name: str) -> bool:
    """Return whether all words of `part` are words of `name`, in any order and case.

    For example, `roe, jane` is a part of `Jane Roe`. Return False if `name` contains characters that do not occur in
    names: e-mail addresses, user names, and streets with numbers have no parts.
    """
    if _NEVER_IN_A_NAME.search(name) is not None:
        return False
    words_of_part, words_of_name = (set(_WORD.findall(view_of(one).text.lower())) for one in (part, name))
    return bool(words_of_part) and words_of_part <= words_of_name


def _capital(word: str) -> str:
    return word if word[0].isupper() and not (word.isupper() and len(word) > 1) else word[:1].upper() + word[1:].lower()


def _spellings(form: tuple[str, ...]) -> set[tuple[str, ...]]:
    """Return the spellings in which a full name or a single word is searched for: capitalized and in capitals.

    Several words are also searched for in lower case, and with a lower-case first word if that is a particle (`van der
    Berg`). The function `_end` compares the words after the first one.
    """
    spelled = {form, tuple(word.upper() for word in form)}
    if len(form) > 1:
        is_particle = len(form[0]) == 1 or form[0].lower() in _NEVER_ALONE
        spelled |= {tuple(map(str.lower, form)), (form[0].lower() if is_particle else form[0], *form[1:])}
    return spelled
