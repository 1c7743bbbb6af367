"""Find phrases of several languages in what people say: rules, habits, orders, and words of the moment.

The phrases are data (`data/phrases.toml`), so the same words always lead to the same decision. They only rank what
people said; what they miss is kept by its age and its place.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any, Final, NamedTuple

_UNSPACED: Final = "unspaced_"
"""Prefix of the tables with phrases of languages that are written without spaces. They match anywhere."""
_RANKING: Final = ("standing", "habits", "tellers", "politeness", "orders", "moment")


class Phrase(NamedTuple):
    """A phrase in a text.

    Attributes:
        start: Offset of its first character.
        end: Offset after its last character.
        table: The table that lists it, without the prefix `unspaced_`.
    """

    start: int
    end: int
    table: str


@cache
def _tables() -> dict[str, dict[str, Any]]:
    return tomllib.loads(files("ctxguard").joinpath("data/phrases.toml").read_text(encoding="utf-8"))


def listed(table: str) -> list[str]:
    """Return the phrases in a table, of all languages."""
    by_language = _tables().get(table, {}).values()
    return [each for one in by_language for each in (one.split() if isinstance(one, str) else one)]


@cache
def _automaton(tables: tuple[str, ...]) -> Any:  # noqa: ANN401 - pyahocorasick has no types
    from ahocorasick import Automaton

    found: dict[str, list[tuple[int, str, bool]]] = {}
    for table in tables:
        for name in (table, f"{_UNSPACED}{table}"):
            for phrase in listed(name):
                found.setdefault(phrase, []).append((len(phrase), table, name == table))
    automaton = Automaton()
    for phrase, uses in found.items():
        automaton.add_word(phrase, tuple(uses))
    automaton.make_automaton()
    return automaton


def phrases_in(text: str, *tables: str) -> Iterator[Phrase]:
    """Yield the phrases in a text, by their ends. Case and the form of apostrophes do not matter.

    Args:
        text: The text.
        tables: The tables to search for; none means all that rank sentences.
    """
    folded = text.replace("İ", "i").lower().replace("’", "'")  # "İ" alone takes more characters in lower case
    for last, uses in _automaton(tables or _RANKING).iter(folded):
        for length, table, is_spaced in uses:
            start, end = last + 1 - length, last + 1
            if not is_spaced or not (_in_word(folded, start - 1) or _in_word(folded, end)):
                yield Phrase(start, end, table)


def _in_word(text: str, place: int) -> bool:
    return 0 <= place < len(text) and (text[place].isalnum() or text[place] == "_")


@lru_cache(maxsize=4_096)
def is_standing(text: str) -> bool:
    """Return whether a text is phrased as a standing instruction ("never", "must", "from now on")."""
    return any(True for _ in phrases_in(text, "standing"))
