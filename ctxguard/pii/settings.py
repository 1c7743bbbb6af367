"""Reject settings that rules, masks and vaults cannot work with; one line says what to write instead."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from ctxguard.errors import ConfigError

RULE_SET: Final = "RuleSet('name', (rule, …))"


def check_text(text: object) -> None:
    """Reject anything that is not a text, by naming its type alone, because its content may be personal data."""
    if not isinstance(text, str):
        raise TypeError(f"expected a text, got {type(text).__name__}; decode bytes, and write numbers as str(…)")


def values_of(values: object, setting: str) -> list[str]:
    """Return the values that are always or never found; reject a single text, or values that are not texts."""
    if isinstance(values, Iterable) and not isinstance(values, str | bytes | Mapping):
        listed = list(values)
        if all(isinstance(value, str) for value in listed):
            return listed
    raise ConfigError(f"{setting} takes a list of values, each a text: ['…']", setting=setting)
