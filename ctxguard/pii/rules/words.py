"""The words that rules refer to, by language: `ctxguard/data/words/cs.toml` and others.

Each file has sections of words, such as labels of a field or titles of people. `schema.json` describes what each
section contains and how its words are written.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

from ctxguard.errors import ConfigError, reason_of

DATA: Final = Path(__file__).parents[2] / "data"
_WORDS: Final = DATA / "words"


@cache
def words(section: str) -> tuple[str, ...]:
    """Return the words of one section in all languages, without duplicates.

    Raises:
        ConfigError: If a language file cannot be read or violates the schema.
    """
    return tuple(dict.fromkeys(word for language in _languages() for word in language.get(section, ())))


@cache
def sections() -> Mapping[str, Mapping[str, str]]:
    """Return the sections that a language file may have, each with its schema."""
    properties: Mapping[str, Mapping[str, str]] = json.loads((_WORDS / "schema.json").read_text("utf-8"))["properties"]
    return properties


@cache
def _languages() -> Sequence[Mapping[str, Sequence[str]]]:
    return [
        language_of(path) for path in sorted(_WORDS.glob("*.toml"), key=lambda path: (path.stem != "en", path.stem))
    ]


def language_of(path: Path) -> Mapping[str, Sequence[str]]:
    """Read one language file, and return its words by section.

    Raises:
        ConfigError: If the file cannot be read, a section is unknown, or a section is not a list of nonempty strings.
    """
    language = read_toml(path)
    for section, listed in language.items():
        if section not in sections():
            raise ConfigError(f"{path.name}: unknown section {section!r}; schema.json lists them", setting=section)
        if not isinstance(listed, list) or not all(isinstance(word, str) and word for word in listed):
            raise ConfigError(f'{path.name}: {section} must be a list of words: ["…", "…"]', setting=section)
    return language


@cache
def read_toml(path: Path) -> Mapping[str, Any]:
    """Return the content of a TOML file. The result is cached.

    Raises:
        ConfigError: If the file cannot be read, or is not valid TOML.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path.name} cannot be read: {reason_of(error)}", setting=path.stem) from error
