"""Validation of settings that rules, maskers, and vaults share. Each error message says what to write instead."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from ctxguard.errors import ConfigError

_TYPO: Final = 0.75  # the similarity of `EMAIL` with two letters swapped is 0.8, that of `PERSON_NAME` and `PERSON` 0.7
RULE_SET: Final = "RuleSet('name', (rule, …))"


def require_labels(labels: Iterable[str], known: Collection[str], *, setting: str, others: bool = False) -> None:
    """Raise an error for labels that no rule has.

    Args:
        labels: The labels to check.
        known: The labels of the rules.
        setting: The setting that the error names.
        others: Whether detectors other than rules may define further labels. An unknown label is then an error only if
            it resembles a known one, because it is probably a typo.

    Raises:
        ConfigError: If a label is unknown.
    """
    from difflib import get_close_matches  # only needed for an error

    for label in set(labels).difference(known):
        near = get_close_matches(str(label).upper(), known, n=1, cutoff=_TYPO)
        if near or not others:
            told = f" (did you mean {near[0]!r}?)" if near else f"; there are {', '.join(sorted(known))}"
            raise ConfigError(f"unknown label {label!r}{told}", setting=setting)


def check_text(text: object) -> None:
    """Raise a TypeError if `text` is not a string, naming only its type, because its content may be personal data."""
    if not isinstance(text, str):
        raise TypeError(f"expected a string, got {type(text).__name__}; decode bytes, and write numbers as str(…)")


def values_of(values: object, setting: str) -> list[str]:
    """Return `values` (those of `allow` or `deny`) as a list of strings.

    Raises:
        ConfigError: If `values` is a single string, is not iterable, or contains something other than strings.
    """
    if isinstance(values, Iterable) and not isinstance(values, str | bytes | Mapping):
        listed = list(values)
        if all(isinstance(value, str) for value in listed):
            return listed
    raise ConfigError(f"{setting} must be a list of strings: ['…']", setting=setting)
