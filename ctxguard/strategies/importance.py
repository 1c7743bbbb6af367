"""Score exchanges by kind, age, errors, later references, and relevance to the current question."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from ctxguard.artifacts import Artifact, Kind
from ctxguard.errors import ConfigError
from ctxguard.history import is_asked
from ctxguard.stages.error_reports import reports_error
from ctxguard.stages.lexical import LexicalIndex

WEIGHTS: Final[Mapping[str, float]] = {
    "kind": 0.15,
    "recency": 0.2,
    "error": 0.15,
    "reuse": 0.25,
    "relevance": 0.25,
}
"""How much each part counts; they add up to 1."""
_KINDS: Final = {Kind.USER: 1.0, Kind.ASSISTANT: 0.5, Kind.TOOL: 0.4}
_TERM: Final = re.compile(r"[A-Za-z_][\w./-]{5,}|[A-Za-z]*+\d[\w-]{3,}")
"""What a later message would name: identifiers, paths, numbers of orders and tickets, longer words."""
_REUSES: Final = 3
"""Terms taken up later that make an exchange fully referenced."""


@dataclass(frozen=True, slots=True)
class Importance:
    """The score of one exchange, from 0 to 1, and its parts.

    Attributes:
        score: the weighted sum.
        parts: `kind`, `recency`, `error`, `reuse` (terms that later messages repeat) and `relevance`
            (to the last user message), each from 0 to 1.
    """

    score: float
    parts: Mapping[str, float]


class ImportanceScorer:
    """Score exchanges. Safe to share between threads and sessions: it has no state.

    Args:
        weights: of the parts; None means `WEIGHTS`.

    Raises:
        ConfigError: `weights` names an unknown part.
    """

    def __init__(self, weights: Mapping[str, float] | None = None) -> None:
        self.weights = dict(WEIGHTS if weights is None else weights)
        if unknown := set(self.weights) - set(WEIGHTS):
            raise ConfigError(f"unknown part {min(unknown)!r}; known are {', '.join(WEIGHTS)}", setting="weights")

    def score(self, message: Artifact, messages: Sequence[Artifact]) -> float:
        """Return the score of one message among all."""
        place = next((n for n, a in enumerate(messages) if a is message), None)
        if place is None:
            raise ConfigError("the message is not one of the messages", setting="message")
        return self.scores([(a,) for a in messages])[place].score

    def scores(self, exchanges: Sequence[Sequence[Artifact]]) -> list[Importance]:
        """Return the scores of exchanges in their order; a function of these alone."""
        terms = Terms()
        for members in exchanges:
            terms.add(tuple(members))
        return self.scored(terms)

    def scored(self, terms: Terms) -> list[Importance]:
        """Return the scores of the exchanges that were taken in."""
        question = terms.question
        found = terms.index.matches(question)
        # Relevance to the last user message: the best exchange but that message itself has 1.0.
        highest = max((s for n, s in found.items() if question not in terms.index.documents[n]), default=0.0)
        last = max(len(terms.kinds) - 1, 1)
        scores = []
        for number, (kind, error, reuse) in enumerate(zip(terms.kinds, terms.errors, terms.reuse, strict=True)):
            relevance = min(1.0, found.get(number, 0.0) / highest) if highest > 0 else 0.0
            parts = {"kind": kind, "recency": number / last, "error": error, "reuse": reuse, "relevance": relevance}
            scores.append(Importance(sum(self.weights.get(name, 0.0) * value for name, value in parts.items()), parts))
        return scores


@dataclass(slots=True, eq=False)
class Terms:
    """The terms of exchanges, and which of them later exchanges repeat; exchanges are only ever added.

    Attributes:
        index: ranks their texts.
        kinds: the part `kind` of each.
        errors: the part `error` of each.
        reuse: the part `reuse` of each, so far.
        question: the last user message.
    """

    index: LexicalIndex = field(default_factory=LexicalIndex)
    kinds: list[float] = field(default_factory=list)
    errors: list[float] = field(default_factory=list)
    reuse: list[float] = field(default_factory=list)
    question: str = ""
    _brought: dict[str, int] = field(default_factory=dict)
    _taken_up: dict[int, set[str]] = field(default_factory=dict)

    def add(self, members: Sequence[Artifact]) -> None:
        """Take in one more exchange."""
        number = len(self.kinds)
        self.index.add(tuple(text for artifact in members for _, text in artifact.texts()))
        self.kinds.append(max(_KINDS.get(artifact.kind, 1.0) for artifact in members))
        self.errors.append(float(any(map(reports_error, members))))
        self.reuse.append(0.0)
        if is_asked(members[0]):
            self.question = members[0].text
        # What the model says comes first: a call that repeats its own result is not a reuse of it.
        for artifact in members:
            if artifact.kind is not Kind.TOOL:
                self._speak(number, artifact)
        for artifact in members:
            if artifact.kind is Kind.TOOL:
                for term in _terms(artifact.text):
                    self._brought.setdefault(term, number)

    def _speak(self, number: int, artifact: Artifact) -> None:
        """Record the earlier exchanges whose terms a message or a call repeats."""
        for term in _terms("\n".join((artifact.text, *(call.arguments for call in artifact.calls)))):
            origin = self._brought.setdefault(term, number)
            # Only distinct terms count, so that one id in a loop does not look like heavy use.
            if origin != number and self.reuse[origin] < 1.0:
                terms = self._taken_up.setdefault(origin, set())
                terms.add(term)
                self.reuse[origin] = min(1.0, len(terms) / _REUSES)
                if self.reuse[origin] == 1.0:
                    del self._taken_up[origin]


def _terms(text: str) -> frozenset[str]:
    return frozenset(_TERM.findall(" ".join(set(text.split()))))  # terms contain no spaces: each word once
