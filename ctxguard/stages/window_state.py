"""What a window is after so many exchanges, and what it costs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Final

from ctxguard.artifacts import Artifact
from ctxguard.draft import Action, Draft
from ctxguard.history import History
from ctxguard.stages.calibration import Calibration
from ctxguard.stages.trail import Trail

LATEST_CUTS: Final = 8
"""Cuts that a window remembers, to tell when they come in a row."""


class Deferred:
    """Stand for an artifact that is made when it is first needed, and counted meanwhile with all it may take.

    A call on a whole history plays every cut of the past, and sends what the last of them left: digests and trails of
    the others are never written.

    Args:
        tokens: that the artifact takes at most.
        make: makes the artifact; a pure function.
        action: what the report says was done: `digested`, `bounded`, or `masked` where only names were hidden in it
            that had become known.
    """

    def __init__(self, tokens: int, make: Callable[[], Artifact], action: Action = "bounded") -> None:
        self.tokens = tokens
        self.action: Action = action
        self._make = make
        self._made: Artifact | None = None

    @classmethod
    def of(cls, artifact: Artifact, tokens: int, action: Action = "bounded") -> Deferred:
        """Return one that is made already."""
        return cls(tokens, lambda: artifact, action)

    @property
    def artifact(self) -> Artifact:
        """The artifact; the same object each time."""
        if self._made is None:
            self._made = self._make()
        return self._made


@dataclass(frozen=True, slots=True)
class WindowState:
    """Hold a window after so many exchanges.

    Attributes:
        seen: exchanges that were taken in.
        kept: numbers of those that stayed at the last cut; all later ones stay.
        shortened: artifacts that a cut changed, by their position: digests, what was squeezed, what was masked again.
        cuts: numbers of the latest exchanges that hit the budget, oldest first, at most `LATEST_CUTS`.
        fixed: tokens of what never leaves: overhead, system, task and pins so far.
        authority: system and task artifacts counted in it.
        tokens: tokens of all else that has not left, the trail included.
        calibration: what the counts that the provider reported say about ours.
        steps: how many steps had left by the last cut; those of the earlier trail included.
        earlier: the trail that came with the history, of a result that was stored.
        note: the message that tells what has left; None where nothing has, or there is no room for it.
        at_turn: what had stayed when the last user message came, up to which exchange, and the tokens kept free for
            what is brought back; later cuts do not change it.
    """

    seen: int = 0
    kept: tuple[int, ...] = ()
    shortened: Mapping[int, Deferred] = field(default_factory=dict)
    cuts: tuple[int, ...] = ()
    fixed: int = 0
    authority: int = 0
    tokens: int = 0
    calibration: Calibration = field(default_factory=Calibration)
    steps: int = 0
    earlier: Trail = field(default_factory=Trail)
    note: Deferred | None = None
    at_turn: tuple[tuple[int, ...], int, int] = ((), 0, 0)

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
        """Tokens of everything sent."""
        return self.fixed + self.tokens

    def numbers(self) -> Iterator[int]:
        """Walk the exchanges that have not left, in order."""
        return chain(self.kept, range(self.judged, self.seen))


class Ledger:
    """Say what the exchanges of a window cost, and which of them never leave.

    Args:
        draft: its settings hold for the conversation.
        history: the model of the conversation.
        reserve: share of what is not fixed that is kept free for what a later stage brings back.

    Attributes:
        task: number of the user message that stays as the task; None as long as there is none.
    """

    def __init__(self, draft: Draft, history: History, reserve: float) -> None:
        self.draft = draft
        self.history = history
        self.reserve = reserve
        self.task: int | None = None

    def stays(self, number: int) -> bool:
        """Tell whether an exchange never leaves: the task, and pins."""
        return number == self.task or self.history.spans[number].is_pinned

    def budget(self, state: WindowState) -> int:
        """Return the budget in our tokens: fewer of them where the provider counts more."""
        return int(self.whole_budget(state) / state.calibration.correction)

    def whole_budget(self, state: WindowState) -> int:
        """Return the budget with what comes back of the margin once the provider's counts are known."""
        # The margin was kept free because counts are estimates; once the provider has counted, it is not needed.
        return self.draft.budget + (self.draft.regained if state.calibration.latest else 0)

    def reserved(self, state: WindowState) -> int:
        """Return the tokens kept free for what is brought back; a function of what came before alone."""
        return int(self.reserve * max(0, self.budget(state) - state.fixed))

    def limit(self, state: WindowState) -> int:
        """Return the tokens that may be taken: all of the budget until there is something to bring back."""
        # Before the first cut there is nothing to bring back, and nothing to keep free for it.
        return self.budget(state) - (0 if state.cut_at is None else self.reserved(state))

    def positions(self, number: int) -> range:
        """Return the positions of the artifacts of an exchange."""
        span = self.history.spans[number]
        return range(span.start, span.end)

    def tokens(self, number: int, shortened: Mapping[int, Deferred]) -> int:
        """Return what an exchange costs at most with some artifacts shortened."""
        return sum(self.tokens_at(p, shortened) for p in self.positions(number))

    def tokens_at(self, position: int, shortened: Mapping[int, Deferred]) -> int:
        """Return what an artifact costs at most."""
        return shortened[position].tokens if position in shortened else self.history.costs[position]

    def artifact(self, state: WindowState, position: int) -> Artifact:
        """Return an artifact as it stands in the window."""
        shorter = state.shortened.get(position)
        return self.history.artifacts[position] if shorter is None else shorter.artifact

    def sent(self, state: WindowState) -> int:
        """Return the tokens of everything sent; `state.total` is what they may be at most."""
        count = self.draft.counter.artifact
        made = [*state.shortened.values(), *([] if state.note is None else [state.note])]
        return state.total - sum(deferred.tokens - count(deferred.artifact) for deferred in made)

    def with_kept(self, state: WindowState, kept: Iterable[int]) -> WindowState:
        """Return the state that keeps exactly these exchanges of those before the cut, its tokens counted anew."""
        numbers = tuple(kept)
        staying = self.history.authority[: state.authority]
        positions = {*staying, *(p for n in numbers for p in self.positions(n))} if state.shortened else ()
        shortened = {p: deferred for p, deferred in state.shortened.items() if p in positions}
        tokens = sum(self.tokens(n, shortened) for n in numbers if not self.stays(n))
        tokens += 0 if state.note is None else state.note.tokens
        return replace(state, kept=numbers, shortened=shortened, tokens=tokens)
