"""Keep what matters: score every exchange, drop those below a threshold."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate, takewhile
from typing import Final

from ctxguard.artifacts import Artifact, Kind
from ctxguard.draft import Draft
from ctxguard.errors import ConfigError
from ctxguard.history import ASKED_BEHIND, LEFT_OUT, LEFT_OUT_END, OPENINGS, Unit, is_record, stands_in
from ctxguard.stages.alone import applied
from ctxguard.stages.cuts import moved_cut, with_cut
from ctxguard.stages.growing import Followed
from ctxguard.stages.importance import WEIGHTS, Importance, ImportanceScorer
from ctxguard.stages.merge_similar import RunsHistory, noted_all
from ctxguard.stages.selection import Note, Settle, check_every, must_stay, selected, widening
from ctxguard.stages.sliding_window import DEFAULT_RULES, ERRORS, PreservationRule, preserved_by

__all__ = ["WEIGHTS", "Importance", "ImportanceScorer", "IntelligentPruner", "PruningRules"]

_TOLD: Final = re.compile(f"(?:\\A|\n\n){re.escape(LEFT_OUT)}([0-9]{{1,6}}){re.escape(LEFT_OUT_END)}(?=\n\n|\\Z)")
"""With fewer exchanges than a million: a number that nobody reaches would keep the pruner from judging again.

Also where `MergeMessageRuns` joined it to what stands around it.
"""


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


@dataclass(slots=True)
class _Judged(RunsHistory):
    """Hold a history, what the rules keep of it, and its scores as of the latest point.

    Attributes:
        named: numbers of the exchanges that some rule keeps.
        errors: numbers of those that report errors, where they are kept.
        seen: exchanges that the rules have judged; the last one may still grow.
        scores: of the first so many exchanges.
        written: numbers of the messages that stages wrote.
        told: numbers of the messages in which a pruner says that it has judged what stands above.
        looked_at: exchanges that were looked at for these; no result changes a message of the user's.
        records: numbers of summaries and checkpoints: what they stand for is nowhere else.
        notes: the message of this pruner, by its text: the same object in each call.
    """

    named: list[int] = field(default_factory=list)
    errors: list[int] = field(default_factory=list)
    seen: int = 0
    scores: tuple[int, Sequence[Importance]] = (0, ())
    written: list[int] = field(default_factory=list)
    told: list[int] = field(default_factory=list)
    looked_at: int = 0
    records: list[int] = field(default_factory=list)
    notes: dict[str, Artifact] = field(default_factory=dict)

    def watch(self, rules: Sequence[PreservationRule]) -> None:
        """Take in what is new, the last exchange left out: results may still come for it."""
        end = max(self.seen, len(self.units) - 1)
        named, errors = self._kept_by(rules, self.seen, end)
        self.named += named
        self.errors += errors
        for number in range(self.seen, end):
            first = self.members(number)[0]
            if stands_in(first):
                self.written.append(number)
                self.records += [number] if is_record(first) else []
        for number in range(self.looked_at, len(self.units)):
            self.told += [number] if _tells(self.members(number)[0]) else []
        self.seen, self.looked_at = end, len(self.units)

    def judged(self) -> tuple[int, int]:
        """Return how many exchanges were judged in an earlier pass, and the number of the first one behind them."""
        if not self.told:
            return 0, 0
        number = self.told[-1]
        text = self.members(number)[0].text
        told = next((match for match in reversed(list(_TOLD.finditer(text)))), None)
        if told is None:
            return number, number + 1
        behind = text[told.end() :].lstrip()
        asks = ASKED_BEHIND in text[told.end() :] or (behind and not behind.startswith(OPENINGS))
        return int(told[1]), number if asks else number + 1

    def count(self, end: int) -> int:
        """Return how many exchanges the first `end` stand for: what was judged before for as many as it was then.

        What stages wrote stands for none. So the points of a result are those of the history it was made from.
        """
        judged, begin = self.judged()
        if end <= begin:
            return judged if end == begin else 0
        return judged + end - begin - (bisect_left(self.written, end) - bisect_left(self.written, begin))

    def point(self, end: int, every: int) -> int:
        """Return the number of the exchange up to which `end` of them are judged."""
        judged, begin = self.judged()
        point = widening(self.count(end), every)
        if point <= judged:
            return min(begin, end)
        number = begin + point - judged
        for other in self.written[bisect_left(self.written, begin) :]:
            number += other < number
        return number

    def spared(self, rules: PruningRules, end: int) -> set[int]:
        """Return what is kept whatever its score: the latest, records, errors and their surroundings, named ones."""
        named, errors = self._kept_by(rules.preserve, min(self.seen, end), end)
        kept = {n for n in (*self.named, *named, *self.records) if n < end}
        around = rules.keep_error_context
        for number in (*self.errors, *errors):
            if number < end:
                kept.update(range(max(0, number - around), min(end, number + around + 1)))
        return kept.union(range(self._latest(rules.keep_latest, end), end))

    def _latest(self, messages: int, end: int) -> int:
        """Return the first exchange that holds one of the latest messages before `end`."""
        first = end
        while messages and first and self.units[first - 1].end > self.units[end - 1].end - messages:
            first -= 1
        return first

    def _kept_by(self, rules: Sequence[PreservationRule], begin: int, end: int) -> tuple[list[int], list[int]]:
        named = preserved_by([rule for rule in rules if rule != ERRORS], self, begin, end)
        return named, preserved_by([rule for rule in rules if rule == ERRORS], self, begin, end)


class _Told(Mapping[str, object]):
    """Hold a draft's details, and the scores beside them, written out when a report is read."""

    def __init__(self, details: Mapping[str, object], units: Sequence[Unit], scores: Sequence[Importance]) -> None:
        self._details, self._units, self._scores = details, units, scores

    def __getitem__(self, name: str) -> object:
        if name != IntelligentPruner.name:
            return self._details[name]
        return [
            {"position": unit.start, "score": round(s.score, 3), **{k: round(v, 3) for k, v in s.parts.items()}}
            for unit, s in zip(self._units, self._scores, strict=False)
        ]

    def __iter__(self) -> Iterator[str]:
        return iter({**dict.fromkeys(self._details), IntelligentPruner.name: None})

    def __len__(self) -> int:
        return len({*self._details, IntelligentPruner.name})


