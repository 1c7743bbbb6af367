"""Phrases that ask for nothing, and phrases that state a standing rule: word lists by language.

Lists rather than a model: the same words lead to the same decision everywhere. They only order user messages; a message
that they miss is kept by its age.
"""

from __future__ import annotations

import re
import tomllib
from functools import lru_cache
from importlib.resources import files
from typing import Final

_PHRASES: Final = tomllib.loads(files("ctxguard").joinpath("data/phrases.toml").read_text(encoding="utf-8"))
_GREETING_WORDS: Final = frozenset(word for words in _PHRASES["greetings"].values() for word in words.split())
_MOST_WORDS: Final = 6
"""Words that a greeting may have."""


def _any_of(table: str) -> str:
    return "|".join(sorted({re.escape(phrase) for phrases in _PHRASES[table].values() for phrase in phrases}))


_RULE: Final = re.compile(rf"(?<!\w)(?:{_any_of('standing')})(?!\w)|{_any_of('unspaced')}")
_WORD: Final = re.compile(r"[\w'’-]+")


def is_greeting(text: str) -> bool:
    """Return whether a text is only a greeting: at most six words, all of them of greetings."""
    if len(text) > 20 * _MOST_WORDS:
        return False
    words = _WORD.findall(text.casefold().replace("’", "'"))
    return 0 < len(words) <= _MOST_WORDS and all(word in _GREETING_WORDS for word in words)


@lru_cache(maxsize=4_096)
def is_standing(text: str) -> bool:
    """Return whether a text is phrased as a standing instruction ("never", "must", "from now on")."""
    return _RULE.search(text.casefold().replace("’", "'")) is not None
