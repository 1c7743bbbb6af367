"""Score all exchanges, and drop those whose score is below a threshold."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import accumulate

from ctxguard.artifacts import Artifact
from ctxguard.settings import valid_share, whole_number
from ctxguard.strategies.importance import Importance, ImportanceScorer, Terms
from ctxguard.strategies.keep import Choice, Keep, Past
from ctxguard.strategies.merge_similar import repeats, similar_runs
from ctxguard.strategies.sliding_window import DEFAULT_RULES, ERRORS, PreservationRule, is_preserved


@dataclass(frozen=True, slots=True)
class PruningRules:
    """The rules of an `IntelligentPruner`.

    Attributes:
        importance_threshold: Score, from 0 to 1, below which an exchange is dropped.
        merge_similar: Whether consecutive similar exchanges are merged.
        keep_error_context: Number of exchanges to keep before and after an exchange that reports an error, because they
            explain the error.
        keep_latest: Number of latest messages that are kept whatever their score.
        preserve: Rules for artifacts that are kept whatever their score.

    Raises:
        ConfigError: If a setting is out of range.
    """

    importance_threshold: float = 0.3
    merge_similar: bool = True
    keep_error_context: int = 5
    keep_latest: int = 0
    preserve: tuple[PreservationRule, ...] = DEFAULT_RULES

    def __post_init__(self) -> None:
        valid_share(self.importance_threshold, "importance_threshold", zero=True)
        whole_number(self.keep_error_context, "keep_error_context", unit="exchanges")
        whole_number(self.keep_latest, "keep_latest", unit="messages")


@dataclass(frozen=True, slots=True)
class _PruningNote:
    """What the pruner records about one exchange.

    Attributes:
        is_named: Whether a preservation rule other than `ERRORS` matches the exchange.
        is_error: Whether the rule `ERRORS` applies and matches the exchange.
        is_repeated: Whether similar exchanges are merged and the exchange is similar to the one before it.
    """

    is_named: bool
    is_error: bool
    is_repeated: bool


@dataclass(slots=True, eq=False)
class _Scores:
    """The latest scores of a conversation.

    Attributes:
        terms: The data from which the scores are computed.
        scores: The scores of the judged exchanges.
        details: The scores and their parts for the report.
    """

    terms: Terms = field(default_factory=Terms)
    scores: list[Importance] = field(default_factory=list)
    details: list[dict[str, float]] = field(default_factory=list)


class IntelligentPruner(Keep[_PruningNote]):
    """Drops the least important exchanges.

    `ImportanceScorer` scores them by kind, recency, errors, reuse, and relevance. Scores change with every message, so
    the stage computes them only after every `every` exchanges; in between, prompts only grow. The report's details
    contain the scores and their parts.

    Args:
        rules: The rules of the pruner; None means `PruningRules()`.
        scorer: The scorer; None means one with the default weights.
        target_size: Number of tokens for the exchanges that are always kept and the best ones above the threshold: the
            latter are added as long as they fit. None means that all exchanges above the threshold are kept.
        every: Number of new exchanges after which scores are computed again; see `Keep`.

    Raises:
        ConfigError: If a setting is out of range.
    """

    def __init__(
        self,
        rules: PruningRules | None = None,
        *,
        scorer: ImportanceScorer | None = None,
        target_size: int | None = None,
        every: int = 10,
    ) -> None:
        super().__init__(self._choose, self._note_on, every=every, name="IntelligentPruner")
        self.rules = PruningRules() if rules is None else rules
        self.importance_scorer = ImportanceScorer() if scorer is None else scorer
        self.target_size = (
            None if target_size is None else whole_number(target_size, "target_size", unit="tokens", least=1)
        )

    def prune(self, messages: Iterable[Artifact], target_size: int | None = None) -> list[Artifact]:
        """Score all messages now, and return those to keep, in order. The input is not changed.

        Args:
            messages: The history.
            target_size: Number of tokens, as for the class; None means the pruner's own setting.
        """
        size = target_size or self.target_size
        return IntelligentPruner(self.rules, scorer=self.importance_scorer, target_size=size).apply(messages)

    def _note_on(self, past: Past[_PruningNote], number: int) -> _PruningNote:
        errors = [rule for rule in self.rules.preserve if rule == ERRORS]
        others = [rule for rule in self.rules.preserve if rule != ERRORS]
        is_named, is_error = (is_preserved(rules, past.history, number) for rules in (others, errors))
        return _PruningNote(is_named, is_error, self.rules.merge_similar and repeats(past.history, number))

    def _choose(self, past: Past[_PruningNote], end: int) -> Choice | None:
        """Choose the exchanges that are kept whatever their score, and the best ones above the threshold."""
        if not end:
            return None
        history, mandatory = past.history, past.mandatory
        runs = similar_runs([n for n, note in enumerate(past.notes[:end]) if note.is_repeated], mandatory)
        gone = {number for run in runs for number in run[:-1]}
        kept = self._always_kept(past, end) - gone
        judged = self._score(past, end)
        best = [
            number
            for number, one in enumerate(judged.scores)
            if one.score >= self.rules.importance_threshold and number not in kept and number not in gone
        ]
        if self.target_size is not None:
            # Exchanges that are always kept use up the target size first.
            available = self.target_size - sum(history.spans[n].tokens for n in kept.union(mandatory))
            # The highest score first; of equal scores, the newer exchange first.
            best.sort(key=lambda n: (-judged.scores[n].score, -n))
            sums = accumulate(history.spans[n].tokens for n in best)
            best = best[: sum(total <= available for total in sums)]
        reason = "matters less than the threshold"
        return Choice((*kept, *best), end, reason, runs, details=judged.details)

    def _score(self, past: Past[_PruningNote], end: int) -> _Scores:
        judged = past.memory(_Scores)
        if len(judged.scores) != end:
            # `end` only grows, and exchanges before it do not change any more.
            for number in range(len(judged.terms.kinds), end):
                judged.terms.add(past.history.members(number))
            judged.scores = self.importance_scorer.scored(judged.terms)
            judged.details = [
                {"position": span.start, "score": round(one.score, 3), **{k: round(v, 3) for k, v in one.parts.items()}}
                for span, one in zip(past.history.spans, judged.scores, strict=False)
            ]
        return judged

    def _always_kept(self, past: Past[_PruningNote], end: int) -> set[int]:
        """Return the exchanges that are kept whatever their score: by a rule, near an error, or among the latest."""
        kept, around, spans = set(), self.rules.keep_error_context, past.history.spans
        for number, note in enumerate(past.notes[:end]):
            if note.is_named:
                kept.add(number)
            if note.is_error:
                kept.update(range(max(0, number - around), min(end, number + around + 1)))
        first = end
        while first and spans[first - 1].end > spans[end - 1].end - self.rules.keep_latest:
            first -= 1
        return kept.union(range(first, end))
