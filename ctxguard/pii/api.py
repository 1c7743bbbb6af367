"""One-line functions: find, mask, and check that nothing is left."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import chain
from typing import Final

from ctxguard.artifacts import Artifact
from ctxguard.pii.detectors import Rules, detectors_of
from ctxguard.pii.mask.session import Masker
from ctxguard.pii.rule_sets import SSN, STANDARD, RuleSet
from ctxguard.pii.spans import Span

DEFAULT: Final = SSN | STANDARD
"""The standard set, and the bare shape of a social security number as the pattern document has it."""


def find_pii(text: str, rules: Rules = DEFAULT) -> Sequence[Span]:
    """Return the places of personal data in a text, sorted and without overlaps.

    Raises:
        ConfigError: the rules can find nothing.
        TypeError: `text` is not a string.
    """
    return (rules if isinstance(rules, RuleSet) else Masker(rules)).find(text)


def mask_pii(text: str, rules: Rules = DEFAULT) -> str:
    """Return a text with every finding replaced: `My SSN is 123-45-6789.` becomes `My SSN is [REDACTED_SSN].`.

    Raises:
        ConfigError: the rules can find nothing.
        TypeError: `text` is not a string.
    """
    return (_remembered(rules) if isinstance(rules, RuleSet) else Masker(rules)).mask(text)


def validate_no_pii(artifacts: Artifact | str | Iterable[Artifact | str], rules: Rules = DEFAULT) -> bool:
    """Return whether no rule matches in any text that is sent with these artifacts.

    Every text is scanned, without a cache.

    Args:
        artifacts: artifacts or texts, one or many.
        rules: what counts as personal data.

    Raises:
        ConfigError: the rules can find nothing.
        TypeError: something is neither an artifact nor a text.
    """
    detectors = detectors_of(rules)
    searches = [one.scan if isinstance(one, RuleSet) else one.find for one in detectors]
    return not any(search(text) for text in _texts(artifacts) for search in searches)


def _texts(artifacts: Artifact | str | Iterable[Artifact | str]) -> Iterable[str]:
    if isinstance(artifacts, str):
        return (artifacts,)
    if isinstance(artifacts, Artifact):
        return tuple(text for _, text in artifacts.texts())
    if isinstance(artifacts, bytes) or not isinstance(artifacts, Iterable):
        raise TypeError(f"expected texts or artifacts, got {type(artifacts).__name__}; decode bytes")
    return chain.from_iterable(map(_texts, artifacts))


_remembered: Final = lru_cache(maxsize=32)(Masker)
"""One masker per rule set, so that repeated calls share its cache."""
