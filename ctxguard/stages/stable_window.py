"""The default window. It evicts old messages rarely and many at once, so that prompts keep their prefix.

A provider's prompt cache serves a request only as far as it begins like the previous one, so each eviction costs a
cache miss. The window therefore changes nothing while the history fits into the budget. Once a new exchange exceeds the
budget, a cut shrinks the context well below it, and prompts grow at their end until they exceed the budget again. The
window processes a history exchange by exchange and depends on nothing else, so every call repeats the decisions of
earlier calls.

What stays is decided in `fold`, by arithmetic. This module writes what was decided, for the context that is sent.

Terms used in this package:

* Exchange: an assistant message with tool calls and all their results, or any other single message. An exchange is kept
  or evicted as a whole. Exchanges are numbered from 0; the system prompt and task messages belong to none.
* Cut: the moment at which an exchange exceeds the budget, and the steps that then shrink the context: old tool outputs
  become views, and old exchanges are evicted.
* View: the short form of a long text. It states what is missing, and names a handle if the full text is stored.
* Trail: one message, after the task, that summarizes the evicted exchanges. See `trail`.
* Block: one message, before a question, that repeats evicted exchanges which match the question. See `recall_relevant`.
* Record: a text that a stage wrote in the user's role, such as a trail, a block, a summary, or a checkpoint. Records
  carry a digest, so they are not mistaken for what a user wrote.
* Mandatory: must not be evicted. See `History.must_stay`.
* Pin: `Artifact.pinned`, by which the caller makes an exchange mandatory.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Generator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Unpack, cast

from ctxguard.artifacts import Artifact, Kind
from ctxguard.draft import Action, Ask, Draft, StageResult
from ctxguard.errors import BESIDE, BudgetExceededError
from ctxguard.history import AUTHORITY, RECALLED, TRAIL, record_title, write_record
from ctxguard.settings import opened, settings_of
from ctxguard.stages.bound_tool_output import NAMESPACE, handle_of
from ctxguard.stages.fold import VIEW, Shortening, State, WindowFold, WindowOptions, WindowSettings
from ctxguard.stages.short_views import shortened
from ctxguard.stages.trail import Facts, Note, facts_of, write_note

if TYPE_CHECKING:
    from ctxguard.stages.recall_relevant import RecallRelevant
    from ctxguard.stores import Store


class StableWindow:
    """Shrinks the context to `target` when it exceeds the budget; until the next time, prompts only grow at their end.

    The available tokens are the budget minus tool schemas, system prompt, task, pins, and the last request: the last
    user message with what the user sent right before it, such as a picture before the question about it.

    Before a cut, only large tool outputs are shortened. The outputs of the newest exchange are sent in full if together
    they take at most half of the available tokens. If they take more, those that fit are sent in full, in order. A
    single one that does not fit is shortened to that half. Several share what is free, and what a cut frees at that
    moment. Once the model has replied to an output that is larger than `output_share`, the output is replaced by a
    view, a short form of the text. Smaller outputs stay whole until a cut.

    When a new exchange exceeds the budget, a cut takes these steps until it has freed enough tokens:

    1. Replace tool outputs with short views: their first and last lines. Pictures in them leave. The outputs of the
       last three exchanges stay.
    2. Evict the oldest exchanges. What people said stays longest, within its share, with a line of each answer to it.
    3. Summarize the evicted exchanges in the trail, one message after the task. It first lists the sentences of people
       that stand for later, such as rules, and then the latest steps.

    Mandatory are the system prompt, the task, pins, the last request, the last exchange, the `keep_recent` latest
    messages, later system messages within a share, and the newest summary or checkpoint if it takes at most a quarter
    of the budget. If these alone exceed the budget, their texts are shortened: tool outputs first, then assistant
    messages and call arguments, then user messages. The system prompt and pins are never shortened; the task and the
    last user message only with `on_overflow="bound"`.

    Args:
        recall: The `RecallRelevant` stage that follows in the chain. At the beginning of a turn, it decides whether to
            recall evicted exchanges. The window itself never depends on what is recalled: since the last cut, it is
            continued with the recalled messages, until the next cut. None disables recall.
        store: Where the full texts of shortened and evicted messages are saved; views and the trail then name handles
            by which a text can be read back. With None, they are not saved.
        **settings: See `WindowSettings`.

    Raises:
        ConfigError: If a setting is out of range.
        BudgetExceededError: (When called.) If the mandatory messages exceed the budget even after shortening.
    """

    name = "StableWindow"
    part = "fit"

    def __init__(
        self, *, recall: RecallRelevant | None = None, store: Store | None = None, **settings: Unpack[WindowOptions]
    ) -> None:
        self.settings = settings_of(WindowSettings, settings)
        self.recall = recall
        self.store = opened(store)

    def __call__(self, draft: Draft, /) -> StageResult:
        """Return the draft after eviction. If full texts have to be stored, return a generator that also does this.

        Raises:
            BudgetExceededError: If the mandatory messages exceed the budget.
        """
        return draft.memory.of((self, draft.masking.masks), lambda: _Window(self, draft)).fitted(draft)


class _Window:
    """The window of one conversation, for `StableWindow`.

    The last exchange may still grow, so each call processes it again. What was written for an earlier call is used
    again, unless an artifact before it was taken back since: the same message may follow other ones.
    """

    def __init__(self, stage: StableWindow, draft: Draft) -> None:
        self._stage = stage
        self._fold = WindowFold(draft, stage.settings)
        self._history = self._fold.history
        self._gate = None if stage.recall is None else stage.recall.gate(self._history, draft)
        self._branch: list[tuple[State, State]] = []
        self._handles: dict[str, str] = {}
        self._stored: set[str] = set()
        self._shown: dict[int, tuple[tuple[Shortening, bool], Artifact, Artifact, Artifact]] = {}
        self._note: tuple[object, Artifact, tuple[Artifact | None, Note]] | None = None
        self._facts: dict[int, Facts | None] = {}

    def fitted(self, draft: Draft) -> StageResult:
        """Return the draft after eviction, see `StableWindow`."""
        self._fold.extend(draft.artifacts)
        window = self._at_end(self._fold.current())
        state = self._with_recalled(window)
        # By now, exchanges and records were evicted and texts shortened as far as possible.
        if state.total > self._fold.whole_budget(state):
            raise self._overflow_error(draft, state)
        result = self._revise(draft, state)
        if state.recalled or state.cuts != window.cuts:
            # The window is cut where it would be without recalled messages, however short the prompt is by then.
            result = result.noted({"recalled_since_cut": True})
        store = self._stage.store
        return result if store is None or draft.dry or not self._handles else self._store_texts(result, store)

    def _store_texts(self, result: Draft, store: Store) -> Generator[Ask, object, Draft]:
        for handle in list(self._handles):
            yield Ask(store.put_new, (NAMESPACE, handle, self._handles[handle].encode("utf-8", "surrogatepass")))
            # A handle is removed only after its text was stored, so the next call repeats a failed write.
            del self._handles[handle]
            self._stored.add(handle)
        return result

    # -- the state

    def _at_end(self, state: State) -> State:
        """Return the state after the last exchange and the task artifacts after it."""
        state = self._fold.with_authority(state, len(self._history.artifacts))
        if state.total > self._fold.budget(state) and len(self._history):
            state = self._fold.cut(state, len(self._history) - 1)
        return state

    def _with_recalled(self, state: State) -> State:
        """Return the state that is sent: the window since its last cut, continued with what questions recall.

        What is recalled takes tokens, so this state may be cut where the window itself is not. It ends with the next
        cut of the window, so a history that is seen at once is only continued from its last cut.
        """
        if self._gate is None or state.cut_at is None:
            return state
        begin, last, branch, states = state.cut_at, len(self._history) - 1, self._branch, self._fold.states
        if begin == last:  # the last exchange may still grow, so nothing is remembered of it
            return self._recalling(state, begin)
        # Each state is kept with that of the window after the same exchange, which tells whether it still holds.
        while branch and not (branch[-1][1].seen <= last and states[branch[-1][1].seen - 1] is branch[-1][0]):
            branch.pop()
        if branch and branch[0][1].seen != begin + 1:
            branch.clear()
        for number in range(begin + len(branch), last):
            after = self._continued(branch[-1][1]) if branch else self._recalling(states[begin], begin)
            branch.append((states[number], after))
        return self._at_end(self._continued(branch[-1][1]))

    def _continued(self, state: State) -> State:
        return self._recalling(self._fold.step(state, state.seen), state.seen)

    def _recalling(self, state: State, number: int) -> State:
        """Return the state with tokens for what exchange `number`, if it is a question, recalls."""
        gate, fold = self._gate, self._fold
        if gate is None or number == fold.task or not self._history.spans[number].is_asked:
            return state
        budget = fold.budget(state)
        recall = gate.find(number, state, max(0, budget - state.fixed))
        if recall is None:
            return state
        left = gate.fit(recall, recall.tokens, state)
        if state.total + left.tokens > budget:
            # What earlier questions recalled leaves with this cut, and what the cut evicts may be recalled instead.
            state = fold.cut(replace(state, recalled=(replace(recall, tokens=left.tokens),)), number)
            state = replace(state, recalled=())
            left = gate.fit(recall, min(left.tokens, budget - state.total), state)
        return replace(state, recalled=(*state.recalled, left)) if left.tokens else state

    # -- the result

    def _positions(self, state: State) -> list[int]:
        """Return the positions of all kept artifacts, in order."""
        spans, count = self._history.spans, len(self._history.artifacts)
        # Everything after the last cut is kept, so only the part before it has to be filtered.
        rest = spans[state.judged].start if state.judged < len(spans) else count
        positions = [p for n in state.kept for p in self._fold.positions(n)]
        positions = sorted([*(p for p in self._history.authority if p < rest), *positions])
        return [*positions, *range(rest, count)]

    def _artifact(self, state: State, position: int) -> Artifact:
        """Return the artifact at a position, as it is sent."""
        form = state.forms.get(position)
        whole = state.masked[position][0] if position in state.masked else self._history.artifacts[position]
        if form is None:
            return whole
        number = form.at if state.cut_at is None else max(form.at, state.cut_at)
        known = self._shown.get(position)
        key = replace(form, at=number), self._fold.is_open(position)
        span = self._history.spans[number]
        at = self._history.artifacts[span.start]
        if known is None or known[0] != key or known[1] is not whole or known[2] is not at:
            handle = None if self._stage.store is None else self._handle
            view = shortened(
                *(whole, form.limit, self._fold.draft),
                at=at,
                handle=handle,
                is_open=key[1],
                keeps_media=form.keeps_media,
                is_speech=form.is_speech,
                is_unread=span.start <= position < span.end,
            )
            known = key, whole, at, view
            self._fold.draft.memory.put(self._shown, position, known)
        return known[3]

    def _handle(self, text: str) -> str:
        handle = handle_of(text)
        if handle not in self._stored:
            self._handles[handle] = text
        return handle

    def _revise(self, draft: Draft, state: State) -> Draft:
        if compared := state.calibration.to_details():
            settings = replace(draft.settings, budget=self._fold.whole_budget(state), regained=0)
            draft = replace(draft, settings=settings).noted({"calibration": compared})
        # Nothing was ever shortened: the draft is returned unchanged, and so is its prefix.
        if state.cut_at is None and not state.forms:
            return draft
        positions = self._positions(state)
        history = self._history.artifacts
        artifacts = [
            self._artifact(state, p) if p in state.forms or p in state.masked else history[p] for p in positions
        ]
        for position in self._shown.keys() - state.forms:
            del self._shown[position]
        reasons = {id(draft.artifacts[p]): _MASKED for p in state.masked}
        reasons |= {id(draft.artifacts[p]): form.reason for p, form in state.forms.items()}
        actions: dict[int, Action] = {id(draft.artifacts[p]): "masked" for p in state.masked if p not in state.forms}
        message, note = self._written_note(state, draft, dict(zip(positions, artifacts, strict=True)))
        if message is not None:
            # The trail follows the task, because it summarizes what came between the task and the rest.
            artifacts.insert(self._place_of_note(positions), message)
            reasons[id(message)] = f"lists {note.told} of {note.steps} evicted steps"
            actions[id(message)] = "summarised"
        gone = "evicted at a cut" if message is None else "evicted at a cut; listed or counted in the trail"
        left = None if self._gate is None else state.recalled
        fitted = draft.revise(artifacts, action="bounded", actions=actions, reason=reasons, otherwise=gone, cause="cut")
        details: dict[str, object] = {"latest_cuts": self._count_latest_cuts(state)}
        details["trail"] = {
            "steps": note.steps,
            "told": note.told,
            "tokens": 0 if message is None else draft.counter.artifact(message),
            "room": message is not None or self._stage.settings.trail == 0 or len(state.kept) == state.judged,
        }
        if bounded := self._list_bounded_messages(state):
            details["bounded_messages"] = bounded
        cut_at = None if state.cut_at is None else self._cut_at(draft, state.cut_at)
        return fitted.noted(details).decided(cut_at=cut_at, left_out=left)

    def _written_note(self, state: State, draft: Draft, sent: dict[int, Artifact]) -> tuple[Artifact | None, Note]:
        """Return the message with the trail, and what it says; None if nothing was evicted or no tokens are left."""
        key, last = (state.cuts[-1:], state.kept, state.noted), self._history.last(max(0, state.judged - 1))
        if self._note is None or self._note[0] != key or self._note[1] is not last:
            draft.memory.set(self, "_note", (key, last, self._write_note(state, draft, sent)))
        return cast("tuple[object, Artifact, tuple[Artifact | None, Note]]", self._note)[2]

    def _write_note(self, state: State, draft: Draft, sent: dict[int, Artifact]) -> tuple[Artifact | None, Note]:
        if state.cut_at is None:
            return None, Note()
        history, count, stores = self._history, draft.counter, self._stage.store is not None
        kept = set(state.kept)
        gone = [each for n in range(state.judged) if n not in kept and (each := self._facts_of(n)) is not None]
        said = [
            (sentence, sent[history.spans[number].start].text if number in kept else "")
            for number in history.asked
            if number < state.judged and (number not in kept or history.spans[number].start in state.forms)
            for sentence in (self._facts_of(number) or _NOTHING).said
        ]
        if stores:
            self._store_evicted(state, kept)
        at, limit = history.artifacts[history.spans[state.cut_at].start], state.noted
        heading = count.artifact(Artifact(Kind.USER, write_record(TRAIL, "")))
        while True:
            note = write_note(
                *(gone, state.earlier, limit - heading, state.said),
                count=count.text,
                said=said,
                handle=handle_of if stores else None,
                large=lambda artifact: count.artifact(artifact) > VIEW,
            )
            made = draft.written(TRAIL, note.text, at=at)
            excess = count.artifact(made) - state.noted
            if excess <= 0:
                return made, note
            if limit <= heading:
                return None, note._replace(said=(), lines=())
            limit -= max(excess, 8)

    def _facts_of(self, number: int) -> Facts | None:
        """Return what the trail says of an exchange; None if it is a trail or a block, which only repeat others."""
        if number not in self._facts:
            span, members = self._history.spans[number], self._history.members(number)
            is_record = span.has_user_role and not span.is_asked
            repeats = is_record and record_title(members[0]) in (TRAIL, RECALLED)
            facts = None if repeats else facts_of(members, is_observed=self._fold.is_observed(number))
            self._fold.draft.memory.put(self._facts, number, facts)
        return self._facts[number]

    def _store_evicted(self, state: State, kept: set[int]) -> None:
        """Have the full texts of all large artifacts stored that have been evicted."""
        history = self._history
        for number in set(range(state.judged)) - kept:
            for position in self._fold.positions(number):
                if history.costs[position] > VIEW:
                    self._handle(history.artifacts[position].text)

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

    def _count_latest_cuts(self, state: State) -> dict[str, int]:
        """Look at the latest model calls, at most 4, and return how many there are and how many of them had a cut."""
        replies = self._history.replies[-State.LATEST :]
        cut = {bisect_right(replies, n) for n in state.cuts}
        return {"calls": len(replies), "cut": len(cut - {0})}

    def _list_bounded_messages(self, state: State) -> list[dict[str, int]]:
        """Return position, full size, and sent size of the task and of the last user message if these are shortened."""
        history, count = self._history, self._fold.draft.counter.artifact
        numbers = {n for n in (self._fold.task, history.last_asked(len(history))) if n is not None}
        positions = sorted(history.start(n) for n in numbers if history.start(n) in state.forms)
        return [
            {"position": p, "tokens_before": history.costs[p], "tokens_after": count(self._artifact(state, p))}
            for p in positions
        ]

    def _place_of_note(self, positions: Sequence[int]) -> int:
        """Return the index at which the trail is inserted: after the task, before all other exchanges."""
        task = self._fold.task
        place = 0 if task is None else bisect_right(positions, self._history.start(task))
        # The trail also follows the system and task artifacts at the front.
        authority = set(self._history.authority)
        return next((n for n in range(place, len(positions)) if positions[n] not in authority), len(positions))

    def _overflow_error(self, draft: Draft, state: State) -> BudgetExceededError:
        history, task = self._history, self._fold.task
        last_asked = history.last_asked(len(history))
        names = ("system", "task", "pinned", "last user message", "last exchange", "recent messages")
        parts = dict.fromkeys((*names, BESIDE), 0)
        parts[BESIDE] = draft.overhead
        last_start = history.start(max(0, len(history) - 1))
        starts = {history.start(n): n for n in (task, last_asked) if n is not None}
        for position in self._positions(state):
            artifact = history.artifacts[position]
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
            parts[name] += self._fold.tokens_at(state, position)
        return draft.exceeded(parts)


_NOTHING: Final = Facts((), 0)
_MASKED: Final = "contains a name that became known later"
