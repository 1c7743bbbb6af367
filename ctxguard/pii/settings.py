"""Refuse what rules, masks and vaults cannot work with, when it is given: one line says what to write instead."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from ctxguard.errors import ConfigError

RULE_SET: Final = "RuleSet('name', (rule, …))"


def check_text(text: object) -> None:
    """Refuse what is no text by its type alone: what it says may be anybody's."""
    if not isinstance(text, str):
        raise TypeError(f"expected a text, got {type(text).__name__}; decode bytes, and write numbers as str(…)")


def seconds(value: object, setting: str) -> None:
    """Refuse what is neither a number of seconds above 0 nor None."""
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise ConfigError(f"{setting} is a number of seconds above 0, or None, not {value!r}", setting=setting)


def values_of(values: object, setting: str) -> list[str]:
    """Return the values that are always or never found; refuse a single text, or values that are not texts."""
    if isinstance(values, Iterable) and not isinstance(values, str | bytes | Mapping):
        listed = list(values)
        if all(isinstance(value, str) for value in listed):
            return listed
    raise ConfigError(f"{setting} takes a list of values, each a text: ['…']", setting=setting)