class IntelligentPruner:
    """Drop the exchanges that matter least: scored by kind, recency, errors, reuse and relevance.

    Scores change with every message, so they are worked out at every `every`-th exchange only and hold until the next
    such point: between two points prompts only grow. The report's details hold the scores and their parts. A message
    at that point says that something above it is left out; where it comes back in a history, what stands above it has
    been judged, and is not judged again before the next point.

    Args:
        rules: what is kept; None means the defaults.
        scorer: scores the exchanges; None means one with the default weights.
        target_size: tokens up to which the best exchanges above the threshold are kept; None means all of them.
        every: exchanges after which the scores are worked out anew; the step grows with the history, to two in a
            hundred of it.

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
        self._histories = Followed(_Judged)

    def prune(self, messages: Iterable[Artifact], target_size: int | None = None) -> list[Artifact]:
        """Return the artifacts that matter, in their order, as of now. The input is not changed.

        Args:
            messages: the history.
            target_size: tokens, see the class; None means the setting of the pruner.
        """
        now = IntelligentPruner(self.rules, scorer=self.importance_scorer, target_size=target_size or self.target_size)
        return applied(now._pruned_now, messages)

    def _pruned_now(self, draft: Draft) -> Draft:
        with self._histories.following(draft) as history:
            history.watch(self.rules.preserve)
            return self._pruned(draft, history, lambda end: end, lambda _point, _end, _gone: None)

    def __call__(self, draft: Draft, /) -> Draft:
        """Return the draft without what matters least."""
        with self._histories.following(draft) as history:
            history.watch(self.rules.preserve)
            if history.told and history.point(len(history.units) - 1, self.every) <= history.judged()[1]:
                return with_cut(draft, draft, None)
            result = self._pruned(
                draft,
                history,
                lambda end: history.point(max(0, end - 1), self.every),
                partial(self._note, draft, history),
            )
            notes = (history.members(number)[0] for number in history.told)
            return _without_earlier_notes(result, list(filter(stands_in, notes)))

    def _pruned(self, draft: Draft, history: _Judged, settle: Settle, note: Note) -> Draft:
        history.compare()
        merged = history.merged(draft, settle(len(history.units))) if self.rules.merge_similar else []
        result = selected(
            draft,
            history,
            partial(self._chosen, draft, history),
            settle,
            {id(a): "merged" for run in merged for n in run[:-1] for a in history.members(n)},
            otherwise="matters less than the threshold",
            note=note,
        )
        if merged:
            noted = noted_all(draft, result, history, merged)
            result = result.revise(noted, action="bounded", reason="stands for several alike")
        end, scores = history.scores
        return replace(result, details=_Told(result.details, history.units, scores)) if end else result

    def _chosen(self, draft: Draft, history: _Judged, end: int) -> list[int]:
        scores = self.importance_scorer.scores([history.members(n) for n in range(end)])
        if end >= history.scores[0]:
            history.scores = (end, scores)
        kept, least = history.spared(self.rules, end), self.rules.importance_threshold
        merged = history.merged(draft, end) if self.rules.merge_similar else []
        gone = {number for run in merged for number in run[:-1]}
        kept -= gone
        wanted = [n for n, total in enumerate(scores.totals) if total >= least and n not in kept and n not in gone]
        if self.target_size is not None:
            used = sum(history.units[n].tokens for n in kept.union(must_stay(draft, history, end)))
            wanted.sort(key=lambda n: (-scores.totals[n], -n))
            wanted = wanted[: _fitting((history.units[n].tokens for n in wanted), self.target_size - used)]
        return sorted(kept.union(wanted))

    def _note(self, draft: Draft, history: _Judged, point: int, end: int, gone: int) -> Artifact | None:
        """Return what says that the exchanges before a point were judged, where some of them are gone or will be."""
        if not (point and (gone or history.told or _exceeds(draft, history, end))):
            return None
        text = draft.mask(f"{LEFT_OUT}{history.count(point)}{LEFT_OUT_END}")
        if text not in history.notes:
            latest = list(history.notes.items())[-1:]  # that of the call before is asked for too
            history.notes = {**dict(latest), text: Artifact(Kind.USER, text, pinned=True)}
        return history.notes[text]


def _tells(artifact: Artifact) -> bool:
    """Tell a pruner's message, its number masked or not, or one of the user's that it is joined to."""
    if artifact.kind is not Kind.USER or LEFT_OUT not in artifact.text:
        return False
    return (artifact.text.startswith(LEFT_OUT) and stands_in(artifact)) or _TOLD.search(artifact.text) is not None


def _exceeds(draft: Draft, history: _Judged, end: int) -> bool:
    """Tell whether a later stage has to cut the first exchanges."""
    return draft.overhead + sum(history.costs[: history.start(end)]) > draft.budget


def _without_earlier_notes(draft: Draft, notes: Sequence[Artifact]) -> Draft:
    """Return the draft without the messages that said the same further up."""
    if not notes or draft.cut is None:
        return draft
    earlier = {id(artifact) for artifact in notes}
    places = [place for place, artifact in enumerate(draft.artifacts) if id(artifact) in earlier]
    left = (artifact for artifact in draft.artifacts if id(artifact) not in earlier)
    result = draft.revise(left, reason="what stands above was judged again")
    return moved_cut(result, min(places[0], draft.cut.position))


def _fitting(sizes: Iterable[int], room: int) -> int:
    """Return how many of these sizes, from the first on, add up to at most `room`."""
    return sum(1 for _ in takewhile(lambda total: total <= room, accumulate(sizes)))
