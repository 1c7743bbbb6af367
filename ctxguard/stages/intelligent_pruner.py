"""Keep what matters: score every exchange, drop those below a threshold."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from threading import Lock
from typing import Final

from ctxguard.artifacts import Artifact, Kind
from ctxguard.draft import Draft
from ctxguard.errors import ConfigError
from ctxguard.protection import Unit, units
from ctxguard.stages.alone import applied
from ctxguard.stages.lexical import Document, LexicalIndex
from ctxguard.stages.merge_similar import MergeSimilar
from ctxguard.stages.selection import check_every, must_stay, selected
from ctxguard.stages.sliding_window import (
    DEFAULT_RULES,
    ERRORS,
    PreservationRule,
    preserved_by,
    reports_error,
)
from ctxguard.text_cache import TextCache

__all__ = ["WEIGHTS", "Importance", "ImportanceScorer", "IntelligentPruner", "PruningRules"]

WEIGHTS: Final[Mapping[str, float]] = {
    "kind": 0.15,
    "recency": 0.2,
    "error": 0.15,
    "reuse": 0.25,
    "relevance": 0.25,
}
"""How much each part counts; they add up to 1."""
_KINDS: Final = {Kind.USER: 1.0, Kind.ASSISTANT: 0.5, Kind.TOOL: 0.4}
_TERM: Final = re.compile(r"[A-Za-z_][\w./-]{5,}|[A-Za-z]*\d[\w-]{3,}")
"""What a later message would name: identifiers, paths, numbers of orders and tickets, longer words."""
_REUSES: Final = 3
"""Terms taken up later that make an exchange fully referenced."""
_REMEMBERED: Final = 16
"""Histories whose scores are remembered; the same one comes back with every call between two points."""
_TERMS: Final[TextCache[frozenset[str]]] = TextCache(8_000_000)


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


@dataclass(frozen=True, slots=True)
class PruningRules:
    """Set what a pruner keeps.

    Attributes:
        importance_threshold: score from 0 to 1 below which an exchange goes.
        merge_similar: merge exchanges alike that follow each other.
        keep_error_context: exchanges kept before and after one that reports an error; they make the error make sense.
        keep_latest: latest messages that are not judged.
        preserve: rules of what is kept whatever its score.

    Raises:
        ConfigError: a setting is out of range.
    """

    importance_threshold: float = 0.3
    merge_similar: bool = True
    keep_error_context: int = 5
    keep_latest: int = 0
    preserve: tuple[PreservationRule, ...] = DEFAULT_RULES

    def __post_init__(self) -> None:
        if not 0 <= self.importance_threshold <= 1:
            raise ConfigError(
                f"importance_threshold is a score from 0 to 1, not {self.importance_threshold}",
                setting="importance_threshold",
            )
        if self.keep_error_context < 0 or self.keep_latest < 0:
            raise ConfigError("keep_error_context and keep_latest must be 0 or more", setting="keep_error_context")


class ImportanceScorer:
    """Score exchanges by what they are, when they came, what became of them and what is asked now.

    Args:
        weights: of the parts; None means `WEIGHTS`.
        index: ranks by the last user message; None means one of its own.
    """

    def __init__(self, weights: Mapping[str, float] | None = None, *, index: LexicalIndex | None = None) -> None:
        self.weights = dict(WEIGHTS if weights is None else weights)
        if unknown := set(self.weights) - set(WEIGHTS):
            raise ConfigError(f"unknown part {min(unknown)!r}; known are {', '.join(WEIGHTS)}", setting="weights")
        self.index = LexicalIndex() if index is None else index
        self._judged: OrderedDict[int, tuple[list[Document], list[Importance]]] = OrderedDict()
        self._lock = Lock()

    def score(self, message: Artifact, messages: Sequence[Artifact]) -> float:
        """Return the score of one message among all."""
        place = next((n for n, a in enumerate(messages) if a is message), None)
        if place is None:
            raise ConfigError("the message is none of the messages", setting="message")
        return self.scores([(a,) for a in messages])[place].score

    def scores(self, exchanges: Sequence[Sequence[Artifact]]) -> list[Importance]:
        """Return the scores of exchanges in their order; a function of these alone."""
        documents: list[Document] = [tuple(text for a in e for _, text in a.texts()) for e in exchanges]
        with self._lock:
            known = next((scores for texts, scores in self._judged.values() if texts == documents), None)
        if known is None:
            known = self._judge(exchanges, documents)
            with self._lock:
                self._judged[id(known)] = (documents, known)
                while len(self._judged) > _REMEMBERED:
                    self._judged.popitem(last=False)
        return known

    def _judge(self, exchanges: Sequence[Sequence[Artifact]], documents: Sequence[Document]) -> list[Importance]:
        reuse, relevance = _reuse(exchanges), self._relevance(exchanges, documents)
        last = max(len(exchanges) - 1, 1)
        return [
            self._importance(
                {
                    "kind": max(_KINDS.get(a.kind, 1.0) for a in exchange),
                    "recency": number / last,
                    "error": float(any(map(reports_error, exchange))),
                    "reuse": reuse[number],
                    "relevance": relevance[number],
                }
            )
            for number, exchange in enumerate(exchanges)
        ]

    def _importance(self, parts: Mapping[str, float]) -> Importance:
        return Importance(sum(self.weights.get(name, 0.0) * value for name, value in parts.items()), parts)

    def _relevance(self, exchanges: Sequence[Sequence[Artifact]], documents: Sequence[Document]) -> list[float]:
        question = next((e[0].text for e in reversed(exchanges) if e[0].kind is Kind.USER), "")
        scores = self.index.scores(documents, question)
        highest = max((s for s, d in zip(scores, documents, strict=True) if question not in d), default=0.0)
        return [min(1.0, score / highest) if highest > 0 else 0.0 for score in scores]


def _reuse(exchanges: Sequence[Sequence[Artifact]]) -> list[float]:
    """Return how much of what each exchange brought in is taken up later, in what is said or called with."""
    brought: dict[str, int] = {}
    taken: list[set[str]] = [set() for _ in exchanges]
    for number, exchange in enumerate(exchanges):
        for artifact in exchange:
            if artifact.kind is not Kind.TOOL:
                for term in _terms("\n".join((artifact.text, *(call.arguments for call in artifact.calls)))):
                    origin = brought.setdefault(term, number)
                    if origin != number:
                        taken[origin].add(term)
        for artifact in exchange:
            if artifact.kind is Kind.TOOL:
                for term in _terms(artifact.text):
                    brought.setdefault(term, number)
    return [min(1.0, len(terms) / _REUSES) for terms in taken]


def _terms(text: str) -> frozenset[str]:
    terms = _TERMS.get(text)
    if terms is None:
        terms = frozenset(_TERM.findall(text))
        _TERMS.put(text, terms)
    return terms


class IntelligentPruner:
    """Drop the exchanges that matter least: scored by kind, recency, errors, reuse and relevance.

    Scores change with every message, so they are worked out at every `every`-th exchange only and hold until the next
    such point: between two points prompts only grow. The report's details hold the scores and their parts.

    Args:
        rules: what is kept; None means the defaults.
        scorer: scores the exchanges; None means one with the default weights.
        target_size: tokens up to which the best exchanges above the threshold are kept; None means all of them.
        every: exchanges after which the scores are worked out anew.

    Raises:
        ConfigError: a setting is out of range.
    """

    name = "IntelligentPruner"

    def __init__(
        self,
        rules: PruningRules | None = None,
        *,
        scorer: ImportanceScorer | None = None,
        target_size: int | None = None,
        every: int = 10,
    ) -> None:
        if target_size is not None and target_size < 1:
            raise ConfigError(f"target_size must be 1 token or more, not {target_size}", setting="target_size")
        self.rules = PruningRules() if rules is None else rules
        self.importance_scorer = ImportanceScorer() if scorer is None else scorer
        self.target_size = target_size
        self.every = check_every(every)

    def prune(self, messages: Iterable[Artifact], target_size: int | None = None) -> list[Artifact]:
        """Return the artifacts that matter, in their order, as of now. The input is not changed.

        Args:
            messages: the history.
            target_size: tokens, see the class; None means the setting of the pruner.
        """
        now = IntelligentPruner(
            self.rules, scorer=self.importance_scorer, target_size=target_size or self.target_size, every=1
        )
        return applied(now, messages)

    def __call__(self, draft: Draft, /) -> Draft:
        """Return the draft without what matters least."""
        if self.rules.merge_similar:
            draft = MergeSimilar(every=self.every)(draft)
        found = units(draft)
        judged: dict[int, list[Importance]] = {}

        def choose(end: int) -> set[int]:
            if end not in judged:
                exchanges = [draft.artifacts[u.start : u.end] for u in found[:end]]
                judged[end] = self.importance_scorer.scores(exchanges)
            return self._chosen(draft, found[:end], judged[end])

        result = selected(draft, found, choose, self.every, "matters less than the threshold")
        if not judged:
            return result
        return replace(result, details={**result.details, self.name: _told(found, judged[max(judged)])})

    def _chosen(self, draft: Draft, found: Sequence[Unit], scores: Sequence[Importance]) -> set[int]:
        kept = self._spared(draft, found)
        room = self.target_size
        used = sum(found[n].tokens for n in kept | must_stay(draft, found, len(found)))
        for number in sorted(range(len(found)), key=lambda n: (-scores[n].score, -n)):
            if scores[number].score < self.rules.importance_threshold:
                break
            if number in kept:
                continue
            used += found[number].tokens
            if room is not None and used > room:
                break
            kept.add(number)
        return kept

    def _spared(self, draft: Draft, found: Sequence[Unit]) -> set[int]:
        """Return what is kept whatever its score: the latest, errors with what stands around them, what rules name."""
        edge = found[-1].end - self.rules.keep_latest if found else 0
        kept = {n for n, u in enumerate(found) if u.end > edge and self.rules.keep_latest}
        named = preserved_by([r for r in self.rules.preserve if r is not ERRORS], draft.artifacts)
        errors = preserved_by([r for r in self.rules.preserve if r is ERRORS], draft.artifacts)
        around = self.rules.keep_error_context
        for number, unit in enumerate(found):
            members = range(unit.start, unit.end)
            if any(p in named for p in members):
                kept.add(number)
            if any(p in errors for p in members):
                kept.update(range(max(0, number - around), min(len(found), number + around + 1)))
        return kept


def _told(found: Sequence[Unit], scores: Sequence[Importance]) -> list[dict[str, object]]:
    return [
        {"position": unit.start, "score": round(s.score, 3), **{k: round(v, 3) for k, v in s.parts.items()}}
        for unit, s in zip(found, scores, strict=False)
    ]
