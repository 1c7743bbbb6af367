"""Score exchanges by what they are, when they came, what became of them and what is asked now."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

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

Members: TypeAlias = tuple[Artifact, ...]


@dataclass(frozen=True, slots=True)
class Importance:
    """Hold the score of one exchange, from 0 to 1, and its parts.

    Attributes:
        score: the weighted sum.
        parts: `kind`, `recency`, `error`, `reuse` (terms it brought in that later messages take up) and `relevance`
            (to the last user message), each from 0 to 1.
    """

    score: float
    parts: Mapping[str, float]


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """Hold the scores of the exchanges of one history; the parts of each are put together when it is looked at.

    Attributes:
        totals: the scores alone.
    """

    totals: list[float]
    _kinds: list[float] = field(repr=False)
    _errors: list[float] = field(repr=False)
    _reuse: list[float] = field(repr=False)
    _relevance: Mapping[int, float] = field(repr=False)

    def __iter__(self) -> Iterator[Importance]:
        return map(self.__getitem__, range(len(self.totals)))

    def __getitem__(self, number: int) -> Importance:
        parts = {
            "kind": self._kinds[number],
            "recency": number / max(len(self.totals) - 1, 1),
            "error": self._errors[number],
            "reuse": self._reuse[number],
            "relevance": self._relevance.get(number, 0.0),
        }
        return Importance(self.totals[number], parts)


class ImportanceScorer:
    """Score exchanges. Safe to share between threads and sessions: it remembers nothing.

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

    def scores(self, exchanges: Sequence[Sequence[Artifact]]) -> Scores:
        """Return the scores of exchanges in their order; a function of these alone."""
        ledger = Ledger()
        for members in exchanges:
            ledger.add(tuple(members))
        return self.scored(ledger)

    def scored(self, ledger: Ledger) -> Scores:
        """Return the scores of the exchanges in a ledger."""
        relevance, weigh = self._relevance(ledger), self.weights.get
        kind, error, reuse = weigh("kind", 0.0), weigh("error", 0.0), weigh("reuse", 0.0)
        step = weigh("recency", 0.0) / max(len(ledger.exchanges) - 1, 1)
        parts = enumerate(zip(ledger.kinds, ledger.errors, ledger.reuse, strict=True))
        totals = [kind * k + error * e + reuse * r + step * n for n, (k, e, r) in parts]
        for number, value in relevance.items():
            totals[number] += weigh("relevance", 0.0) * value
        return Scores(totals, ledger.kinds[:], ledger.errors[:], ledger.reuse[:], relevance)

    def _relevance(self, ledger: Ledger) -> dict[int, float]:
        """Return how well exchanges answer to the last user message, the best other one being 1.0."""
        question = ledger.question
        found = ledger.index.matches(question)
        highest = max((s for n, s in found.items() if question not in ledger.index.documents[n]), default=0.0)
        return {n: min(1.0, score / highest) for n, score in found.items()} if highest > 0 else {}


@dataclass(slots=True, eq=False)
class Ledger:
    """Hold what is known of the exchanges of one history; it is only ever added to.

    Attributes:
        exchanges: those that were taken in.
        index: ranks their texts.
        kinds: the part `kind` of each.
        errors: the part `error` of each.
        reuse: the part `reuse` of each, so far.
        question: the last user message.
    """

    exchanges: list[Members] = field(default_factory=list)
    index: LexicalIndex = field(default_factory=LexicalIndex)
    kinds: list[float] = field(default_factory=list)
    errors: list[float] = field(default_factory=list)
    reuse: list[float] = field(default_factory=list)
    question: str = ""
    _brought: dict[str, int] = field(default_factory=dict)
    _taken_up: dict[int, set[str]] = field(default_factory=dict)

    def add(self, members: Members) -> None:
        """Take in one more exchange."""
        number = len(self.exchanges)
        self.exchanges.append(members)
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
        """Note which earlier exchanges what is said or called with takes something up from."""
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
    return frozenset(_TERM.findall(" ".join(set(text.split()))))  # no term holds a space: each word once
