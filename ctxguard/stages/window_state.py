"""The state of a window after some of the exchanges of a history, and the token counts of exchanges."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Final

from ctxguard.artifacts import Artifact
from ctxguard.draft import Action, Draft, LeftOut
from ctxguard.history import History
from ctxguard.stages.calibration import Calibration
from ctxguard.stages.trail import Trail

LATEST: Final = 4
"""Number of latest cuts that a window remembers, and of latest model calls that are examined to detect cuts in close
succession."""


@dataclass(frozen=True, slots=True)
class Shortened:
    """A changed copy of an artifact that is sent in its place: shortened, or masked again.

    Attributes:
        artifact: The changed copy.
        tokens: Number of tokens in the copy.
        reason: Why the copy replaces the artifact, for the report.
        action: What was done to the artifact, for the report.
    """

    artifact: Artifact
    tokens: int
    reason: str
    action: Action = "bounded"


@dataclass(frozen=True, slots=True)
class WindowState:
    """The state of a window after some of the exchanges. Exchanges are given by their index in the history.

    Attributes:
        seen: Number of exchanges processed so far.
        kept: The exchanges that the last cut kept, in order. All exchanges after the last cut are kept, too.
        shortened: Changed copies of kept artifacts, by position in the history.
        cuts: The latest exchanges that caused a cut, oldest first, at most 4 of them.
        left_at: The latest exchange at whose arrival a message with recalled exchanges was removed; -1 if none was.
            This changes the prompt as a cut does.
        fixed: Number of tokens that are never evicted: tool schemas and other overhead, and the system prompt, task,
            and pins among the exchanges so far.
        authority: Number of system and task artifacts whose tokens `fixed` includes.
        tokens: Number of tokens in all other kept exchanges and in the trail.
        calibration: How the token counts that the provider reported compare with ours.
        settled: Number of exchanges from the beginning to which the model has replied. Their outputs are no longer new.
        trail: The steps of evicted exchanges. If the history is a stored result, the steps of the trail in it are
            included.
        note: The message with the text of the trail; None if nothing was evicted, or if that message does not fit.
        told: Number of evicted steps that `note` lists.
        recalled: What was recalled after the last cut: one item for each message with recalled exchanges, in order.
    """

    seen: int = 0
    kept: tuple[int, ...] = ()
    shortened: Mapping[int, Shortened] = field(default_factory=dict)
    cuts: tuple[int, ...] = ()
    left_at: int = -1
    fixed: int = 0
    authority: int = 0
    tokens: int = 0
    calibration: Calibration = field(default_factory=Calibration)
    settled: int = 0
    trail: Trail = field(default_factory=Trail)
    note: Artifact | None = None
    told: int = 0
    recalled: tuple[LeftOut, ...] = ()

    def with_blocks(self, blocks: tuple[LeftOut, ...], number: int) -> WindowState:
        """Return the state that keeps only the recalled messages `blocks`. The others leave at exchange `number`."""
        left_at = self.left_at if blocks == self.recalled else number
        return replace(self, recalled=blocks, left_at=left_at)

    @property
    def cut_at(self) -> int | None:
        """Index of the exchange that caused the last cut; None before the first cut."""
        return self.cuts[-1] if self.cuts else None

    @property
    def judged(self) -> int:
        """Number of exchanges up to the one that caused the last cut, including that one; 0 before the first cut."""
        return 0 if self.cut_at is None else self.cut_at + 1

    @property
    def total(self) -> int:
        """Number of tokens in the whole request."""
        return self.fixed + self.tokens + self.for_recall

    @property
    def for_recall(self) -> int:
        """Number of tokens reserved for messages that repeat recalled exchanges."""
        return sum(left.tokens for left in self.recalled)

    @property
    def shown(self) -> set[int]:
        """Indexes of the evicted exchanges that recalled messages repeat."""
        return {number for left in self.recalled for number in left.found}

    def numbers(self) -> Iterator[int]:
        """Yield the indexes of the kept exchanges, in order."""
        return chain(self.kept, range(self.judged, self.seen))


class Ledger:
    """Counts the tokens of a window's exchanges, and knows which exchanges are never evicted.

    Args:
        draft: A draft with the settings of the conversation.
        history: The exchanges of the conversation.

    Attributes:
        task: Index in the history of the exchange with the user message that is kept as the task; None if there is none
            yet.
    """

    def __init__(self, draft: Draft, history: History) -> None:
        self.draft = draft
        self.history = history
        self.task: int | None = None

    def stays(self, number: int) -> bool:
        """Return whether an exchange is the task or pinned. Such an exchange is never evicted."""
        return number == self.task or self.history.spans[number].is_pinned

    def budget(self, state: WindowState) -> int:
        """Return the budget in tokens as we count them. It is smaller if the provider counts more tokens than we do."""
        return int(self.whole_budget(state) / state.calibration.correction)

    def whole_budget(self, state: WindowState) -> int:
        """Return the budget. Once the provider has reported a count, the headroom that this releases is added."""
        # Headroom covers the error of estimated counts, which is smaller with counts reported by the provider.
        return self.draft.budget + (self.draft.settings.regained if state.calibration.latest else 0)

    def positions(self, number: int) -> range:
        """Return the positions in the history of the artifacts of an exchange."""
        span = self.history.spans[number]
        return range(span.start, span.end)

    def tokens(self, number: int, shortened: Mapping[int, Shortened]) -> int:
        """Return the number of tokens in an exchange, some of whose artifacts are replaced by those in `shortened`."""
        return sum(self.tokens_at(p, shortened) for p in self.positions(number))

    def tokens_at(self, position: int, shortened: Mapping[int, Shortened]) -> int:
        """Return the number of tokens in the artifact at a position, as it is sent."""
        return shortened[position].tokens if position in shortened else self.history.costs[position]

    def artifact(self, state: WindowState, position: int) -> Artifact:
        """Return the artifact at a position, as it is sent."""
        shorter = state.shortened.get(position)
        return self.history.artifacts[position] if shorter is None else shorter.artifact

    def with_kept(self, state: WindowState, kept: Iterable[int]) -> WindowState:
        """Return the state that keeps only the exchanges `kept`, with `shortened` and `tokens` updated.

        Use it only in a cut, because it assumes that no exchanges follow those in `kept`.
        """
        numbers = tuple(kept)
        staying = self.history.authority[: state.authority]
        positions = {*staying, *(p for n in numbers for p in self.positions(n))} if state.shortened else ()
        shortened = {p: short for p, short in state.shortened.items() if p in positions}
        tokens = sum(self.tokens(n, shortened) for n in numbers if not self.stays(n))
        tokens += 0 if state.note is None else self.draft.counter.artifact(state.note)
        return replace(state, kept=numbers, shortened=shortened, tokens=tokens)
