"""Fit a history into the budget so that prompts keep their prefix: cut rarely, cut deep, stay there.

The window takes the exchanges in one by one. When one more does not fit, exchanges leave until only `target` of the
budget is taken, and it stays so until the budget is hit again. It looks at nothing but the history, so every call
repeats the decisions of the calls before it, and prompts only grow between two cuts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Final

from ctxguard.artifacts import Artifact, Kind
from ctxguard.draft import Draft, Follower, LeftOut, StageResult, follow
from ctxguard.errors import BudgetExceededError, ConfigError
from ctxguard.history import AUTHORITY, RECALLED, History, record_title
from ctxguard.stages.calibration import Calibration
from ctxguard.stages.squeezing import squeezed_to, water_level

__all__ = ["StableWindow"]

_FLOORS: Final = (64, 24, 8)
"""Tokens that texts are squeezed down to, step by step, where what must stay does not fit."""
_RECORD_SHARE: Final = 4
"""A record is kept unless it takes more than a quarter of the budget."""


class StableWindow:
    """Drop the oldest exchanges when the budget is hit, down to `target`, and stay there until the next hit.

    System, task, pins, the user message that opened the turn, the latest messages and the last exchange stay. Where
    these alone exceed the budget, their tool outputs are squeezed, then arguments and texts, the last user message
    never. Where there is room the newest record (summary, checkpoint) of at most a quarter of the budget stays, too.

    Args:
        target: share of the budget that a cut frees down to, above 0 and at most 1.
        reserve: share of what system, task and pins leave of the budget that is kept free for what a later stage
            brings back (`RecallRelevant`), from the first cut on.

    Raises:
        ConfigError: `target` or `reserve` is out of range.
        BudgetExceededError: (when called) what must stay does not fit even so.
    """

    name = "StableWindow"

    def __init__(self, *, target: float = 0.6, reserve: float = 0.0) -> None:
        if not 0 < target <= 1:
            raise ConfigError(f"target is a share of the budget above 0 and at most 1, not {target}", setting="target")
        if not 0 <= reserve < 1:
            raise ConfigError(f"reserve is a share of at least 0 and below 1, not {reserve}", setting="reserve")
        self.target = target
        self.reserve = reserve

    def __call__(self, draft: Draft, /) -> StageResult:
        """Return the new draft."""
        return follow(self, draft)

    def begin(self, draft: Draft, /) -> Follower:
        """Return the window of one conversation."""
        return _Window(draft, self.target, self.reserve)


@dataclass(frozen=True, slots=True)
class _State:
    """Hold a window after so many exchanges.

    Attributes:
        seen: exchanges that were taken in.
        kept: numbers of those that stayed at the last cut; all later ones stay.
        shortened: artifacts that were made smaller, by their position.
        cut_at: number of the exchange that hit the budget last; None before the first cut.
        fixed: tokens of what never leaves: overhead, system, task and pins so far.
        authority: system and task artifacts counted in it.
        tokens: tokens of all else that has not left.
        calibration: what the counts that the provider reported say about ours.
        at_turn: what had stayed when the last user message came, up to which exchange, and the tokens kept free for
            what is brought back; later cuts do not change it.
    """

    seen: int = 0
    kept: tuple[int, ...] = ()
    shortened: Mapping[int, Artifact] = field(default_factory=dict)
    cut_at: int | None = None
    fixed: int = 0
    authority: int = 0
    tokens: int = 0
    calibration: Calibration = field(default_factory=Calibration)
    at_turn: tuple[tuple[int, ...], int, int] = ((), 0, 0)

    @property
    def judged(self) -> int:
        """Exchanges that the last cut decided on."""
        return 0 if self.cut_at is None else self.cut_at + 1

    def numbers(self) -> Iterator[int]:
        """Walk the exchanges that have not left, in order."""
        return chain(self.kept, range(self.judged, self.seen))


class _Window:
    """Follow one conversation. The last exchange may still grow, so it is taken in anew by each call."""

    def __init__(self, draft: Draft, target: float, reserve: float) -> None:
        self.draft = draft
        self.target = target
        self.reserve = reserve
        self.history = History(draft.counter.artifact)
        self._state = _State(fixed=draft.overhead)
        self._task: int | None = None

    def take(self, artifacts: Sequence[Artifact]) -> None:
        """Take in what comes next."""
        self.history.extend(artifacts)
        if self._task is None and self.draft.keep_task:
            self._task = self.history.task(self.draft.budget)
        while self._state.seen < len(self.history) - 1:
            self._state = self._taken(self._state)

    def result(self, draft: Draft) -> Draft:
        """Return the draft that the window leaves.

        Raises:
            BudgetExceededError: what must stay does not fit.
        """
        self.draft = draft
        state = self._ended()
        total = self._total(state)
        if total > self._whole_budget(state):
            raise self._exceeded(state)
        return self._drafted(draft, state)

    def _ended(self) -> _State:
        """Return the state with everything in it, the last exchange and what has authority behind it."""
        state = self._taken(self._state) if len(self.history) else self._state
        state = self._with_authority(state, len(self.history.artifacts))
        if self._total(state) > self._limit(state) and len(self.history):
            state = self._cut(state, len(self.history) - 1)
        return state

    # -- one exchange after the other

    def _taken(self, state: _State) -> _State:
        """Return the state with one more exchange, cut if that does not fit."""
        number, span = state.seen, self.history.spans[state.seen]
        state = self._with_authority(state, span.start)
        state = self._calibrated(state, span.start)
        stays = self._stays(number)
        state = replace(
            state,
            seen=number + 1,
            fixed=state.fixed + span.tokens * stays,
            tokens=state.tokens + span.tokens * (not stays),
        )
        if self._total(state) > self._limit(state):
            state = self._cut(state, number)
        if span.is_asked:
            state = replace(state, at_turn=(state.kept, state.judged, self._reserved(state)))
        return state

    def _with_authority(self, state: _State, position: int) -> _State:
        """Return the state with the system and task artifacts that stand before a position counted."""
        history, counted = self.history, state.authority
        while counted < len(history.authority) and history.authority[counted] < position:
            counted += 1
        if counted == state.authority:
            return state
        tokens = sum(history.costs[p] for p in history.authority[state.authority : counted])
        return replace(state, authority=counted, fixed=state.fixed + tokens)

    def _calibrated(self, state: _State, position: int) -> _State:
        reported = self.history.artifacts[position].reported
        if reported is None or not self.draft.calibrate:
            return state
        calibration = state.calibration.compared(reported, self._total(state), self.draft.budget)
        return replace(state, calibration=calibration)

    def _stays(self, number: int) -> bool:
        return number == self._task or self.history.spans[number].is_pinned

    def _total(self, state: _State) -> int:
        return state.fixed + state.tokens

    def _budget(self, state: _State) -> int:
        """Return the budget in our tokens: fewer of them where the provider counts more."""
        return int(self._whole_budget(state) / state.calibration.correction)

    def _whole_budget(self, state: _State) -> int:
        """Return the budget with what comes back of the margin once the provider's counts are known."""
        return self.draft.budget + (self.draft.regained if state.calibration.latest else 0)

    def _reserved(self, state: _State) -> int:
        """Return the tokens kept free for what is brought back; a function of what came before alone."""
        return int(self.reserve * max(0, self._budget(state) - state.fixed))

    def _limit(self, state: _State) -> int:
        """Return the tokens that may be taken: all of the budget until there is something to bring back."""
        return self._budget(state) - (0 if state.cut_at is None else self._reserved(state))

    # -- a cut

    def _cut(self, state: _State, number: int) -> _State:
        """Let exchanges leave down to the goal, as far as what must stay allows; squeeze where that is not enough."""
        goal = int(self.target * (self._budget(state) - self._reserved(state)))
        there = dict.fromkeys(state.numbers())
        tokens = state.tokens
        for leaving in self._leaving(list(there), number):
            if state.fixed + tokens <= goal and not self._starts_badly(there):
                break
            del there[leaving]
            tokens -= self._tokens(state, leaving)
        state = replace(
            state,
            kept=tuple(there),
            shortened=self._still_there(state.shortened, there),
            tokens=tokens,
            cut_at=number,
            calibration=state.calibration.after_cut(),
        )
        return self._squeezed(state, number) if self._total(state) > self._limit(state) else state

    def _leaving(self, there: Sequence[int], number: int) -> Iterator[int]:
        """Walk the exchanges that may leave, the oldest first; a user message behind the other exchanges of its turn.

        So the context begins with a user message also where a cut falls inside a turn.
        """
        history, keep = self.history, self.draft.keep_recent
        if len(history.latest_messages(keep, number + 1)) < keep:
            return  # everything so far counts as recent
        stay = {*history.must_stay(keep, self._task, number + 1), self._newest_record(there, number)}
        opener: int | None = None
        for other in there:
            if history.spans[other].is_asked:
                if opener is not None:
                    yield opener
                opener = None if other in stay else other
            elif other not in stay:
                yield other
            elif not self._stays(other) and not history.spans[other].has_user_role:
                opener = None  # it opened the turn of what has to stay

    def _still_there(self, shortened: Mapping[int, Artifact], there: Iterable[int]) -> dict[int, Artifact]:
        spans = self.history.spans
        positions = {p for n in there for p in range(spans[n].start, spans[n].end)} if shortened else ()
        return {position: artifact for position, artifact in shortened.items() if position in positions}

    def _newest_record(self, there: Sequence[int], number: int) -> int | None:
        """Return the newest summary or checkpoint before an exchange: what it stands for is nowhere else."""
        for other in reversed(there):
            span = self.history.spans[other]
            if other < number and self._is_record(other) and span.tokens * _RECORD_SHARE <= self.draft.budget:
                return other
        return None

    def _is_record(self, number: int) -> bool:
        span = self.history.spans[number]
        if span.is_asked or not span.has_user_role:
            return False
        return record_title(self.history.artifacts[span.start]) != RECALLED

    def _starts_badly(self, there: Iterable[int]) -> bool:
        """Tell whether what stays of the exchanges would begin with something else than a user message."""
        first = next((n for n in there if not self._stays(n)), None)
        if first is None or self.history.spans[first].has_user_role:
            return False
        return self.history.opener(first) is None

    def _tokens(self, state: _State, number: int) -> int:
        """Return what an exchange costs now."""
        span = self.history.spans[number]
        count, costs = self.draft.counter.artifact, self.history.costs
        saved = sum(costs[p] - count(a) for p, a in state.shortened.items() if span.start <= p < span.end)
        return span.tokens - saved

    # -- squeezing, where what must stay does not fit

    def _squeezed(self, state: _State, number: int) -> _State:
        """Make texts smaller, tool outputs first, until it fits or nothing is left to give."""
        history = self.history
        kept = [n for n in state.numbers() if not self._stays(n)]
        positions = [p for n in kept for p in range(history.spans[n].start, history.spans[n].end)]
        last = history.last_asked(number + 1)
        last_user = None if last is None else history.spans[last].start
        kinds = {p: history.artifacts[p].kind for p in positions}
        tools = [p for p in positions if kinds[p] is Kind.TOOL]
        spoken = [p for p in positions if kinds[p] is Kind.ASSISTANT]
        asked = [p for p in positions if kinds[p] is Kind.USER and p != last_user]
        state = self._shrunk(state, tools, _FLOORS[:2])
        if self._total(state) > self._limit(state):
            state = self._without(state, self._records(state, number))
        state = self._without(state, self._openers(state, number, only_media=True))
        for group in (spoken, asked, tools):
            state = self._shrunk(state, group, _FLOORS)
        return self._without(state, self._openers(state, number, only_media=False))

    def _without(self, state: _State, numbers: Iterable[int]) -> _State:
        """Return the state without exchanges that may leave where nothing else helps."""
        for number in numbers:
            if self._total(state) > self._budget(state):
                tokens = state.tokens - self._tokens(state, number)
                kept = tuple(n for n in state.kept if n != number)
                state = replace(state, kept=kept, tokens=tokens)
        return state

    def _records(self, state: _State, number: int) -> list[int]:
        stay = (number, self.history.last_user(number + 1))
        return [n for n in state.kept if n not in stay and not self._stays(n) and self._is_record(n)]

    def _openers(self, state: _State, number: int, *, only_media: bool) -> list[int]:
        """Return the message that opened the turn of what is kept, where the task starts the context without it."""
        history = self.history
        first = next((n for n in state.kept if not self._stays(n)), number)
        if not history.spans[first].is_asked or first == history.last_asked(number + 1):
            return []
        if self._task is None or (only_media and not _holds_media(history.artifacts[history.start(first)])):
            return []
        return [first]

    def _shrunk(self, state: _State, positions: list[int], floors: Iterable[int]) -> _State:
        for floor in floors:
            excess = self._total(state) - self._limit(state)
            if excess > 0:
                state = self._capped(state, positions, excess, floor)
        return state

    def _capped(self, state: _State, positions: list[int], excess: int, floor: int) -> _State:
        """Return the state with texts cut to one size, so that they take `excess` tokens less if they can."""
        count = self.draft.counter.artifact
        now = {p: state.shortened.get(p, self.history.artifacts[p]) for p in positions}
        sizes = {p: count(artifact) for p, artifact in now.items()}
        cap = water_level(sizes.values(), sum(sizes.values()) - excess, floor)
        shortened, tokens = dict(state.shortened), state.tokens
        for position in positions:
            if sizes[position] > cap:
                smaller = squeezed_to(now[position], cap, self.draft, is_open=self._is_open(position))
                saved = sizes[position] - count(smaller)
                if saved > 0:
                    shortened[position] = smaller
                    tokens -= saved
        return replace(state, shortened=shortened, tokens=tokens)

    def _is_open(self, position: int) -> bool:
        """Tell whether the calls of an artifact still wait for results; such arguments are never touched."""
        artifacts = self.history.artifacts
        calls = artifacts[position].calls
        following = artifacts[position + 1 : position + 1 + len(calls)]
        return bool(calls) and sum(a.kind is Kind.TOOL for a in following) < len(calls)

    # -- the result

    def _kept(self, state: _State) -> Iterator[tuple[int, Artifact]]:
        """Walk what stays, in order, with its position."""
        spans, artifacts = self.history.spans, self.history.artifacts
        positions = [p for n in state.numbers() for p in range(spans[n].start, spans[n].end)]
        for position in sorted([*self.history.authority, *positions]):
            yield position, state.shortened.get(position, artifacts[position])

    def _drafted(self, draft: Draft, state: _State) -> Draft:
        details = state.calibration.told()
        if details:
            details_now = {**draft.details, "calibration": details}
            draft = replace(draft, budget=draft.budget + draft.regained, regained=0, details=details_now)
        if state.cut_at is None:
            return draft
        kept = [artifact for _, artifact in self._kept(state)]
        smaller = (draft.artifacts[p] for p in state.shortened)
        squeezed = {id(artifact): "what must stay did not fit" for artifact in smaller}
        left = LeftOut(self.history, *state.at_turn) if self.reserve else draft.left_out
        fitted = draft.revise(kept, action="bounded", reason=squeezed, otherwise="older than the window")
        return replace(fitted, cut_at=self.history.start(state.cut_at), left_out=left)

    def _exceeded(self, state: _State) -> BudgetExceededError:
        draft, history, count = self.draft, self.history, self.draft.counter.artifact
        last_asked = history.last_asked(len(history))
        names = ("system", "task", "pinned", "last user message", "last exchange", "recent messages")
        parts = dict.fromkeys((*names, "tools and framing"), 0)
        parts["tools and framing"] = draft.overhead
        last, last_start = len(history) - 1, history.start(max(0, len(history) - 1))
        starts = {history.spans[n].start: n for n in (self._task, last_asked) if n is not None}
        for position, artifact in self._kept(state):
            if artifact.kind in AUTHORITY:
                name = artifact.kind.value
            elif starts.get(position, -1) == self._task:
                name = "task"
            elif artifact.pinned:
                name = "pinned"
            elif position in starts:
                name = "last user message"
            else:
                name = "last exchange" if last >= 0 and position >= last_start else "recent messages"
            parts[name] += count(artifact)
        return BudgetExceededError(sum(parts.values()), draft.budget, parts)


def _holds_media(artifact: Artifact) -> bool:
    return not isinstance(artifact.content, str) and any(part.tokens is not None for part in artifact.content)
