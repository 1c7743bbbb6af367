"""Fit a history into the budget so that prompts keep their prefix: cut rarely, cut deep, stay there.

The window takes the exchanges in one by one. When one more does not fit, it is cut, graded (see `cutting`), until only
`target` of the room is taken, and it stays so until the budget is hit again. It looks at nothing but the history, so
every call repeats the decisions of the calls before it, and prompts only grow between two cuts.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Literal

from ctxguard.artifacts import Artifact, Kind
from ctxguard.draft import Action, Ask, Draft, Follower, LeftOut, StageResult, follow
from ctxguard.errors import BESIDE, BudgetExceededError, ConfigError
from ctxguard.history import AUTHORITY, History
from ctxguard.settings import opened
from ctxguard.stages.bound_tool_output import NAMESPACE
from ctxguard.stages.cutting import WEIGHTS, Cutter, WindowSettings
from ctxguard.stages.squeezing import Squeezer
from ctxguard.stages.window_state import Ledger, WindowState

if TYPE_CHECKING:
    from ctxguard.stores import Store

OnOverflow = Literal["raise", "bound"]
_LATEST_CALLS: Final = 4
"""Calls of the model over which the report counts cuts."""
_BOUNDED: Final = "BoundToolOutput"
"""The stage whose input the trail and digests are made from: full outputs tell more than bounded ones."""

_WHY: Final[Mapping[Action, str]] = {
    "digested": "old when the budget was hit",
    "masked": "holds a name that became known",
    "bounded": "what must stay did not fit",
}


class StableWindow:
    """Cut when the budget is hit, down to `target`, and stay there until the next hit.

    A cut frees in this order and stops as soon as it has freed enough: old tool outputs become digests, then the large
    arguments of old calls, then whole exchanges leave, the least useful for their tokens first: those that are old and
    large, tool steps before what people said. What has left stands on the trail: one message behind the task, a line
    for each step, the newest in most detail, in at most `trail` of the room. The room is what system, task, pins and
    the last user message leave of the budget. These stay as they are, and so do the last exchange, the `keep_recent`
    latest messages, and the newest record (summary, checkpoint) of at most a quarter of the budget. Where they alone
    exceed the budget, their tool outputs are squeezed, then arguments and older texts.

    Args:
        target: share of the room that a cut frees down to, above 0 and at most 1. None means 0.35, and more of a
            room that is small (all of it, up to 500 tokens) or large (all but 13,000 tokens, up to 0.6 of it). In a
            room of 3,000 tokens or more, a cut goes deeper where the next two steps would not fit otherwise.
        trail: share of the room that the trail may take, from 0 (none) to below 1, part of what a cut leaves; None
            means 0.7 of that.
        digests: whether outputs and arguments become digests before exchanges leave.
        weights: how much exchanges weigh against leaving, by who begins them: `user`, `assistant`, or `tool` for steps
            that call tools. None means 2, 1 and 1.
        reserve: share of what system, task and pins leave of the budget that is kept free for what a later stage
            brings back (`RecallRelevant`), from the first cut on.
        on_overflow: what happens where what must stay does not fit once outputs, arguments and older texts are
            squeezed: `raise`, or `bound` the last user message and the task, too.
        store: where full texts go; digests and trail then name a handle. None keeps none.

    Raises:
        ConfigError: a setting is out of range.
        BudgetExceededError: (when called) what must stay does not fit even so.
    """

    name = "StableWindow"

    def __init__(
        self,
        *,
        target: float | None = None,
        trail: float | None = None,
        digests: bool = True,
        weights: Mapping[str, float] | None = None,
        reserve: float = 0.0,
        on_overflow: OnOverflow = "raise",
        store: Store | None = None,
    ) -> None:
        self.target = None if target is None else _share(target, "target", "above 0 and at most 1", above=0.0)
        self.trail = None if trail is None else _share(trail, "trail", "from 0 to below 1", least=0.0, below=1.0)
        self.reserve = _share(reserve, "reserve", "of at least 0 and below 1", least=0.0, below=1.0)
        if on_overflow not in ("raise", "bound"):
            raise ConfigError(f"on_overflow is 'raise' or 'bound', not {on_overflow!r}", setting="on_overflow")
        self.digests = bool(digests)
        self.weights = _weights(weights)
        self.on_overflow: OnOverflow = on_overflow
        self.store = opened(store)

    def __call__(self, draft: Draft, /) -> StageResult:
        """Return the new draft."""
        return follow(self, draft)

    def begin(self, draft: Draft, /) -> Follower:
        """Return the window of one conversation."""
        return _Window(self, draft)


class _Window:
    """Follow one conversation. The last exchange may still grow, so it is taken in anew by each call."""

    def __init__(self, stage: StableWindow, draft: Draft) -> None:
        self._stage = stage
        self._history = History(draft.counter.artifact)
        self._ledger = Ledger(draft, self._history, stage.reserve)
        settings = WindowSettings(stage.target, stage.trail, stage.digests, stage.weights, stage.store is not None)
        self._whole: list[Artifact] = []
        self._cutter = Cutter(self._ledger, settings, self._whole)
        handle = None if stage.store is None else self._cutter.handle
        self._squeezer = Squeezer(self._ledger, bounds_people=stage.on_overflow == "bound", handle=handle)
        self._state = WindowState(fixed=draft.overhead)

    def take(self, artifacts: Sequence[Artifact], draft: Draft) -> None:
        """Take in what comes next."""
        begin = len(self._history.artifacts)
        # Digests and trail are made from full outputs: a bounded view has lost names already.
        change = next((c for c in reversed(draft.changes) if c.stage == _BOUNDED), None)
        is_in_step = change is not None and len(change.before) == len(draft.artifacts)
        self._whole += change.before[begin:] if change is not None and is_in_step else artifacts
        self._history.extend(artifacts)
        if self._ledger.task is None and draft.keep_task:
            self._ledger.task = self._history.task(draft.budget)
        # Without the last exchange, which may still grow; `result` adds it to a copy of the state.
        while self._state.seen < len(self._history) - 1:
            self._state = self._taken(self._state)

    def result(self, draft: Draft) -> StageResult:
        """Return the draft that the window leaves, or a generator that stores what it shortened.

        Raises:
            BudgetExceededError: what must stay does not fit.
        """
        state = self._ended()
        # Everything was tried by now: exchanges, records, squeezing.
        if state.total > self._ledger.whole_budget(state):
            raise self._exceeded(draft, state)
        result = self._drafted(draft, state)
        store = self._stage.store
        return result if store is None or draft.dry or not self._cutter.handles else self._stored(result, store)

    def _stored(self, result: Draft, store: Store) -> Generator[Ask, object, Draft]:
        handles = self._cutter.handles
        for handle in list(handles):
            yield Ask(store.put_new, (NAMESPACE, handle, handles[handle].encode("utf-8", "surrogatepass")))
            # Only after it was stored: a write that fails is tried again by the next call.
            del handles[handle]
        return result

    def _ended(self) -> WindowState:
        """Return the state with everything in it, the last exchange and what has authority behind it."""
        state = self._taken(self._state) if len(self._history) else self._state
        state = self._with_authority(state, len(self._history.artifacts))
        if state.total > self._ledger.limit(state) and len(self._history):
            state = self._cut(state, len(self._history) - 1)
        return state

    def _taken(self, state: WindowState) -> WindowState:
        """Return the state with one more exchange, cut if that does not fit."""
        number, span = state.seen, self._history.spans[state.seen]
        state = self._with_authority(state, span.start)
        state = self._calibrated(state, span.start)
        stays = self._ledger.stays(number)
        fixed, tokens = (span.tokens, 0) if stays else (0, span.tokens)
        state = replace(state, seen=number + 1, fixed=state.fixed + fixed, tokens=state.tokens + tokens)
        if state.total > self._ledger.limit(state):
            state = self._cut(state, number)
        # Recall must answer the same throughout a turn, whatever is cut meanwhile.
        if span.is_asked:
            state = replace(state, at_turn=(state.kept, state.judged, self._ledger.reserved(state)))
        return state

    def _with_authority(self, state: WindowState, position: int) -> WindowState:
        """Return the state with the system and task artifacts that stand before a position counted."""
        history, counted = self._history, state.authority
        while counted < len(history.authority) and history.authority[counted] < position:
            counted += 1
        if counted == state.authority:
            return state
        tokens = sum(history.costs[p] for p in history.authority[state.authority : counted])
        return replace(state, authority=counted, fixed=state.fixed + tokens)

    def _calibrated(self, state: WindowState, position: int) -> WindowState:
        reported, draft = self._history.artifacts[position].reported, self._ledger.draft
        if reported is None or not draft.calibrate:
            return state
        sent = self._ledger.sent(state)
        return replace(state, calibration=state.calibration.compared(reported, sent, draft.budget))

    def _cut(self, state: WindowState, number: int) -> WindowState:
        state = self._cutter.cut(state, number)
        return self._squeezer.squeezed(state, number) if state.total > self._ledger.limit(state) else state

    # -- the result

    def _kept(self, state: WindowState) -> tuple[list[int], list[Artifact]]:
        """Return the positions of what stays, in order, and the artifacts as they stand there."""
        artifacts, spans = self._history.artifacts, self._history.spans
        # Everything behind the last cut stays, so only what stands before it has to be picked out.
        rest = spans[state.judged].start if state.judged < len(spans) else len(artifacts)
        positions = [p for n in state.kept for p in range(spans[n].start, spans[n].end)]
        positions = sorted([*(p for p in self._history.authority if p < rest), *positions])
        kept = [artifacts[p] for p in positions] + artifacts[rest:]
        positions += range(rest, len(artifacts))
        if state.shortened:
            kept = [self._ledger.artifact(state, p) for p in positions]
        return positions, kept

    def _drafted(self, draft: Draft, state: WindowState) -> Draft:
        if told := state.calibration.told():
            budget, details = self._ledger.whole_budget(state), {**draft.details, "calibration": told}
            draft = replace(draft, settings=replace(draft.settings, budget=budget, regained=0), details=details)
        # Nothing was ever cut: the draft goes through untouched, and its prefix with it.
        if state.cut_at is None:
            return draft
        positions, artifacts = self._kept(state)
        reasons = {id(draft.artifacts[p]): _WHY[d.action] for p, d in state.shortened.items()}
        actions: dict[int, Action] = {id(draft.artifacts[p]): d.action for p, d in state.shortened.items()}
        note = None if state.note is None else state.note.artifact
        if note is not None:
            # Behind the task and before everything else: it is about what came between the two.
            artifacts.insert(self._place_of_note(positions), note)
            reasons[id(note)], actions[id(note)] = "tells what has left", "summarised"
        gone = "left at a cut" if note is None else "left at a cut; the trail tells or counts it"
        left = LeftOut(self._history, *state.at_turn) if self._stage.reserve else draft.left_out
        fitted = draft.revise(artifacts, action="bounded", actions=actions, reason=reasons, otherwise=gone)
        trail = {
            "steps": state.steps,
            "tokens": 0 if note is None else draft.counter.artifact(note),
            "room": note is not None or self._stage.trail == 0 or not state.steps,
        }
        details = {**fitted.details, "trail": trail, "latest_cuts": self._latest_cuts(state)}
        if bounded := self._bounded_messages(state):
            details["bounded_messages"] = bounded
        return replace(fitted, cut_at=self._cut_at(draft, state.cut_at), left_out=left, details=details)

    def _cut_at(self, draft: Draft, number: int) -> int:
        """Return where an exchange begins in the history, in which stages may have added or dropped some before."""
        start = self._history.start(number)
        root = self._history.artifacts[start].root
        if start < len(draft.history) and draft.history[start].root is root:
            return start
        behind = (p for p in range(len(draft.history) - 1, -1, -1) if draft.history[p].root is root)
        return next(behind, min(start, len(draft.history) - 1))

    def _latest_cuts(self, state: WindowState) -> dict[str, int]:
        """Return how many of the latest calls of the model were cut; a call is what each of its messages answered."""
        history, end = self._history, len(self._history)
        calls: list[range] = []
        number = end - 1
        while number >= 0 and len(calls) < _LATEST_CALLS:
            if history.members(number)[0].kind is Kind.ASSISTANT:
                calls.append(range(number, end))
                end = number
            number -= 1
        return {"calls": len(calls), "cut": sum(any(n in call for n in state.cuts) for call in calls)}

    def _bounded_messages(self, state: WindowState) -> list[dict[str, int]]:
        """Return the task and the last user message where they are sent in part."""
        history, count = self._history, self._ledger.draft.counter.artifact
        numbers = {n for n in (self._ledger.task, history.last_asked(len(history))) if n is not None}
        shown = ((history.start(n), state.shortened.get(history.start(n))) for n in numbers)
        positions = sorted(p for p, d in shown if d is not None and d.action != "masked")
        return [
            {"position": p, "tokens_before": history.costs[p], "tokens_after": count(state.shortened[p].artifact)}
            for p in positions
        ]

    def _place_of_note(self, positions: Sequence[int]) -> int:
        """Return where the trail stands among what is kept: behind the task, before all other exchanges."""
        task = self._ledger.task
        place = 0 if task is None else bisect_right(positions, self._history.start(task))
        # Authority stands in front of the trail where it does already; what comes later may stand behind an exchange.
        authority = set(self._history.authority)
        return next((n for n in range(place, len(positions)) if positions[n] not in authority), len(positions))

    def _exceeded(self, draft: Draft, state: WindowState) -> BudgetExceededError:
        history, count, task = self._history, draft.counter.artifact, self._ledger.task
        last_asked = history.last_asked(len(history))
        names = ("system", "task", "pinned", "last user message", "last exchange", "recent messages")
        parts = dict.fromkeys((*names, BESIDE), 0)
        parts[BESIDE] = draft.overhead
        last_start = history.start(max(0, len(history) - 1))
        starts = {history.start(n): n for n in (task, last_asked) if n is not None}
        for position, artifact in zip(*self._kept(state), strict=True):
            if artifact.kind in AUTHORITY:
                name = artifact.kind.value
            elif position in starts and starts[position] == task:
                name = "task"
            elif artifact.pinned:
                name = "pinned"
            elif position in starts:
                name = "last user message"
            else:
                name = "last exchange" if len(history) and position >= last_start else "recent messages"
            parts[name] += count(artifact)
        return draft.exceeded(parts)


def _share(
    value: object,
    setting: str,
    said: str,
    *,
    least: float | None = None,
    above: float = -1.0,
    most: float = 1.0,
    below: float = 2.0,
) -> float:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or not above < value <= most or not value < below or (least is not None and value < least):  # type: ignore[operator]
        raise ConfigError(f"{setting} is a share {said}, not {value!r}", setting=setting)
    return float(value)  # type: ignore[arg-type]


def _weights(given: Mapping[str, float] | None) -> Mapping[str, float]:
    unknown = sorted(set(given or {}) - set(WEIGHTS))
    if unknown or any(not isinstance(w, (int, float)) or w <= 0 for w in (given or {}).values()):
        known = ", ".join(WEIGHTS)
        raise ConfigError(f"weights are numbers above 0 by {known}, not {given!r}", setting="weights")
    return {**WEIGHTS, **(given or {})}
