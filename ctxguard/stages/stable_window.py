"""Fit a history into the budget so that prompts keep their prefix: cut rarely, cut deep, stay there.

The window takes in the exchanges one by one. If one more exceeds the budget, the window is cut in several steps (see
`cutting`), until only `target` of the available tokens is used, and it stays cut there until the budget is hit again.
It depends on nothing but the history, so every call repeats the decisions of earlier calls, and prompts only grow
between two cuts.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Generator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Unpack

from ctxguard.artifacts import Artifact
from ctxguard.draft import Action, Ask, Draft, FollowedStage, Follower, StageResult
from ctxguard.errors import BESIDE, BudgetExceededError
from ctxguard.history import AUTHORITY, ExchangeSpan, History
from ctxguard.settings import opened, settings_of
from ctxguard.stages.bound_tool_output import NAMESPACE
from ctxguard.stages.cutting import Cutter
from ctxguard.stages.squeezing import Squeezer
from ctxguard.stages.window_settings import WindowOptions, WindowSettings
from ctxguard.stages.window_state import LATEST, Ledger, WindowState

if TYPE_CHECKING:
    from ctxguard.stages.recall_relevant import RecallRelevant
    from ctxguard.stores import Store


class StableWindow(FollowedStage):
    """Cut when the budget is hit, down to `target`, and keep that prefix until the next hit.

    Shares refer to the available tokens: the budget minus system prompt, task, pins and the last user message. The
    newest tool outputs are sent whole while together they take at most half of these; larger ones share the rest of
    that half, or all that is free. Once the model has replied, an output larger than `output_share` is replaced by a
    bounded view; the others stay whole until a cut. A cut proceeds in this order, and stops once it has freed enough:
    outputs before the last three exchanges are replaced by short views, then the oldest exchanges are evicted. Evicted
    exchanges are listed in the trail: one message behind the task. System prompt, task, pins and the last user message
    stay unchanged, and so do the last exchange, the `keep_recent` latest messages, and the newest record (summary,
    checkpoint) if it takes at most a quarter of the budget. If these mandatory messages alone exceed the budget, their
    tool outputs are squeezed, then arguments and older texts.

    Args:
        recall: the `RecallRelevant` behind it, which decides at the beginning of a turn whether to recall evicted
            exchanges: the window then reserves tokens for them until the next cut. None disables recall.
        store: where full texts are saved; views and trail then name a handle. None saves none.
        **settings: see `WindowSettings`.

    Raises:
        ConfigError: a setting is out of range.
        BudgetExceededError: (when called) the mandatory messages do not fit even after all of that.
    """

    name = "StableWindow"

    def __init__(
        self, *, recall: RecallRelevant | None = None, store: Store | None = None, **settings: Unpack[WindowOptions]
    ) -> None:
        self.settings = settings_of(WindowSettings, settings)
        self.recall = recall
        self.store = opened(store)

    def begin(self, draft: Draft, /) -> Follower:
        """Return the follower that keeps the window of one conversation."""
        return _Window(self, draft)


_REMEMBERED: Final = 64
"""States that a window remembers, one for each of the latest exchanges, to return to when the end of its history is
replaced: enough for a turn with some dozens of tool calls."""


class _Window:
    """Follow one conversation. The last exchange may still grow, so each call takes it in anew."""

    def __init__(self, stage: StableWindow, draft: Draft) -> None:
        self._stage = stage
        self._history = History(draft.counter.artifact)
        self._ledger = Ledger(draft, self._history)
        self._cutter = Cutter(self._ledger, stage.settings, stores=stage.store is not None)
        handle = None if stage.store is None else self._cutter.handle
        bounds_people = stage.settings.on_overflow == "bound"
        self._squeezer = Squeezer(self._ledger, bounds_people=bounds_people, handle=handle)
        self._gate = None if stage.recall is None else stage.recall.gate(self._history, draft)
        self._states = deque([WindowState(fixed=draft.overhead)], maxlen=_REMEMBERED)
        self._latest: tuple[WindowState, int, WindowState] | None = None

    def take(self, artifacts: Sequence[Artifact], draft: Draft) -> None:  # noqa: ARG002 - as every follower
        """Take in the artifacts that are new in the draft."""
        self._history.extend(artifacts)
        # Without the last exchange, which may still grow; `result` adds it to a copy of the state.
        while self._states[-1].seen < len(self._history) - 1:
            self._states.append(self._taken(self._states[-1]))

    def rewind(self, count: int) -> bool:
        """Return to the state before artifacts that were replaced, if it is still remembered."""
        closed = self._history.rewind(count)
        while self._states and self._states[-1].seen > closed:
            self._states.pop()
        if self._ledger.task is not None and self._ledger.task >= closed:
            self._ledger.task = None
        if self._gate is not None:
            self._gate.rewind(closed)
        self._latest = None
        return bool(self._states)

    def result(self, draft: Draft) -> StageResult:
        """Return the draft after the window's decisions, or a generator that also stores the texts it shortened.

        Raises:
            BudgetExceededError: the mandatory messages do not fit.
        """
        state = self._ended()
        # All means have been tried by now: eviction, dropping records, squeezing.
        if state.total > self._ledger.whole_budget(state):
            raise self._exceeded(draft, state)
        result = self._drafted(draft, state)
        store = self._stage.store
        return result if store is None or draft.dry or not self._cutter.handles else self._stored(result, store)

    def _stored(self, result: Draft, store: Store) -> Generator[Ask, object, Draft]:
        handles = self._cutter.handles
        for handle in list(handles):
            yield Ask(store.put_new, (NAMESPACE, handle, handles[handle].encode("utf-8", "surrogatepass")))
            # Removed only after it was stored, so the next call repeats a failed write.
            del handles[handle]
        return result

    def _ended(self) -> WindowState:
        """Return the state with all exchanges, including the last one, and all later system and task artifacts."""
        state = self._states[-1]
        state = self._taken(state) if len(self._history) else state
        state = self._with_authority(state, len(self._history.artifacts))
        if state.total > self._ledger.budget(state) and len(self._history):
            state = self._cut(state, len(self._history) - 1)
        return state

    def _taken(self, state: WindowState) -> WindowState:
        """Return the state with one more exchange, cut if it does not fit."""
        number, span = state.seen, self._history.spans[state.seen]
        # The previous call already computed this for the last exchange; it holds as long as the exchange has not grown.
        if self._latest is not None and self._latest[0] is state and self._latest[1] == span.end:
            return self._latest[2]
        self._latest = state, span.end, self._with_next(state, number, span)
        return self._latest[2]

    def _with_next(self, state: WindowState, number: int, span: ExchangeSpan) -> WindowState:
        state = self._with_authority(state, span.start)
        state = self._cutter.settled(self._calibrated(state, span.start), number)
        ledger = self._ledger
        # Not before it arrives: decisions at an exchange depend only on earlier ones.
        if ledger.task is None and ledger.draft.keep_task and self._history.task(ledger.draft.budget) == number:
            ledger.task = number
        stays = ledger.stays(number)
        fixed, tokens = (span.tokens, 0) if stays else (0, span.tokens)
        state = replace(state, seen=number + 1, fixed=state.fixed + fixed, tokens=state.tokens + tokens)
        state = self._cutter.with_newest(state, number)
        if state.total > self._ledger.budget(state):
            state = self._cut(state, number)
        return self._with_recall(state, number) if span.is_asked and self._gate is not None else state

    def _with_recall(self, state: WindowState, number: int) -> WindowState:
        """Return the state with tokens for what its question recalls, if anything; this may need a cut."""
        gate, ledger = self._gate, self._ledger
        if gate is None or number == ledger.task:
            return state
        budget = ledger.budget(state)
        wanted = gate.wanted(number, state, max(0, budget - state.fixed))
        if wanted is None:
            return state
        for blocks in (state.recalled, ()):  # Earlier blocks leave before anything else does.
            fewer = state.with_blocks(blocks, number)
            left = gate.within(wanted, wanted.tokens, fewer)
            if fewer.total + left.tokens <= budget:
                return replace(fewer, recalled=(*blocks, left)) if left.tokens else fewer
        state = self._cutter.cut(replace(state, recalled=(left,)), number)
        # The mandatory messages may leave fewer tokens than that.
        left = gate.within(wanted, left.tokens + min(0, budget - state.total), replace(state, recalled=()))
        return replace(state, recalled=(left,) if left.tokens else ())

    def _with_authority(self, state: WindowState, position: int) -> WindowState:
        """Return the state including the system and task artifacts before a position."""
        history, counted = self._history, state.authority
        while counted < len(history.authority) and history.authority[counted] < position:
            counted += 1
        if counted == state.authority:
            return state
        tokens = sum(history.costs[p] for p in history.authority[state.authority : counted])
        return replace(state, authority=counted, fixed=state.fixed + tokens)

    def _calibrated(self, state: WindowState, position: int) -> WindowState:
        reported, draft = self._history.artifacts[position].reported, self._ledger.draft
        # Recalled blocks are not written yet, so a prompt that was sent with them cannot be counted here.
        if reported is None or not draft.settings.calibrate or state.recalled:
            return state
        return replace(state, calibration=state.calibration.compared(reported, state.total, draft.budget))

    def _cut(self, state: WindowState, number: int) -> WindowState:
        # Blocks leave before anything else does, that of this turn last.
        asked = self._history.last_asked(number + 1)
        for blocks in (tuple(left for left in state.recalled if left.asked == asked), ()):
            fewer = state.with_blocks(blocks, number)
            if fewer.total <= self._cutter.goal(fewer, number):
                return fewer
        state = self._cutter.cut(fewer, number)
        if state.total <= self._ledger.budget(state):
            return state
        return self._squeezer.squeezed(state, number)

    # -- the result

    def _kept(self, state: WindowState) -> tuple[list[int], list[Artifact]]:
        """Return the positions of the kept artifacts, in order, and the artifacts in their current form."""
        artifacts, spans = self._history.artifacts, self._history.spans
        # Everything after the last cut is kept, so only the part before it has to be filtered.
        rest = spans[state.judged].start if state.judged < len(spans) else len(artifacts)
        positions = [p for n in state.kept for p in range(spans[n].start, spans[n].end)]
        positions = sorted([*(p for p in self._history.authority if p < rest), *positions])
        kept = [artifacts[p] for p in positions] + artifacts[rest:]
        positions += range(rest, len(artifacts))
        for place, position in enumerate(positions) if state.shortened else ():
            if position in state.shortened:
                kept[place] = state.shortened[position].artifact
        return positions, kept

    def _drafted(self, draft: Draft, state: WindowState) -> Draft:
        if told := state.calibration.told():
            budget, details = self._ledger.whole_budget(state), {**draft.details, "calibration": told}
            draft = replace(draft, settings=replace(draft.settings, budget=budget, regained=0), details=details)
        # Nothing was ever shortened: the draft is returned unchanged, and so is its prefix.
        if state.cut_at is None and not state.shortened:
            return draft
        positions, artifacts = self._kept(state)
        reasons = {id(draft.artifacts[p]): d.reason for p, d in state.shortened.items()}
        actions: dict[int, Action] = {id(draft.artifacts[p]): d.action for p, d in state.shortened.items()}
        note, steps = state.note, state.told if state.note is not None else 0
        if note is not None:
            # Directly behind the task, because it summarizes what came between the task and the rest.
            artifacts.insert(self._place_of_note(positions), note)
            reasons[id(note)] = f"lists {steps} of {state.trail.steps} evicted steps"
            actions[id(note)] = "summarised"
        gone = "evicted at a cut" if note is None else "evicted at a cut; listed or counted in the trail"
        left = None if self._gate is None else state.recalled
        fitted = draft.revise(artifacts, action="bounded", actions=actions, reason=reasons, otherwise=gone)
        trail = {
            "steps": state.trail.steps,
            "told": steps,
            "tokens": 0 if note is None else draft.counter.artifact(note),
            "room": note is not None or self._stage.settings.trail == 0 or len(state.kept) == state.judged,
        }
        details = {**fitted.details, "trail": trail, "latest_cuts": self._latest_cuts(state)}
        if bounded := self._bounded_messages(state):
            details["bounded_messages"] = bounded
        cut_at = None if state.cut_at is None else self._cut_at(draft, state.cut_at)
        changed_at = None if state.cut_at is None else self._cut_at(draft, max(state.cut_at, state.left_at))
        return replace(fitted, cut_at=cut_at, changed_at=changed_at, left_out=left, details=details)

    def _cut_at(self, draft: Draft, number: int) -> int:
        """Return an exchange's position in the full history, which differs if stages added or dropped artifacts."""
        start = self._history.start(number)
        root = self._history.artifacts[start].root
        if start < len(draft.history) and draft.history[start].root is root:
            return start
        behind = (p for p in range(len(draft.history) - 1, -1, -1) if draft.history[p].root is root)
        return next(behind, min(start, len(draft.history) - 1))

    def _latest_cuts(self, state: WindowState) -> dict[str, int]:
        """Return how many of the latest model calls had a cut; each assistant message counts as one call."""
        replies = self._history.replies[-LATEST:]
        cut = {bisect_right(replies, n) for n in state.cuts}
        return {"calls": len(replies), "cut": len(cut - {0})}

    def _bounded_messages(self, state: WindowState) -> list[dict[str, int]]:
        """Return the task and the last user message if they are sent shortened."""
        history, count = self._history, self._ledger.draft.counter.artifact
        numbers = {n for n in (self._ledger.task, history.last_asked(len(history))) if n is not None}
        shown = ((history.start(n), state.shortened.get(history.start(n))) for n in numbers)
        positions = sorted(p for p, d in shown if d is not None and d.action != "masked")
        return [
            {"position": p, "tokens_before": history.costs[p], "tokens_after": count(state.shortened[p].artifact)}
            for p in positions
        ]

    def _place_of_note(self, positions: Sequence[int]) -> int:
        """Return the position of the trail among the kept artifacts: behind the task, before all other exchanges."""
        task = self._ledger.task
        place = 0 if task is None else bisect_right(positions, self._history.start(task))
        # System and task artifacts at the front stay before the trail; later ones may follow an exchange.
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
