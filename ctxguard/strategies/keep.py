"""The stage that all strategies share: a function chooses the exchanges to keep.

The function judges the exchanges up to a point that moves in steps. Later exchanges are kept, so between two steps
prompts only grow at their end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain, count
from typing import Final, Generic, TypeVar, cast

from ctxguard.artifacts import Artifact, Kind
from ctxguard.draft import CallSettings, Draft, FollowedStage
from ctxguard.history import History
from ctxguard.settings import whole_number
from ctxguard.stages.repair_exchanges import RepairExchanges
from ctxguard.tokens import ArtifactCounter, find_counter

_WIDENING: Final = 100
"""Steps after which the step doubles, as the history does: judging all exchanges again then costs the same share of a
call however long the history is, and at most two exchanges in a hundred wait to be judged."""
_UNLIMITED: Final = 1 << 40  # a budget that nothing exceeds
Note = TypeVar("Note")
Memory = TypeVar("Memory")


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """The choice of a strategy.

    Attributes:
        stays: numbers of the exchanges before `point` that are kept in addition to the mandatory ones.
        point: number of the first exchange that was not judged; it and all later ones are kept.
        reason: why the others are dropped, for the report.
        runs: runs of similar exchanges. The last one of a run is kept, with a note of how many there were.
        record: a message that summarizes the dropped exchanges, placed at the point; not used if nothing is dropped.
        details: figures for the report; None means none.
    """

    stays: Iterable[int]
    point: int
    reason: str
    runs: Sequence[range] = ()
    record: Artifact | None = None
    details: object = None


class Past(Generic[Note]):
    """A conversation in which a strategy chooses; it lives as long as the history only grows.

    Attributes:
        draft: the draft of the current call.
        history: its exchanges.
        notes: the strategy's notes on each exchange but the last one, which may still grow.
    """

    def __init__(self, stage: Keep[Note], draft: Draft) -> None:
        self.draft = draft
        self.history = History(draft.counter.artifact)
        self.notes: list[Note] = []
        self._stage = stage
        self._memory: dict[type, object] = {}

    @property
    def task(self) -> int | None:
        """Number of the user message that is kept as the task."""
        return self.history.task(self.draft.budget) if self.draft.keep_task else None

    @property
    def mandatory(self) -> list[int]:
        """Numbers of the exchanges that are kept whatever a strategy chooses, in order."""
        return self.history.must_stay(self.draft.keep_recent, self.task, len(self.history))

    def memory(self, kind: type[Memory]) -> Memory:
        """Return the one object of a class that belongs to this conversation, created when first requested."""
        if kind not in self._memory:
            self._memory[kind] = kind()
        return cast("Memory", self._memory[kind])

    def take(self, artifacts: Sequence[Artifact], draft: Draft) -> None:
        """Take in the new artifacts, and make notes on the exchanges that cannot grow any more."""
        self.draft = draft
        self.history.extend(artifacts)
        self.note(len(self.history) - 1)

    def note(self, end: int) -> None:
        """Make a note on each of the first `end` exchanges that has none yet."""
        for number in range(len(self.notes), end):
            self.notes.append(self._stage.note(self, number))

    def result(self, draft: Draft) -> Draft:
        """Return the draft with the exchanges kept at the latest step."""
        self.draft = draft
        return self.chosen(_step(len(self.notes), self._stage.every))

    def chosen(self, end: int) -> Draft:
        """Return the draft with the exchanges kept if the first `end` are judged."""
        choice = self._stage.choose(self, end)
        return self.draft if choice is None else _kept(choice, self, self._stage.name)


class Keep(FollowedStage, Generic[Note]):
    """Keep the exchanges that a function chooses, the mandatory ones, and those since the last step.

    Args:
        choose: takes the conversation and how many exchanges to judge, and returns a `Choice`; None keeps everything.
            It must depend on the history alone.
        note: takes the conversation and the number of an exchange; its results are in `Past.notes`. It is called once
            for each exchange, in order, so a choice need not look at all texts again.
        every: exchanges from one choice to the next; the number grows to two percent of the history.
        name: the name of the stage in reports.

    Raises:
        ConfigError: `every` is not a whole number or below 1.
    """

    def __init__(
        self,
        choose: Callable[[Past[Note], int], Choice | None],
        note: Callable[[Past[Note], int], Note],
        *,
        every: int = 1,
        name: str = "Keep",
    ) -> None:
        self.choose = choose
        self.note = note
        self.every = whole_number(every, "every", unit="exchanges", least=1)
        self.name = name

    def apply(self, messages: Iterable[Artifact]) -> list[Artifact]:
        """Return the artifacts that are kept if all are judged now. Calls are repaired; the input is not changed."""
        history = tuple(messages)
        settings = CallSettings(_UNLIMITED, ArtifactCounter(find_counter("auto")), keep_recent=1)
        draft = cast("Draft", RepairExchanges()(Draft(history, settings, history=history)))
        past = self.begin(draft)
        past.take(draft.artifacts, draft)
        past.note(len(past.history))
        return list(past.chosen(len(past.history)).artifacts)

    def begin(self, draft: Draft, /) -> Past[Note]:
        """Return the follower that chooses in one conversation."""
        return Past(self, draft)


def _step(end: int, every: int) -> int:
    """Return how many of `end` exchanges are judged: a whole number of steps, which double as the history does."""
    step = every << max(0, (end // (_WIDENING * every)).bit_length() - 1)
    return end // step * step


def _kept(choice: Choice, past: Past[Note], name: str) -> Draft:
    """Return the draft with the chosen exchanges."""
    draft, history = past.draft, past.history
    kept = {*choice.stays, *past.mandatory, *range(choice.point, len(history))}
    # A context has to begin with a user message: the one that opened the turn.
    first = min(kept, default=None)
    if first is not None and not history.spans[first].has_user_role:
        opener = history.opener(first)
        kept.update(() if opener is None else (opener,))
    spans = (history.spans[number] for number in kept)
    positions = sorted(chain(history.authority, *(range(span.start, span.end) for span in spans)))
    artifacts = [draft.artifacts[position] for position in positions]
    merged = {id(a): "merged" for run in choice.runs for number in run[:-1] for a in history.members(number)}
    result = draft.revise(artifacts, reason=merged, otherwise=choice.reason)
    if choice.record is not None and result is not draft:
        artifacts.insert(sum(position < history.start(choice.point) for position in positions), choice.record)
        result = result.revise(artifacts, action="summarised", reason="stands for what is gone")
    if choice.runs:
        lasts = {id(draft.artifacts[history.spans[run[-1]].end - 1]): len(run) for run in choice.runs}
        noted = [_noted(a, lasts[id(a)], draft) if id(a) in lasts else a for a in result.artifacts]
        result = result.revise(noted, action="bounded", reason="stands for several alike")
    return result if choice.details is None else replace(result, details={**result.details, name: choice.details})


def _noted(artifact: Artifact, times: int, draft: Draft) -> Artifact:
    """Return the last artifact of a run with a note of how many similar exchanges the run had."""
    note = draft.mask(f"[the same {times} times in a row, the last one shown]")
    if isinstance(artifact.content, str):
        return artifact.revised(content=f"{artifact.content}\n{note}")
    # Parts of assistant messages may be signed, and a note would be inserted into the model's own text.
    if artifact.kind is Kind.ASSISTANT:
        return artifact
    after = count(1 - sum(part.text is not None and part.editable for part in artifact.content))
    return artifact.edit(lambda slot, text: f"{text}\n{note}" if slot == "content" and not next(after) else text)
