"""The steps of a cut: shorten old tool outputs, evict exchanges, and summarize the evicted exchanges in the trail.

For the terms, see `stable_window`. Shares refer to the available tokens: the budget minus tool schemas, system prompt,
task, pins, and the last user message. Therefore the same settings work whether a system prompt takes 90% of the budget
or nothing. How each constant affects the quality of replays is recorded in `docs/decisions/0007_constants.md`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Final

from ctxguard.artifacts import Artifact, Kind
from ctxguard.history import RECALLED, TRAIL, record_title, write_record
from ctxguard.history.conversation import TASK_SHARE, is_standing
from ctxguard.history.records import records_in
from ctxguard.stages.bound_tool_output import bound_artifact, handle_of
from ctxguard.stages.file_tools import stale_among
from ctxguard.stages.squeezing import water_level
from ctxguard.stages.traces import TrailStep, holds_observation, trace_of
from ctxguard.stages.trail import read_trail, steps_told
from ctxguard.stages.window_settings import SMALL, WindowSettings
from ctxguard.stages.window_state import LATEST, Ledger, Shortened, WindowState

_NEWEST: Final = 0.5
"""If the outputs of the newest exchange together take at most this share of the available tokens, they are sent in
full."""
_RECENT: Final = 3
"""Number of latest exchanges whose outputs a cut does not shorten."""
_VIEW: Final = 120
"""Maximum number of tokens in the view that replaces an older output at a cut. Smaller outputs stay whole."""
_TOGETHER: Final = 3
"""If parallel outputs together take at most this many times the limit of a single output, each is only held to that
limit. Otherwise they share twice the limit. A cut frees about as many tokens as such outputs take."""
_PEOPLE: Final = 0.3
"""Share of the tokens after a cut that is protected for user messages: they stay while anything else can be evicted."""
_COUNT_ALONE: Final = Artifact(Kind.USER, write_record(TRAIL, "99999 earlier steps."))
"""The shortest trail: only the number of evicted steps."""


@dataclass(slots=True)
class Cutter:
    """Performs the cuts of one conversation.

    Exchanges are given by their index in the history, counted from 0. A parameter named `number` is the exchange that
    has just arrived; `other` is an earlier one, or the same. The methods take the state of the window and return a
    changed one.

    Attributes:
        ledger: Counts the tokens of the exchanges.
        settings: The settings of the window.
        stores: Whether full texts are saved in a store, so that views name handles.
        handles: Full texts that are still to be stored, by handle.
    """

    ledger: Ledger
    settings: WindowSettings
    stores: bool = False
    handles: dict[str, str] = field(default_factory=dict)

    def cut(self, state: WindowState, number: int) -> WindowState:
        """Return the state after a cut, which shrinks the context to the goal or as far as mandatory messages allow."""
        ledger, history = self.ledger, self.ledger.history
        base = self._mask_again(self._with_earlier_trail(state, number), number)
        base = replace(base, cuts=(*base.cuts, number)[-LATEST:], note=None, calibration=base.calibration.after_cut())
        there = [n for n in state.numbers() if not self._is_replaced(n, number)]
        base = ledger.with_kept(base, there)
        stay = set(history.must_stay(ledger.draft.keep_recent, ledger.task, number + 1))
        # If it were evicted, nothing would be left of the messages that a summary or checkpoint replaced.
        stay.add(self._newest_record(there))
        goal, limit = self.goal(base, number), ledger.budget(base)
        keep = self.settings.kept_of(self._available(base, number))
        leaving = self._eviction_order([n for n in there if n not in stay], there, keep)
        most = self._trail_limit(keep)
        cut = self._with_views(base, leaving, number, goal - (most if base.trail.steps else 0))
        cut = self._evict(cut, leaving, goal, most)
        kept = set(cut.kept)
        cut = replace(cut, trail=cut.trail.extended(self._traces((n for n in there if n not in kept), number)))
        # In a small window, the trail is the best use of tokens that were freed beyond the goal.
        most = max(most, goal - cut.total) if keep <= SMALL else most
        cut = self._with_trail(cut, min(most, limit - cut.total), number)
        if cut.note is not None:
            return cut
        begun = self._start_with_user(cut, stay)
        kept = set(begun.kept)
        return replace(begun, trail=cut.trail.extended(self._traces((n for n in cut.kept if n not in kept), number)))

    def goal(self, state: WindowState, number: int) -> int:
        """Return the number of tokens to which a cut shrinks the context, mandatory messages included."""
        available, limit = self._available(state, number), self.ledger.budget(state)
        return min(limit, limit - available + self.settings.kept_of(available) + self._tokens_freed_next(state, number))

    def _newest_record(self, there: Sequence[int]) -> int:
        """Return the index of the newest summary or checkpoint of at most a quarter of the budget; -1 if none."""
        history, budget = self.ledger.history, self.ledger.draft.budget
        for other in reversed(there):
            title = record_title(history.members(other)[0])
            if title not in (None, RECALLED, TRAIL) and history.spans[other].tokens * TASK_SHARE <= budget:
                return other
        return -1

    def _available(self, state: WindowState, number: int) -> int:
        """Return the number of available tokens.

        That is the budget minus tool schemas, system prompt, task, pins, last user message, and the tokens reserved for
        recalled messages.
        """
        last = self.ledger.history.last_asked(number + 1)
        asked = 0 if last is None or self.ledger.stays(last) else self.ledger.history.spans[last].tokens
        return max(0, self.ledger.budget(state) - state.for_recall - state.fixed - asked)

    # -- an earlier trail, if the caller stored a stabilized context and continues it

    def _is_replaced(self, other: int, number: int) -> bool:
        """Return whether an exchange is an earlier trail, which the new trail replaces, rather than a quoted trail."""
        history = self.ledger.history
        if record_title(history.members(other)[0]) != TRAIL:
            return False
        # In a tool loop with a single user message, an earlier trail is also the last message in the user's role. It
        # differs from a trail that a user quotes by its position: right after the user's request, before all replies.
        is_last = other == history.last_user(number + 1)
        return not is_last or (other not in (0, number) and history.users[other : other + 1] == [other])

    def _with_earlier_trail(self, state: WindowState, number: int) -> WindowState:
        earlier = next((n for n in state.numbers() if self._is_replaced(n, number)), None)
        if earlier is None or state.trail.steps:
            return state
        trail = read_trail(records_in(self.ledger.history.members(earlier)[0].text)[0].body)
        return state if trail is None else replace(state, trail=trail)

    # -- masking names that the history introduced later

    def _mask_again(self, state: WindowState, number: int) -> WindowState:
        """Return the state with all earlier texts masked again, so that names that became known later are hidden."""
        ledger, history = self.ledger, self.ledger.history
        if not ledger.draft.remasks:
            return state
        at, count = history.members(number)[0], ledger.draft.counter.artifact
        kept = {p: ledger.stays(n) for n in state.numbers() if n < number for p in ledger.positions(n)}
        kept |= dict.fromkeys(history.authority[: state.authority], True)
        shortened, fixed = dict(state.shortened), state.fixed
        for position, is_fixed in kept.items():
            before = ledger.artifact(state, position)
            after = ledger.draft.mask_again(before, at)
            if after is not before:
                fixed += (count(after) - ledger.tokens_at(position, shortened)) if is_fixed else 0
                known = shortened.get(position, _MASKED)
                shortened[position] = replace(known, artifact=after, tokens=count(after))
        return replace(state, shortened=shortened, fixed=fixed)

    # -- views

    def with_newest(self, state: WindowState, number: int) -> WindowState:
        """Return the state with large outputs of the newest exchange shortened.

        Half of the available tokens is used for outputs in full. In order, each output stays whole if enough of that
        half is left. If one output does not fit, it may take up to half of the available tokens, as far as they are
        free. If several do not fit, they share all free tokens, and what a smaller one does not use goes to larger
        ones.
        """
        outputs, costs = self._outputs(number, number), self.ledger.history.costs
        # The outputs of a pinned exchange are counted as fixed, but this limit applies to them as well.
        own = sum(costs[p] for p in outputs) if self.ledger.stays(number) else 0
        half = left = int(_NEWEST * self._available(replace(state, fixed=state.fixed - own), number))
        large: list[int] = []
        for position in outputs:
            if costs[position] <= left:
                left -= costs[position]
            else:
                large.append(position)
        # Outputs before signed thinking stay unchanged until a cut, which would come at once if no tokens were free.
        if not _is_signed(self.ledger.history.members(number)[0]):
            free = self.ledger.budget(state) - state.total + sum(costs[p] for p in large)
            left = max(left, free if len(large) > 1 else min(half, free))
        for rest, position in zip(range(len(large), 0, -1), sorted(large, key=costs.__getitem__), strict=True):
            limit, reason = max(_VIEW, left // rest), "exceeds half of the available tokens"
            state = self._bound(state, number, (position,), limit, number, reason)
            left -= self.ledger.tokens_at(position, state.shortened)
        return state

    def bound_seen(self, state: WindowState, number: int) -> WindowState:
        """Return the state with large earlier outputs shortened, if exchange `number` is the model's reply to them.

        The provider signs thinking together with everything before it, so outputs before a reply with signed thinking
        stay unchanged until a cut.
        """
        reply = self.ledger.history.members(number)[0]
        if reply.kind is not Kind.ASSISTANT:
            return state
        for other in () if _is_signed(reply) else range(state.settled, number):
            if other >= state.judged or other in state.kept:
                outputs = self._outputs(other, number)
                limit = self._limit(state, outputs)
                state = self._bound(state, other, outputs, limit, number, "large, and the model has replied to it")
        return replace(state, settled=number)

    def _limit(self, state: WindowState, outputs: Sequence[int]) -> int:
        """Return the number of tokens that each output of an exchange may have once the model has replied to it.

        `outputs` are the positions of the outputs. Parallel outputs share twice the limit of a single output. If all of
        them fit in full into three times that limit, they share three times the limit.
        """
        share = int(self.settings.output_share * (self.ledger.draft.budget - state.fixed))
        costs = [self.ledger.history.costs[place] for place in outputs]
        together = (_TOGETHER if sum(costs) <= _TOGETHER * share else 2) * share
        return max(_VIEW, min(share, water_level(costs, together, _VIEW)))

    def _tokens_freed_next(self, state: WindowState, number: int) -> int:
        """Return how many tokens the next call will free by shortening the outputs that are new in this call.

        A cut in this call does not need to free these tokens.
        """
        # If cuts follow each other closely, as with large parallel outputs, the full amount is freed at once.
        is_in_a_row = any(number - cut <= _RECENT for cut in state.cuts[:-1])
        if is_in_a_row or _is_signed(self.ledger.history.members(number)[0]):
            return 0
        freed = 0
        for other in range(state.settled, number + 1):
            outputs = self._outputs(other, number)
            limit = self._limit(state, outputs)
            freed += sum(max(0, self.ledger.tokens_at(p, state.shortened) - limit) for p in outputs)
        return freed

    def _with_views(self, state: WindowState, numbers: Sequence[int], number: int, goal: int) -> WindowState:
        """Return the state with older outputs replaced by short views, exchange by exchange until the goal is reached.

        Outputs of the last three exchanges stay.

        `numbers` are the exchanges that may be evicted, in order of eviction.
        """
        for other in (n for n in numbers if n <= number - _RECENT):
            if state.total > goal:
                outputs = self._outputs(other, number)
                state = self._bound(state, other, outputs, _VIEW, number, "older output, shortened at a cut")
        return state

    def _bound(
        self, state: WindowState, other: int, positions: Iterable[int], limit: int, number: int, reason: str
    ) -> WindowState:
        """Return the state with the artifacts at `positions`, all of exchange `other`, shortened to `limit` tokens."""
        ledger, at = self.ledger, self.ledger.history.members(number)[0]
        large = [p for p in positions if ledger.tokens_at(p, state.shortened) > limit]
        if not large:
            return state
        count, shortened, saved = ledger.draft.counter.artifact, dict(state.shortened), 0
        for position in large:
            tokens = ledger.tokens_at(position, state.shortened)
            whole = ledger.history.artifacts[position]
            handle = self.handle(whole.text) if self.stores else None
            view = bound_artifact(whole, limit, ledger.draft, at=at, handle=handle, digests=True)
            shortened[position] = Shortened(view, count(view), reason)
            saved += tokens - shortened[position].tokens
        fixed, rest = (saved, 0) if ledger.stays(other) else (0, saved)
        return replace(state, shortened=shortened, fixed=state.fixed - fixed, tokens=state.tokens - rest)

    def _outputs(self, other: int, number: int) -> list[int]:
        """Return the positions of the outputs of exchange `other` that may be shortened when exchange `number` arrives.

        Tool output that an agent sends in the user's role counts as output, except in the last user message. Pinned
        artifacts are not included.
        """
        history = self.ledger.history
        is_last = other in (self.ledger.task, history.last_asked(number + 1))
        kind = Kind.USER if not is_last and holds_observation(history, other, number) else Kind.TOOL
        found = enumerate(history.members(other), history.start(other))
        return [p for p, output in found if output.kind is kind and not output.pinned and _is_text(output)]

    def handle(self, text: str) -> str:
        """Return the handle of a text, and remember that the text has to be stored."""
        handle = handle_of(text)
        self.handles[handle] = text
        return handle

    # -- eviction

    def _eviction_order(self, leaving: Sequence[int], there: Sequence[int], keep: int) -> list[int]:
        """Return the exchanges `leaving` in the order of eviction.

        Stale exchanges come first, then the others by age, then protected user messages, and protected standing
        instructions last. Standing instructions, and after them the newest user messages, are protected until together
        they take 30% of the kept tokens. A message that takes more than a quarter of this share counts as pasted text
        and is not protected.

        Args:
            leaving: The exchanges that may be evicted.
            there: All exchanges that are still in the context.
            keep: Number of tokens that the cut keeps.
        """
        history = self.ledger.history
        stale = stale_among(((n, history.members(n)) for n in there), self.settings.file_tools or {})
        rank = dict.fromkeys((n for n in stale if n <= there[-1] - _RECENT), -1)
        share = left = int(_PEOPLE * keep)
        asked = [n for n in leaving if history.spans[n].is_asked and not holds_observation(history, n, there[-1])]
        standing = {n for n in asked if is_standing(history.members(n)[0].text)}
        for number in sorted(asked, key=lambda n: (n not in standing, -n)):
            tokens = history.spans[number].tokens
            if tokens * TASK_SHARE <= share:
                left -= tokens
                if left < 0:
                    break
                rank[number] = 2 if number in standing else 1
        return sorted(leaving, key=lambda n: (rank.get(n, 0), n))

    def _evict(self, state: WindowState, leaving: Sequence[int], goal: int, most: int) -> WindowState:
        """Return the state after evicting exchanges until `goal` is reached, if the trail takes `most` tokens.

        `leaving` are the exchanges that may be evicted, in order of eviction.
        """
        goal -= most if state.trail.steps or state.total > goal else 0
        evicted: set[int] = set()
        total = state.total
        for other in leaving:
            if total <= goal:
                break
            evicted.add(other)
            total -= self.ledger.tokens(other, state.shortened)
        return self.ledger.with_kept(state, (n for n in state.kept if n not in evicted))

    def _start_with_user(self, state: WindowState, stay: Iterable[int]) -> WindowState:
        """Return the state changed so that the conversation begins with a message in the user's role.

        If it begins with another message, the user message that opened the turn is restored. If there is none, the
        exchanges before the next message in the user's role are evicted, but none from the first mandatory exchange
        (`stay`) on. This is only needed without a trail, because a trail has the user's role.
        """
        ledger, history, stay = self.ledger, self.ledger.history, set(stay)
        first = next((n for n in state.kept), None)
        if first is None or history.spans[first].has_user_role:
            return state
        opener = history.opener(first)
        # Providers refuse a context that begins with an assistant message or a tool result.
        if opener is not None and opener not in state.kept:
            return ledger.with_kept(state, (opener, *state.kept))
        leading = list(takewhile(lambda n: not history.spans[n].has_user_role and n not in stay, state.kept))
        return ledger.with_kept(state, state.kept[len(leading) :])

    # -- the trail

    def _trail_limit(self, keep: int) -> int:
        """Return the maximum number of tokens in the trail, enough to state the number of steps; 0 if disabled."""
        least = self.ledger.draft.counter.artifact(_COUNT_ALONE)
        return max(least, int(self.settings.trail * keep)) if self.settings.trail else 0

    def _with_trail(self, state: WindowState, most: int, number: int) -> WindowState:
        """Return the state with a trail of at most `most` tokens, or with none if not even the number of steps fits."""
        draft, count = self.ledger.draft, self.ledger.draft.counter
        if self.settings.trail == 0 or not state.trail.steps or most < count.artifact(_COUNT_ALONE):
            return state
        at, limit = self.ledger.history.members(number)[0], most
        while True:
            text = state.trail.text(limit, count=count.text)
            note = Artifact(Kind.USER, write_record(TRAIL, draft.mask(text, at=at)))
            tokens = count.artifact(note)
            if tokens <= most or not text:
                return replace(state, note=note, told=steps_told(note.text), tokens=state.tokens + tokens)
            limit -= tokens - most  # the tokens of the heading, and those that masking added

    def _traces(self, numbers: Iterable[int], end: int) -> Iterable[tuple[TrailStep, ...]]:
        """Yield the steps of each evicted exchange. Trails and recalled messages are skipped: they repeat others."""
        history = self.ledger.history
        for number in numbers:
            start, members = history.start(number), history.members(number)
            if record_title(members[0]) not in (TRAIL, RECALLED):
                large = range(len(members) if self.stores else 0)
                handles = {n: self.handle(members[n].text) for n in large if history.costs[start + n] > _VIEW}
                yield trace_of(members, handles, is_observed=holds_observation(history, number, end))


_MASKED: Final = Shortened(_COUNT_ALONE, 0, "contains a name that became known later", "masked")


def _is_text(artifact: Artifact) -> bool:
    """Return whether an artifact consists only of text that may be changed."""
    parts = artifact.content
    return isinstance(parts, str) or all(part.text is not None and part.editable for part in parts)


def _is_signed(artifact: Artifact) -> bool:
    return type(artifact.content) is tuple and any(part.signed for part in artifact.content)
