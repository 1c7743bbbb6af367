"""Search identifiers (ids, names, links, signatures), which are never edited and contain arbitrary digits.

A number alone is not evidence in an identifier. Therefore, identifiers are searched only by rules with a specific
pattern: an e-mail address, a key with a known prefix, a number in groups. A card number without groups counts behind
any sign, but not if it is the whole identifier or part of a link or a path. Of the 4,383 ids, names, links, and unknown
fields in the recorded requests and transcripts, none contained a card number of either kind.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final

from ctxguard.pii.spans import Detector, Span
from ctxguard.tokens.text_cache import TextCache

# A link or a path in front of a number: its scheme or first slash, up to the number, or the slash right before it.
_LINK: Final = re.compile(r"(?:://|(?<!\S)(?:[A-Za-z]:)?[/\\]|(?<!\S)www\.)\S*\Z|[/\\]\Z")
_NEAR: Final = 2_048  # number of characters before a number in which its link may begin


class IdentifierDetector:
    """Applies a rule set to identifiers, and drops most matches that are only digits.

    Only a card number that is one of several words, or behind any sign, is kept.
    """

    def __init__(self, rules: Detector) -> None:
        self._rules = rules
        self._found: TextCache[Sequence[Span]] = TextCache()
        self.name = f"{rules.name} in identifiers"

    def find(self, text: str) -> Sequence[Span]:
        """Return the findings in an identifier, sorted by offset and without overlaps."""
        found = self._found.get(text)  # each request of a conversation repeats the same ids
        if found is None:
            self._found.put(text, found := _with_form(text, self._rules.find(text)))
        return found

    def scan(self, text: str) -> Sequence[Span]:
        """Return the findings of the rule set's full search, without caches and shortcuts. Used by checks."""
        scan = getattr(self._rules, "scan", self._rules.find)
        return _with_form(text, scan(text))


def _with_form(text: str, spans: Sequence[Span]) -> Sequence[Span]:
    return [span for span in spans if not text[span.start : span.end].isdecimal() or _is_card_among_words(text, span)]


def _is_card_among_words(text: str, span: Span) -> bool:
    is_all = span.end - span.start == len(text.strip())
    return (
        span.label == "CREDIT_CARD"
        and not is_all
        and _LINK.search(text[max(0, span.start - _NEAR) : span.start]) is None
    )


def for_identifiers(detector: Detector) -> IdentifierDetector | None:
    """Return a detector's variant for identifiers.

    Return None if `detector` is not a rule set, or none of its rules has a pattern that is specific enough.
    """
    given: Any = detector
    return _restricted(given) if isinstance(getattr(given, "rules", None), tuple) else None


def for_names(detectors: Iterable[Detector]) -> list[Detector]:
    """Return the detectors that search what is never edited: all but models, which judge by the words around."""
    return [detector for detector in detectors if not getattr(detector, "is_model", False)]


def is_found_in(identifier: str, detectors: Iterable[Detector]) -> bool:
    """Return whether any detector finds something in an identifier, so that reports and errors must not quote it."""
    strict = (for_identifiers(detector) for detector in detectors)
    return any(detector.find(identifier) for detector in strict if detector is not None)


# compiling a rule set is slow, and checks pass the same few rule sets in every call
@lru_cache(maxsize=64)
def _restricted(rule_set: Any) -> IdentifierDetector | None:  # noqa: ANN401 - any object with the fields of a rule set
    # a rule that requires a context word has a pattern that is not specific enough without that word
    kept = tuple(rule for rule in rule_set.rules if not (rule.context or rule.behind))
    if not kept and not rule_set.deny:
        return None
    return IdentifierDetector(replace(rule_set, name=f"{rule_set.name}[identifiers]", rules=kept))
