"""The stage on which all strategies are based: a function chooses the exchanges to keep.

The function judges the exchanges before a point that moves forward in steps. All later exchanges are kept, so between
two steps prompts only grow at their end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, count
from typing import Final, Generic, TypeVar, cast

from ctxguard.artifacts import Artifact, Kind
from ctxguard.draft import CallSettings, Draft
from ctxguard.history.conversation import TASK_SHARE, Fold
from ctxguard.history.pairing import require_artifacts
from ctxguard.settings import whole_number
from ctxguard.stages.arrival import RepairExchanges
from ctxguard.tokens import ArtifactCounter, find_counter

_WIDENING: Final = 100
"""Number of steps of the size `every`; afterwards, the step size doubles whenever the length of the history does. So
judging all exchanges again costs the same share of a call however long the history is, and at most 2% of the exchanges
wait to be judged."""
UNLIMITED: Final = 1 << 40
"""A budget, in tokens, that no conversation exceeds."""
Note = TypeVar("Note")
State = TypeVar("State")


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """The choice of a strategy. Exchanges are given by their index in `Past.history`.

    Attributes:
        stays: The exchanges before `point` that are kept in addition to the mandatory ones.
        point: The first exchange that was not judged. It and all later exchanges are kept.
        reason: The reason for dropping the other exchanges, for the report.
        runs: Runs of similar exchanges. The last exchange of each run is kept, with a note of how many there were.
        record: A message that summarizes the dropped exchanges and takes their place before `point`; None means no
            message. It is not used if nothing is dropped.
        details: Figures for the report; None means none.
    """

    stays: Iterable[int]
    point: int
    reason: str
    runs: Sequence[range] = ()
    record: Artifact | None = None
    details: object = None


class Past(Fold[Note]):
    """The growing conversation in which a strategy chooses the exchanges to keep.

    Attributes:
        draft: The draft of the current call.
        history: The exchanges of the conversation so far.
        notes: The strategy's note on each exchange except the last one, which may still grow.
    """

    def __init__(self, stage: Keep[Note], draft: Draft) -> None:
        super().__init__(draft.counter.artifact, draft.memory, cast("Note", None))  # a note needs none before it
        self.draft = draft
        self.notes = self.states
        self._stage = stage
        self._kept: dict[type, object] = {}

    @property
    def task(self) -> int | None:
        """Index of the exchange whose user message is kept as the task; None if there is none."""
        return self.history.task(self.draft.budget) if self.draft.keep_task else None

    @property
    def mandatory(self) -> list[int]:
        """Indexes of the exchanges that are kept whatever a strategy chooses, in order."""
        most = self.draft.budget // TASK_SHARE
        return self.history.must_stay(self.draft.keep_recent, self.task, len(self.history), most)

    def memory(self, kind: type[State]) -> State:
        """Return the state that a strategy keeps for this conversation: an instance of `kind`, created on first use."""
        if kind not in self._kept:
            self._kept[kind] = kind()
        return cast("State", self._kept[kind])

    def step(self, _before: Note, number: int) -> Note:
        """Return the note of the strategy on an exchange."""
        return self._stage.note(self, number)

    def chosen(self, end: int) -> Draft:
        """Return the draft with the exchanges that are kept. Only the first `end` exchanges are judged."""
        choice = self._stage.choose(self, end)
        return self.draft if choice is None else _keep_chosen(choice, self, self._stage.name)


class Keep(Generic[Note]):
    """Keeps the exchanges that a function chooses, the mandatory ones, and the newest ones, which wait to be judged.

    Args:
        choose: Function that takes the conversation and the number of exchanges to judge, and returns a `Choice`, or
            None to keep everything. It must depend on the history alone.
        note: Function that takes the conversation and the index of an exchange, and returns the strategy's note on it.
            `note` is called once for each exchange, in order, so that `choose` need not read all texts again.
        every: Number of new exchanges that are judged together. As long as there are fewer, all of them are kept. In
            long histories, the number doubles as the length of the history does, up to 2% of its exchanges.
        name: Name of the stage in reports.

    Raises:
        ConfigError: If `every` is not a whole number of at least 1.
    """

    part = "fit"

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
        """Judge all messages now, and return those that are kept.

        First, calls without a result and results without a call are repaired (see `RepairExchanges`). The input is not
        changed.

        Raises:
            HistoryError: If an item is not an artifact, such as a message of a framework.
        """
        history = require_artifacts(messages)
        settings = CallSettings(UNLIMITED, ArtifactCounter(find_counter("auto")), keep_recent=1)
        draft = RepairExchanges()(Draft(history, settings, history=history))
        past = self._past(draft)
        past.notes += [past.current()] if len(past.history) else []  # nothing more arrives
        return list(past.chosen(len(past.history)).artifacts)

    def __call__(self, draft: Draft, /) -> Draft:
        """Return the draft with the exchanges that are kept. Only the exchanges before the latest step are judged."""
        past = self._past(draft)
        return past.chosen(_step(len(past.notes), self.every))

    def _past(self, draft: Draft) -> Past[Note]:
        # A strategy may keep anything, so nothing of it can be taken back.
        if not draft.memory.is_continued(draft.artifacts):
            draft.memory.clear()
        past = draft.memory.of((self, draft.masking.masks), lambda: Past(self, draft))
        past.draft = draft
        past.extend(draft.artifacts)
        return past


def _step(end: int, every: int) -> int:
    """Return how many of `end` exchanges are judged: a multiple of the step size, which grows with the history."""
    step = every << max(0, (end // (_WIDENING * every)).bit_length() - 1)
    return end // step * step


def _keep_chosen(choice: Choice, past: Past[Note], name: str) -> Draft:
    """Return the draft with the chosen and the mandatory exchanges."""
    draft, history = past.draft, past.history
    kept = {*choice.stays, *past.mandatory, *range(choice.point, len(history))}
    # A context has to begin with a user message, so the message that opened the turn is kept as well.
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
        result = result.revise(artifacts, action="summarised", reason="represents the messages that were dropped")
    if choice.runs:
        lasts = {id(draft.artifacts[history.spans[run[-1]].end - 1]): len(run) for run in choice.runs}
        noted = [_add_count(a, lasts[id(a)], draft) if id(a) in lasts else a for a in result.artifacts]
        result = result.revise(noted, action="bounded", reason="represents several similar messages")
    return result if choice.details is None else result.noted({name: choice.details})


def _add_count(artifact: Artifact, times: int, draft: Draft) -> Artifact:
    """Return the last artifact of a run with a note of how many similar exchanges the run contains."""
    note = draft.mask(f"[the same {times} times in a row, the last one shown]")
    if isinstance(artifact.content, str):
        return artifact.revised(content=f"{artifact.content}\n{note}")
    # Content parts of assistant messages may be signed, and the note would become part of the model's own text.
    if artifact.kind is Kind.ASSISTANT:
        return artifact
    after = count(1 - sum(part.text is not None and part.editable for part in artifact.content))
    return artifact.edit(lambda slot, text: f"{text}\n{note}" if slot == "content" and not next(after) else text)
