"""Reject settings that rules, masks and vaults cannot work with; one line says what to write instead."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from ctxguard.errors import ConfigError

_TYPO: Final = 0.75  # `EMAIL` with two letters swapped is alike to 0.8, `PERSON_NAME` and `PERSON` to 0.7
RULE_SET: Final = "RuleSet('name', (rule, …))"


def require_labels(labels: Iterable[str], known: Collection[str], *, setting: str, others: bool = False) -> None:
    """Reject labels that no rule has; if `others` than rules may have them, only those that resemble a known one."""
    from difflib import get_close_matches  # only needed for an error

    for label in set(labels).difference(known):
        near = get_close_matches(str(label).upper(), known, n=1, cutoff=_TYPO)
        if near or not others:
            told = f" (did you mean {near[0]!r}?)" if near else f"; there are {', '.join(sorted(known))}"
            raise ConfigError(f"unknown label {label!r}{told}", setting=setting)


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
