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


def values_of(values: object, setting: str) -> list[str]:
    """Return the values that are always or never found; refuse a single text, or values that are not texts."""
    if isinstance(values, Iterable) and not isinstance(values, str | bytes | Mapping):
        listed = list(values)
        if all(isinstance(value, str) for value in listed):
            return listed
    raise ConfigError(f"{setting} takes a list of values, each a text: ['…']", setting=setting)
