"""Search ids, names, links and signatures: texts that are never edited, and that hold digits of all sorts.

A bare number in an id says nothing, so only rules whose matches have a form of their own are applied to such texts: an
e-mail address, a key by its prefix, a formatted number with a check digit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from ctxguard.pii.spans import Detector, Span


class IdentifierDetector:
    """Find by a rule set, leaving out what is only a number."""

    def __init__(self, rules: Detector) -> None:
        self._rules = rules
        self.name = f"{rules.name} in identifiers"

    def find(self, text: str) -> Sequence[Span]:
        """Return the findings, sorted and without overlaps."""
        return _with_form(text, self._rules.find(text))

    def scan(self, text: str) -> Sequence[Span]:
        """Return the findings of a full pass, without caches and shortcuts."""
        scan = getattr(self._rules, "scan", self._rules.find)
        return _with_form(text, scan(text))


def _with_form(text: str, spans: Sequence[Span]) -> Sequence[Span]:
    return [span for span in spans if not text[span.start : span.end].replace(" ", "").isdecimal()]


def for_identifiers(detector: Detector) -> IdentifierDetector | None:
    """Return the detector for identifiers; None where it has no such rules, or is of another make."""
    given: Any = detector
    return _restricted(given) if isinstance(getattr(given, "rules", None), tuple) else None


# the rules of a set take a moment to prepare, and a check asks for the same few sets at every call
@lru_cache(maxsize=64)
def _restricted(rule_set: Any) -> IdentifierDetector | None:  # noqa: ANN401 - read by its fields alone
    kept = tuple(rule for rule in rule_set.rules if not _needs_context(rule))
    if not kept and not rule_set.deny:
        return None
    return IdentifierDetector(replace(rule_set, name=f"{rule_set.name}[identifiers]", rules=kept))


def _needs_context(rule: Any) -> bool:  # noqa: ANN401 - read by its fields alone
    """Tell rules that find nothing without a word before the match: what they match has no form of its own."""
    return bool(rule.context or rule.behind)
