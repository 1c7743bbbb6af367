"""Rules as data, and sets of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from ctxguard.pii.placeholders import blank_placeholders, label_of, redaction
from ctxguard.pii.spans import Span, resolve

__all__ = ["Rule", "RuleSet"]


@dataclass(frozen=True, slots=True)
class Rule:
    """Say how one kind of personal data looks.

    Attributes:
        name: its own name, unique in a set.
        label: what it finds; capital letters and underscores.
        pattern: regular expression over the text.
        validate: judges the matched text; None takes every match. A module-level function, so that rules pickle.
        score: how sure a finding is, 0 to 1.
        placeholder: what redaction writes; None means `[REDACTED_<LABEL>]`.
    """

    name: str
    label: str
    pattern: str
    validate: Callable[[str], bool] | None = None
    score: float = 1.0
    placeholder: str | None = None

    @property
    def redaction(self) -> str:
        """What redaction writes in place of a finding."""
        return (
            self.placeholder
            if self.placeholder is not None
            else redaction(label_of(self.label))
        )


@dataclass(frozen=True, slots=True)
class RuleSet:
    """Hold rules and find what they describe. Immutable, hashable, picklable; joined by `|`.

    Attributes:
        name: what reports call it.
        rules: the rules, in their order of precedence.
    """

    name: str
    rules: tuple[Rule, ...] = field(default=())

    def find(self, text: str) -> Sequence[Span]:
        """Return the findings, sorted and without overlaps, by the fast path."""
        return self.scan(text)

    def scan(self, text: str) -> Sequence[Span]:
        """Return the findings by a full pass: no caches, no prefilter. What checks use."""
        view = blank_placeholders(text)
        return resolve(span for rule in self.rules for span in _matches(rule, view))

    def __or__(self, other: RuleSet) -> RuleSet:
        known = set(self.rules)
        return RuleSet(
            f"{self.name}|{other.name}",
            self.rules + tuple(r for r in other.rules if r not in known),
        )


def _matches(rule: Rule, text: str) -> Iterator[Span]:
    for match in _compiled(rule.pattern).finditer(text):
        if rule.validate is None or rule.validate(match[0]):
            yield Span(match.start(), match.end(), rule.label, rule.score)


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)
