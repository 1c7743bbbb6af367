"""Functions for the common cases: find personal data, mask it, and check that none is left."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import chain
from typing import Final

from ctxguard.artifacts import Artifact
from ctxguard.errors import ConfigError
from ctxguard.pii.detectors import Rules, detectors_of
from ctxguard.pii.mask.session import Masker
from ctxguard.pii.names import NamesDetector
from ctxguard.pii.rule_sets import SSN, STANDARD, RuleSet
from ctxguard.pii.spans import Span
from ctxguard.tokens import find_counter

DEFAULT: Final = SSN | STANDARD
"""The standard rules, plus the bare shape of a US social security number (`000-00-0000`) with any digits."""


def find_pii(text: str, rules: Rules = DEFAULT) -> Sequence[Span]:
    """Return the personal data found in a string, as spans sorted by offset and without overlaps.

    Raises:
        ConfigError: If `rules` is empty, or an item cannot be used as a detector.
        TypeError: If `text` is not a string.
    """
    return (rules if isinstance(rules, RuleSet) else Masker(rules)).find(text)


def mask_pii(text: str, rules: Rules = DEFAULT) -> str:
    """Return the string with every finding replaced: `My SSN is 123-45-6789.` becomes `My SSN is [REDACTED_SSN].`.

    Raises:
        ConfigError: If `rules` is empty, or an item cannot be used as a detector.
        TypeError: If `text` is not a string.
    """
    return (_shared_masker(rules) if isinstance(rules, RuleSet) else Masker(rules)).mask(text)


def validate_no_pii(artifacts: Artifact | str | Iterable[Artifact | str], rules: Rules = DEFAULT) -> bool:
    """Return True if no rule finds anything in the strings, or in any string of the artifacts that a model would get.

    This check is independent of masking: every string is searched anew, without caches or shortcuts.

    Args:
        artifacts: One artifact or string, or any iterable of artifacts and strings.
        rules: The rules that define what counts as personal data.

    Raises:
        ConfigError: If `rules` is empty, or an item cannot be used as a detector.
        TypeError: If an item is neither an artifact nor a string.
    """
    detectors = detectors_of(rules)
    searches = [one.scan if isinstance(one, RuleSet) else one.find for one in detectors]
    return not any(search(text) for text in _texts(artifacts) for search in searches)


def warm(*rules: RuleSet | NamesDetector, model: str | None = None) -> None:
    """Load rules, their automata, and the tokenizer's vocabulary now, rather than when a text first needs them.

    Without it, the first texts of a process take up to a second longer. Call it where a program starts, if its steps
    have deadlines, or before it forks workers. Calling it again takes hardly any time.

    Args:
        rules: The rule sets that the program uses, and `ctxguard.pii.NAMES` if it uses that; none means
            `ctxguard.pii.STANDARD`. Rules joined by `|` are a set of their own.
        model: Name of the model whose tokenizer to load; None means the default tokenizer.

    Raises:
        ConfigError: If an argument is not a rule set.
        ImportError: If an argument is `NAMES`, and the extra `names` is not installed.
    """
    for one in rules or (STANDARD,):
        if not isinstance(one, (RuleSet, NamesDetector)):
            raise ConfigError(f"warm() takes rule sets, such as STANDARD, not {type(one).__name__}", setting="rules")
        one.warm()
    find_counter(model=model).count("load the vocabulary")


def _texts(artifacts: Artifact | str | Iterable[Artifact | str]) -> Iterable[str]:
    if isinstance(artifacts, str):
        return (artifacts,)
    if isinstance(artifacts, Artifact):
        return tuple(text for _, text in artifacts.texts())
    if isinstance(artifacts, bytes) or not isinstance(artifacts, Iterable):
        raise TypeError(f"expected strings or artifacts, got {type(artifacts).__name__}; decode bytes")
    return chain.from_iterable(map(_texts, artifacts))


_shared_masker: Final = lru_cache(maxsize=32)(Masker)
"""Return the same masker for the same rule set, so that repeated calls of `mask_pii` share the masker's cache."""
