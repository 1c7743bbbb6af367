"""Keep what matters: score every exchange, drop those below a threshold."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, takewhile

from ctxguard.artifacts import Artifact
from ctxguard.draft import Draft, Follower
from ctxguard.errors import ConfigError
from ctxguard.history import ExchangeSpan, History
from ctxguard.stages.alone import applied
from ctxguard.stages.followed import FollowedStage
from ctxguard.stages.importance import ImportanceScorer, Ledger, Scores
from ctxguard.stages.merge_similar import SimilarRuns, noted_all
from ctxguard.stages.selection import check_every, selected, task_of, widening
from ctxguard.stages.sliding_window import DEFAULT_RULES, ERRORS, PreservationRule, preserved_by


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


class IntelligentPruner(FollowedStage):
    """Drop the exchanges that matter least: scored by kind, recency, errors, reuse and relevance.

    Scores change with every message, so they are computed at every `every`-th exchange only and hold until the next
    such point: between two points prompts only grow. The report's details hold the scores and their parts.

    Args:
        rules: what is kept; None means the defaults.
        scorer: scores the exchanges; None means one with the default weights.
        target_size: tokens up to which the best exchanges above the threshold are kept; None means all of them.
        every: exchanges after which the scores are computed again; the step grows to two percent of the history.

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
        # `every` plays no part here: a single call has no earlier prompt to extend.
        now = IntelligentPruner(self.rules, scorer=self.importance_scorer, target_size=target_size or self.target_size)

        def prune_now(draft: Draft) -> Draft:
            pruning = _Pruning(now, draft)
            pruning.take(draft.artifacts, draft)
            return pruning.pruned(draft, len(pruning.history))

        return applied(prune_now, messages)

    def begin(self, draft: Draft, /) -> Follower:
        """Return what prunes in one conversation."""
        return _Pruning(self, draft)


class _Pruning:
    """Prune one conversation. The last exchange may still grow: it is not judged, and stays anyway."""

    def __init__(self, stage: IntelligentPruner, draft: Draft) -> None:
        self._stage = stage
        self.history = History(draft.counter.artifact)
        self._ledger = Ledger()
        self._runs = SimilarRuns()
        self._named: list[int] = []
        self._errors: list[int] = []
        self._seen = 0
        self._scored: tuple[int, Scores | None] = (0, None)

    def take(self, artifacts: Sequence[Artifact], draft: Draft) -> None:  # noqa: ARG002 - as every follower
        """Take in what comes next."""
        self.history.extend(artifacts)
        self._runs.compare(self.history)
        # The last exchange may still grow, so that judging it now would be a guess.
        end = max(self._seen, len(self.history) - 1)
        named, errors = self._kept_by_rules(self._seen, end)
        self._named += named
        self._errors += errors
        self._seen = end

    def result(self, draft: Draft) -> Draft:
        """Return the draft without what matters least as of the latest point."""
        return self.pruned(draft, widening(max(0, len(self.history) - 1), self._stage.every))

    def pruned(self, draft: Draft, point: int) -> Draft:
        """Return the draft without what matters least among the first exchanges up to a point."""
        history = self.history
        merged = self._runs.merged(draft, history, point) if self._stage.rules.merge_similar else []
        result = selected(
            draft,
            history,
            self._chosen(draft, point, merged),
            point,
            reason={id(a): "merged" for run in merged for n in run[:-1] for a in history.members(n)},
            otherwise="matters less than the threshold",
        )
        if merged:
            noted = noted_all(draft, result, history, merged)
            result = result.revise(noted, action="bounded", reason="stands for several alike")
        scores = self._scored[1]
        return result if scores is None else replace(result, details=_Told(result.details, history.spans, scores))

    def _chosen(self, draft: Draft, point: int, merged: Sequence[range]) -> list[int]:
        """Return which of the first exchanges stay: what is spared, and the best of those above the threshold."""
        if not point:
            return []
        history, stage = self.history, self._stage
        # Of a run of similar exchanges the last one stands for all.
        gone = {number for run in merged for number in run[:-1]}
        kept = self._spared(point) - gone
        totals = self._scores(point).totals
        wanted = [
            n for n, t in enumerate(totals) if t >= stage.rules.importance_threshold and n not in kept and n not in gone
        ]
        if stage.target_size is not None:
            # What stays in any case uses up the target size first.
            fixed = history.must_stay(draft.keep_recent, task_of(draft, history), len(history))
            room = stage.target_size - sum(history.spans[n].tokens for n in kept.union(fixed))
            # The best first; of two that are equally good, the newer one.
            wanted.sort(key=lambda n: (-totals[n], -n))
            wanted = wanted[: _fitting((history.spans[n].tokens for n in wanted), room)]
        return sorted(kept.union(wanted))

    def _scores(self, point: int) -> Scores:
        end, scores = self._scored
        if scores is None or end != point:
            # The ledger only ever grows: an exchange before the point does not change any more.
            for number in range(len(self._ledger.exchanges), point):
                self._ledger.add(self.history.members(number))
            scores = self._stage.importance_scorer.scored(self._ledger)
            self._scored = (point, scores)
        return scores

    def _spared(self, end: int) -> set[int]:
        """Return what is kept whatever its score: the latest, errors and what surrounds them, what rules name."""
        rules = self._stage.rules
        named, errors = self._kept_by_rules(min(self._seen, end), end)
        kept = {n for n in (*self._named, *named) if n < end}
        around = rules.keep_error_context
        for number in (*self._errors, *errors):
            if number < end:
                # An error makes sense only with what led to it and what was done about it.
                kept.update(range(max(0, number - around), min(end, number + around + 1)))
        return kept.union(range(self._latest(rules.keep_latest, end), end))

    def _latest(self, messages: int, end: int) -> int:
        """Return the first exchange that holds one of the latest messages before `end`."""
        spans, first = self.history.spans, end
        while messages and first and spans[first - 1].end > spans[end - 1].end - messages:
            first -= 1
        return first

    def _kept_by_rules(self, begin: int, end: int) -> tuple[list[int], list[int]]:
        rules = self._stage.rules.preserve
        named = preserved_by([rule for rule in rules if rule != ERRORS], self.history, begin, end)
        return named, preserved_by([rule for rule in rules if rule == ERRORS], self.history, begin, end)


class _Told(Mapping[str, object]):
    """Hold a draft's details, and the scores beside them, written out when a report is read."""

    def __init__(self, details: Mapping[str, object], spans: Sequence[ExchangeSpan], scores: Scores) -> None:
        self._details, self._spans, self._scores = details, spans, scores

    def __getitem__(self, name: str) -> object:
        # Written out on demand: a long history has many scores, and most reports are never read.
        if name != IntelligentPruner.name:
            return self._details[name]
        return [
            {"position": span.start, "score": round(s.score, 3), **{k: round(v, 3) for k, v in s.parts.items()}}
            for span, s in zip(self._spans, self._scores, strict=False)
        ]

    def __iter__(self) -> Iterator[str]:
        return iter({**dict.fromkeys(self._details), IntelligentPruner.name: None})

    def __len__(self) -> int:
        return len({*self._details, IntelligentPruner.name})


def _fitting(sizes: Iterable[int], room: int) -> int:
    """Return how many of these sizes, from the first on, add up to at most `room`."""
    return sum(1 for _ in takewhile(lambda total: total <= room, accumulate(sizes)))
