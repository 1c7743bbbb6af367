"""The state of a window after a number of exchanges, and the token costs of its exchanges."""

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
"""Cuts that a window remembers, and model calls that are examined, to detect cuts in a row."""


@dataclass(frozen=True, slots=True)
class Shortened:
    """A shorter form of an artifact, or one that was masked again.

    Attributes:
        artifact: the form that is sent.
        tokens: its token cost.
        reason: why it replaces the whole artifact, for the report.
        action: the action that the report names.
    """

    artifact: Artifact
    tokens: int
    reason: str
    action: Action = "bounded"


@dataclass(frozen=True, slots=True)
class WindowState:
    """A window after a number of exchanges.

    Attributes:
        seen: number of exchanges taken in.
        kept: numbers of the exchanges that the last cut kept; all later ones are kept.
        shortened: artifacts that are sent in a shorter form, or masked again, by their position.
        cuts: numbers of the latest exchanges that hit the budget, oldest first, at most `LATEST`.
        left_at: number of the latest exchange at which recalled blocks left, which changes the prompt as a cut does.
        fixed: tokens that are never evicted: overhead, system, task and pins so far.
        authority: number of system and task artifacts counted in it.
        tokens: tokens of all other kept exchanges, including the trail.
        calibration: how the provider's reported counts compare with ours.
        settled: exchanges that the model has replied to: their outputs are no longer new.
        trail: the evicted steps, including those of an earlier trail if the history is a stored result.
        note: the message that lists them; None if there are none, or it does not fit.
        told: how many of the evicted steps it lists.
        recalled: what was recalled since the last cut, one for each block, in order.
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
        """Return the state at an exchange with these of its recalled blocks."""
        left_at = self.left_at if blocks == self.recalled else number
        return replace(self, recalled=blocks, left_at=left_at)

    @property
    def cut_at(self) -> int | None:
        """Number of the exchange that hit the budget last; None before the first cut."""
        return self.cuts[-1] if self.cuts else None

    @property
    def judged(self) -> int:
        """Exchanges that the last cut decided on."""
        return 0 if self.cut_at is None else self.cut_at + 1

    @property
    def total(self) -> int:
        """Tokens of everything that is sent."""
        return self.fixed + self.tokens + self.for_recall

    @property
    def for_recall(self) -> int:
        """Tokens reserved for recalled exchanges."""
        return sum(left.tokens for left in self.recalled)

    @property
    def shown(self) -> set[int]:
        """Numbers of the evicted exchanges that blocks show."""
        return {number for left in self.recalled for number in left.found}

    def numbers(self) -> Iterator[int]:
        """Yield the numbers of the kept exchanges, in order."""
        return chain(self.kept, range(self.judged, self.seen))


class Ledger:
    """The token costs of the exchanges of a window, and which of them are never evicted.

    Args:
        draft: its settings hold for the conversation.
        history: the model of the conversation.

    Attributes:
        task: number of the user message that is kept as the task; None if there is none yet.
    """

    def __init__(self, draft: Draft, history: History) -> None:
        self.draft = draft
        self.history = history
        self.task: int | None = None

    def stays(self, number: int) -> bool:
        """Return whether an exchange is never evicted: the task, and pins."""
        return number == self.task or self.history.spans[number].is_pinned

    def budget(self, state: WindowState) -> int:
        """Return the budget in tokens as we count them, which are fewer if the provider counts more."""
        return int(self.whole_budget(state) / state.calibration.correction)

    def whole_budget(self, state: WindowState) -> int:
        """Return the budget, including the headroom that is released once the provider's counts are known."""
        # Headroom compensates for estimated counts; with counts of the provider, less of it is needed.
        return self.draft.budget + (self.draft.settings.regained if state.calibration.latest else 0)

    def positions(self, number: int) -> range:
        """Return the positions of the artifacts of an exchange."""
        span = self.history.spans[number]
        return range(span.start, span.end)

    def tokens(self, number: int, shortened: Mapping[int, Shortened]) -> int:
        """Return the token cost of an exchange with some artifacts shortened."""
        return sum(self.tokens_at(p, shortened) for p in self.positions(number))

    def tokens_at(self, position: int, shortened: Mapping[int, Shortened]) -> int:
        """Return the token cost of an artifact in the form that is sent."""
        return shortened[position].tokens if position in shortened else self.history.costs[position]

    def artifact(self, state: WindowState, position: int) -> Artifact:
        """Return an artifact in the form that is sent."""
        shorter = state.shortened.get(position)
        return self.history.artifacts[position] if shorter is None else shorter.artifact

    def with_kept(self, state: WindowState, kept: Iterable[int]) -> WindowState:
        """Return the state that keeps exactly these of the exchanges before the cut, with its tokens recounted."""
        numbers = tuple(kept)
        staying = self.history.authority[: state.authority]
        positions = {*staying, *(p for n in numbers for p in self.positions(n))} if state.shortened else ()
        shortened = {p: short for p, short in state.shortened.items() if p in positions}
        tokens = sum(self.tokens(n, shortened) for n in numbers if not self.stays(n))
        tokens += 0 if state.note is None else self.draft.counter.artifact(state.note)
        return replace(state, kept=numbers, shortened=shortened, tokens=tokens)
