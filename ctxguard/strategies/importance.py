"""Score exchanges by the kind of their messages, recency, errors, later references, and relevance to the question."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from ctxguard.artifacts import Artifact, Kind
from ctxguard.errors import ConfigError
from ctxguard.history import is_asked
from ctxguard.history.pairing import require_artifacts
from ctxguard.settings import instance
from ctxguard.stages.lexical import LexicalIndex
from ctxguard.stages.short_views import reports_error

WEIGHTS: Final[Mapping[str, float]] = {
    "kind": 0.15,
    "recency": 0.2,
    "error": 0.15,
    "reuse": 0.25,
    "relevance": 0.25,
}
"""The weight of each part of a score. The weights add up to 1."""
_KINDS: Final = {Kind.USER: 1.0, Kind.ASSISTANT: 0.5, Kind.TOOL: 0.4}
_TERM: Final = re.compile(r"[A-Za-z_][\w./-]{5,}|[A-Za-z]*+\d[\w-]{3,}")
"""Matches terms by which later messages refer to an exchange: identifiers, paths, order numbers, and longer words."""
_REUSES: Final = 3
"""Number of terms of an exchange that later messages must repeat for the highest value of the part `reuse`."""


@dataclass(frozen=True, slots=True)
class Importance:
    """The score of one exchange.

    Attributes:
        score: The weighted sum of the parts, from 0 to 1.
        parts: The value of each part, from 0 to 1: `kind`, `recency`, `error`, `reuse` (whether later messages repeat
            terms of the exchange), and `relevance` to the last user message.
    """

    score: float
    parts: Mapping[str, float]


class ImportanceScorer:
    """Scores exchanges. It has no state, so threads and sessions may share it.

    Args:
        weights: The weight of each part of a score; None means `WEIGHTS`.

    Raises:
        ConfigError: If `weights` names an unknown part.
    """

    def __init__(self, weights: Mapping[str, float] | None = None) -> None:
        self.weights = dict(WEIGHTS if weights is None else instance(weights, dict, "weights"))
        if unknown := set(self.weights) - set(WEIGHTS):
            raise ConfigError(f"unknown part {min(unknown)!r}; known are {', '.join(WEIGHTS)}", setting="weights")

    def score(self, message: Artifact, messages: Sequence[Artifact]) -> float:
        """Return the score of one message.

        Args:
            message: The message, one of the objects in `messages`.
            messages: All messages of the conversation, in order.

        Raises:
            ConfigError: If `message` is not one of `messages`.
            HistoryError: If an item is not an artifact, such as a message of a framework.
        """
        require_artifacts(messages)
        place = next((n for n, a in enumerate(messages) if a is message), None)
        if place is None:
            raise ConfigError("the message is not one of the messages", setting="message")
        return self.scores([(a,) for a in messages])[place].score

    def scores(self, exchanges: Sequence[Sequence[Artifact]]) -> list[Importance]:
        """Return the scores of all exchanges of a conversation, in order. The scores depend on nothing else."""
        terms = Terms()
        for members in exchanges:
            terms.add(tuple(members))
        return self.scored(terms)

    def scored(self, terms: Terms) -> list[Importance]:
        """Return the scores of the exchanges that were added to `terms`, in order."""
        question = terms.question
        found = terms.index.matches(question)
        # The exchange that matches the last user message best, apart from that message itself, has relevance 1.
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
    """The data from which the exchanges of a growing conversation are scored.

    Attributes:
        index: Index of the words of all exchanges, by which exchanges are ranked by their relevance to the question.
        kinds: The part `kind` of each exchange's score.
        errors: The part `error` of each exchange's score.
        reuse: The part `reuse` of each exchange's score, which grows as later exchanges repeat its terms.
        question: Text of the last user message.
    """

    index: LexicalIndex = field(default_factory=LexicalIndex)
    kinds: list[float] = field(default_factory=list)
    errors: list[float] = field(default_factory=list)
    reuse: list[float] = field(default_factory=list)
    question: str = ""
    _brought: dict[str, int] = field(default_factory=dict)
    _taken_up: dict[int, set[str]] = field(default_factory=dict)

    def add(self, members: Sequence[Artifact]) -> None:
        """Add an exchange to the end of the conversation."""
        number = len(self.kinds)
        self.index.add(tuple(text for artifact in members for _, text in artifact.texts()))
        self.kinds.append(max(_KINDS.get(artifact.kind, 1.0) for artifact in members))
        self.errors.append(float(any(map(reports_error, members))))
        self.reuse.append(0.0)
        if is_asked(members[0]):
            self.question = members[0].text
        # Calls before results: terms that a call and its result have in common are not a reuse of the result.
        for artifact in members:
            if artifact.kind is not Kind.TOOL:
                self._speak(number, artifact)
        for artifact in members:
            if artifact.kind is Kind.TOOL:
                for term in _terms(artifact.text):
                    self._brought.setdefault(term, number)

    def _speak(self, number: int, artifact: Artifact) -> None:
        """Find the earlier exchanges whose terms a message or its calls repeat, and raise their `reuse`."""
        for term in _terms("\n".join((artifact.text, *(call.arguments for call in artifact.calls)))):
            origin = self._brought.setdefault(term, number)
            # Each term counts once, so that an id that a loop repeats does not look important.
            if origin != number and self.reuse[origin] < 1.0:
                terms = self._taken_up.setdefault(origin, set())
                terms.add(term)
                self.reuse[origin] = min(1.0, len(terms) / _REUSES)
                if self.reuse[origin] == 1.0:
                    del self._taken_up[origin]


def _terms(text: str) -> frozenset[str]:
    return frozenset(_TERM.findall(" ".join(set(text.split()))))  # each word once; terms contain no spaces
