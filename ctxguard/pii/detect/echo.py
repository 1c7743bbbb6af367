"""Look for names that are known, wherever they stand.

A name is known once a text has said whose it is. It is then looked for as it was written, in capitals, and by each of its
words that is no word of the language, too: `Roe` where somebody was introduced as `Jane Roe`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from ctxguard.pii.detect.normalize import view_of
from ctxguard.pii.rules import people_words as words

__all__ = ["Names"]

_WORD: Final = re.compile(r"[^\W\d_]+")
_BETWEEN: Final = r"[ \t\n.,'’-]{1,3}"
_SHORTEST: Final = 3
_NEVER_ALONE: Final = frozenset(
    f"{words.ORDINARY}|{words.NO_NAME}|{words.PARTICLES}|{words.ORGANIZATIONS}|{words.TITLES.replace(';', '|')}".split("|")
)


class Names:
    """Hold names in the order in which they became known.

    Args:
        values: names as they were written.
    """

    def __init__(self, values: Iterable[str] = ()) -> None:
        self._forms: dict[tuple[str, ...], int] = {}
        self._beginning: dict[str, list[tuple[int, re.Pattern[str]]]] = {}
        self.learn(values)

    def __len__(self) -> int:
        """Return how many forms of names are known."""
        return len(self._forms)

    def learn(self, values: Iterable[str]) -> Sequence[str]:
        """Take in names, and return the forms that are new: the whole name first, then its words."""
        new: list[str] = []
        for value in values:
            for form in _forms(view_of(value).text):
                if form not in self._forms:
                    self._put(form)
                    new.append(" ".join(form))
        return new

    def find(self, text: str, *, until: int | None = None) -> Iterator[tuple[int, int]]:
        """Walk where names stand in a text, the longest first where several begin.

        Args:
            text: the text.
            until: how many of the forms that are known are looked for; None means all.
        """
        for word in self._beginning.keys() & set(_WORD.findall(text)):
            forms = [form for number, form in self._beginning[word] if until is None or number < until]
            start = text.find(word) if forms else -1
            while start >= 0:
                match = next((found for form in forms if (found := form.match(text, start))), None)
                if match is not None and not _is_glued(text, start):
                    yield match.span()
                start = text.find(word, start + len(word))

    def back_to(self, count: int) -> None:
        """Forget all but the first `count` forms."""
        while len(self._forms) > count:
            form, number = self._forms.popitem()
            for spelled in _spellings(form):
                self._beginning[spelled[0]] = [one for one in self._beginning[spelled[0]] if one[0] != number]

    def _put(self, form: tuple[str, ...]) -> None:
        number = self._forms[form] = len(self._forms)
        for spelled in _spellings(form):
            pattern = re.compile(_BETWEEN.join(map(re.escape, spelled)) + r"(?!\w)")
            forms = self._beginning.setdefault(spelled[0], [])
            forms.append((number, pattern))
            forms.sort(key=lambda one: -len(one[1].pattern))


def _forms(value: str) -> Iterator[tuple[str, ...]]:
    """Walk what is looked for of a name: the whole of it, and its words that say enough alone."""
    parts = tuple(_WORD.findall(value))
    if len(parts) > 1:
        yield tuple(map(_capital, parts))
    for part in parts:
        if len(part) >= _SHORTEST and part.lower() not in _NEVER_ALONE:
            yield (_capital(part),)


def _capital(word: str) -> str:
    return word if word[0].isupper() and not (word.isupper() and len(word) > 1) else word[:1].upper() + word[1:].lower()


def _spellings(form: tuple[str, ...]) -> set[tuple[str, ...]]:
    """Return how a form may be written: with capitals, all in capitals; several words also all in small letters."""
    spelled = {form, tuple(word.upper() for word in form)}
    if len(form) > 1:
        spelled.add(tuple(word.lower() for word in form))
    return spelled


def _is_glued(text: str, start: int) -> bool:
    before = text[start - 1 : start] if start else ""
    return before.isalnum() or before == "_"
