"""The default window. It evicts old messages rarely and many at once, so that prompts keep their prefix.

A provider's prompt cache serves a request only as far as it begins like the previous one, so each eviction costs a
cache miss. The window therefore changes nothing while the history fits into the budget. Once a new exchange exceeds the
budget, a cut shrinks the context well below it, and prompts grow at their end until they exceed the budget again. The
window processes a history exchange by exchange and depends on nothing else, so every call repeats the decisions of
earlier calls.

Terms used in this package:

* Exchange: an assistant message with tool calls and all their results, or any other single message. An exchange is kept
  or evicted as a whole. Exchanges are numbered from 0; system and task messages belong to none.
* Cut: the moment at which an exchange exceeds the budget, and the steps that then shrink the context: old tool outputs
  become views, and old exchanges are evicted. See `cutting`.
* View: the short form of a long text. It states what is missing, and names a handle if the full text is stored.
* Trail: one message, after the task, that summarizes the evicted exchanges, a step for each call or message. See
  `trail`.
* Block: one message, before a question, that repeats evicted exchanges which match the question. See `recall_relevant`.
* Record: a text that a stage wrote in the user's role, such as a trail, a block, a summary, or a checkpoint. Records
  carry a digest, so they are not mistaken for what a user wrote.
* Mandatory: must not be evicted. See `History.must_stay`.
* Pin: `Artifact.pinned`, by which the caller makes an exchange mandatory.
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
    """Shrinks the context to `target` when it exceeds the budget; until the next time, prompts only grow at their end.

    The available tokens are the budget minus tool schemas, system prompt, task, pins, and the last user message.

    Before a cut, only large tool outputs are shortened. The outputs of the newest exchange are sent in full if together
    they take at most half of the available tokens. If they take more, those that fit are sent in full, in order, and
    the others share the rest of that half, or all free tokens if these are more. Once the model has replied to an
    output that is larger than `output_share`, the output is replaced by a view, a short form of the text. Smaller
    outputs stay whole until a cut.

    When a new exchange exceeds the budget, a cut takes these steps until it has freed enough tokens:

    1. Replace tool outputs with short views, except those of the last three exchanges.
    2. Evict stale exchanges (reads of a file that was read again or edited later, and calls that were repeated later
       with equal outputs), then the oldest. User messages are evicted late, and standing instructions last.
    3. Summarize the evicted exchanges in the trail, one message after the task.

    Mandatory are the system prompt, the task, pins, the last user message, the last exchange, the `keep_recent` latest
    messages, and the newest summary or checkpoint if it takes at most a quarter of the budget. If these alone exceed
    the budget, their texts are shortened: tool outputs first, then assistant messages and call arguments, then user
    messages. The system prompt and pins are never shortened; the task and the last user message only with
    `on_overflow="bound"`.

    Args:
        recall: The `RecallRelevant` stage that follows in the chain. At the beginning of a turn, it decides whether to
            recall evicted exchanges. If it recalls some, the window reserves tokens for them. None disables recall.
        store: Where the full texts of shortened and evicted messages are saved; views and the trail then name handles
            by which a text can be read back. With None, they are not saved.
        **settings: See `WindowSettings`.

    Raises:
        ConfigError: If a setting is out of range.
        BudgetExceededError: (When called.) If the mandatory messages exceed the budget even after shortening.
    """

    name = "StableWindow"

    def __init__(
        self, *, recall: RecallRelevant | None = None, store: Store | None = None, **settings: Unpack[WindowOptions]
    ) -> None:
        self.settings = settings_of(WindowSettings, settings)
        self.recall = recall
        self.store = opened(store)

    def begin(self, draft: Draft, /) -> Follower:
        """Return a new object that maintains the window of one conversation as it grows."""
        return _Window(self, draft)


_REMEMBERED: Final = 64
"""Number of the latest exchanges after which a window keeps its state. If the end of the history is replaced, the
window returns to one of these states. 64 covers a turn with dozens of tool calls."""


class _Window:
    """Maintains the window of one conversation, for `StableWindow` (see `Follower`).

    The last exchange may still grow, so each call processes it again.
    """

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
        """Add new artifacts to the history, and process all exchanges but the last."""
        self._history.extend(artifacts)
        # The last exchange may still grow; `_complete` adds it to a copy of the state.
        while self._states[-1].seen < len(self._history) - 1:
            self._states.append(self._advance(self._states[-1]))

    def rewind(self, count: int) -> bool:
        """Forget all but the first `count` artifacts. Return whether the window still has a state from that time."""
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
        """Return the draft after eviction. If full texts have to be stored, return a generator that also does this.

        Raises:
            BudgetExceededError: If the mandatory messages exceed the budget.
        """
        state = self._complete()
        # By now, exchanges and records were evicted and texts shortened as far as possible.
        if state.total > self._ledger.whole_budget(state):
            raise self._overflow_error(draft, state)
        result = self._revise(draft, state)
        store = self._stage.store
        return result if store is None or draft.dry or not self._cutter.handles else self._store_texts(result, store)

    def _store_texts(self, result: Draft, store: Store) -> Generator[Ask, object, Draft]:
        handles = self._cutter.handles
        for handle in list(handles):
            yield Ask(store.put_new, (NAMESPACE, handle, handles[handle].encode("utf-8", "surrogatepass")))
            # A handle is removed only after its text was stored, so the next call repeats a failed write.
            del handles[handle]
        return result

    def _complete(self) -> WindowState:
        """Return the state after the whole history, with the last exchange and system or task artifacts after it."""
        state = self._states[-1]
        state = self._advance(state) if len(self._history) else state
        state = self._with_authority(state, len(self._history.artifacts))
        if state.total > self._ledger.budget(state) and len(self._history):
            state = self._cut(state, len(self._history) - 1)
        return state

    def _advance(self, state: WindowState) -> WindowState:
        """Return the state after one more exchange. If that exchange exceeds the budget, a cut is made."""
        number, span = state.seen, self._history.spans[state.seen]
        # The result for the last exchange is kept from the previous call; it is valid unless that exchange has grown.
        if self._latest is not None and self._latest[0] is state and self._latest[1] == span.end:
            return self._latest[2]
        self._latest = state, span.end, self._with_next(state, number, span)
        return self._latest[2]

    def _with_next(self, state: WindowState, number: int, span: ExchangeSpan) -> WindowState:
        state = self._with_authority(state, span.start)
        state = self._cutter.bound_seen(self._calibrate(state, span.start), number)
        ledger = self._ledger
        # The task is set only when it arrives: decisions at an exchange depend only on earlier exchanges.
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
        """Return the state with tokens reserved for what question `number` recalls, after a cut if necessary."""
        gate, ledger = self._gate, self._ledger
        if gate is None or number == ledger.task:
            return state
        budget = ledger.budget(state)
        recall = gate.find(number, state, max(0, budget - state.fixed))
        if recall is None:
            return state
        for blocks in (state.recalled, ()):  # Earlier blocks are removed before anything else is evicted.
            fewer = state.with_blocks(blocks, number)
            left = gate.fit(recall, recall.tokens, fewer)
            if fewer.total + left.tokens <= budget:
                return replace(fewer, recalled=(*blocks, left)) if left.tokens else fewer
        state = self._cutter.cut(replace(state, recalled=(left,)), number)
        # After the cut, the mandatory messages may leave fewer tokens than the block takes.
        left = gate.fit(recall, left.tokens + min(0, budget - state.total), replace(state, recalled=()))
        return replace(state, recalled=(left,) if left.tokens else ())

    def _with_authority(self, state: WindowState, position: int) -> WindowState:
        """Return the state in which the tokens of all system and task artifacts before a position are counted."""
        history, counted = self._history, state.authority
        while counted < len(history.authority) and history.authority[counted] < position:
            counted += 1
        if counted == state.authority:
            return state
        tokens = sum(history.costs[p] for p in history.authority[state.authority : counted])
        return replace(state, authority=counted, fixed=state.fixed + tokens)

    def _calibrate(self, state: WindowState, position: int) -> WindowState:
        reported, draft = self._history.artifacts[position].reported, self._ledger.draft
        # Blocks may be rewritten later (see `RecallGate.fit`), so the size of a prompt with blocks is not known here.
        if reported is None or not draft.settings.calibrate or state.recalled:
            return state
        return replace(state, calibration=state.calibration.with_comparison(reported, state.total, draft.budget))

    def _cut(self, state: WindowState, number: int) -> WindowState:
        # Blocks are removed before anything else is evicted, the block of the current turn last.
        asked = self._history.last_asked(number + 1)
        for blocks in (tuple(left for left in state.recalled if left.asked == asked), ()):
            fewer = state.with_blocks(blocks, number)
            if fewer.total <= self._cutter.goal(fewer, number):
                return fewer
        state = self._cutter.cut(fewer, number)
        if state.total <= self._ledger.budget(state):
            return state
        return self._squeezer.squeeze(state, number)

    # -- the result

    def _list_kept(self, state: WindowState) -> tuple[list[int], list[Artifact]]:
        """Return the positions of all kept artifacts, in order, and the artifacts as they are sent."""
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

    def _revise(self, draft: Draft, state: WindowState) -> Draft:
        if told := state.calibration.to_details():
            budget, details = self._ledger.whole_budget(state), {**draft.details, "calibration": told}
            draft = replace(draft, settings=replace(draft.settings, budget=budget, regained=0), details=details)
        # Nothing was ever shortened: the draft is returned unchanged, and so is its prefix.
        if state.cut_at is None and not state.shortened:
            return draft
        positions, artifacts = self._list_kept(state)
        reasons = {id(draft.artifacts[p]): d.reason for p, d in state.shortened.items()}
        actions: dict[int, Action] = {id(draft.artifacts[p]): d.action for p, d in state.shortened.items()}
        note, steps = state.note, state.told if state.note is not None else 0
        if note is not None:
            # The trail follows the task, because it summarizes what came between the task and the rest.
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
        details = {**fitted.details, "trail": trail, "latest_cuts": self._count_latest_cuts(state)}
        if bounded := self._list_bounded_messages(state):
            details["bounded_messages"] = bounded
        cut_at = None if state.cut_at is None else self._cut_at(draft, state.cut_at)
        changed_at = None if state.cut_at is None else self._cut_at(draft, max(state.cut_at, state.left_at))
        return replace(fitted, cut_at=cut_at, changed_at=changed_at, left_out=left, details=details)

    def _cut_at(self, draft: Draft, number: int) -> int:
        """Return the position of an exchange in the full history (`Draft.history`).

        That position differs from the position in the draft if earlier stages added or dropped artifacts.
        """
        start = self._history.start(number)
        root = self._history.artifacts[start].root
        if start < len(draft.history) and draft.history[start].root is root:
            return start
        behind = (p for p in range(len(draft.history) - 1, -1, -1) if draft.history[p].root is root)
        return next(behind, min(start, len(draft.history) - 1))

    def _count_latest_cuts(self, state: WindowState) -> dict[str, int]:
        """Look at the latest model calls, at most 4, and return how many there are and how many of them had a cut."""
        replies = self._history.replies[-LATEST:]
        cut = {bisect_right(replies, n) for n in state.cuts}
        return {"calls": len(replies), "cut": len(cut - {0})}

    def _list_bounded_messages(self, state: WindowState) -> list[dict[str, int]]:
        """Return position, full size, and sent size of the task and of the last user message if these are shortened."""
        history, count = self._history, self._ledger.draft.counter.artifact
        numbers = {n for n in (self._ledger.task, history.last_asked(len(history))) if n is not None}
        shown = ((history.start(n), state.shortened.get(history.start(n))) for n in numbers)
        positions = sorted(p for p, d in shown if d is not None and d.action != "masked")
        return [
            {"position": p, "tokens_before": history.costs[p], "tokens_after": count(state.shortened[p].artifact)}
            for p in positions
        ]

    def _place_of_note(self, positions: Sequence[int]) -> int:
        """Return the index at which the trail is inserted: after the task, before all other exchanges."""
        task = self._ledger.task
        place = 0 if task is None else bisect_right(positions, self._history.start(task))
        # The trail also follows the system and task artifacts at the front.
        authority = set(self._history.authority)
        return next((n for n in range(place, len(positions)) if positions[n] not in authority), len(positions))

    def _overflow_error(self, draft: Draft, state: WindowState) -> BudgetExceededError:
        history, count, task = self._history, draft.counter.artifact, self._ledger.task
        last_asked = history.last_asked(len(history))
        names = ("system", "task", "pinned", "last user message", "last exchange", "recent messages")
        parts = dict.fromkeys((*names, BESIDE), 0)
        parts[BESIDE] = draft.overhead
        last_start = history.start(max(0, len(history) - 1))
        starts = {history.start(n): n for n in (task, last_asked) if n is not None}
        for position, artifact in zip(*self._list_kept(state), strict=True):
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
