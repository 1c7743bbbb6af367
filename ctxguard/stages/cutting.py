"""Cut a window, graded: digests first, then arguments, then whole exchanges, which go on the trail.

Every share here is one of the *room*: what system, task, pins and the last user message leave of the budget. So the
same settings work where a system prompt takes nine tenths of the budget and where there is none. The order and the
constants were measured by next-action support and bill on recorded sessions, see `ctxguard bench`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from math import sqrt
from types import MappingProxyType
from typing import Final

from ctxguard.artifacts import Artifact, Kind
from ctxguard.content.digests import digest, digest_arguments
from ctxguard.content.names import labeled_names, names_in
from ctxguard.history import RECALLED, TRAIL, record_title, records_in, write_record
from ctxguard.stages.bound_tool_output import handle_of
from ctxguard.stages.traces import Trace, trace_of
from ctxguard.stages.trail import Trail, read_trail
from ctxguard.stages.window_state import LATEST_CUTS, Deferred, Ledger, WindowState

WEIGHTS: Final[Mapping[str, float]] = MappingProxyType({"user": 2.0, "assistant": 1.0, "tool": 1.0})
"""How much an exchange weighs when some have to leave, by who begins it; `tool` is a step that calls tools."""
_DIGEST: Final = 60
"""Tokens of a digest, of an output or of arguments."""
_WORTH_IT: Final = 90
"""Tokens up to which a digest would save too little."""
_TARGET: Final = 0.35
_TRAIL: Final = 0.7
"""Share of what a cut leaves that the trail may take."""
_SMALL_ROOM: Final = 500
"""Tokens of a room that is kept in full: there a deep cut saves nothing, since the system prompt is most of the prompt,
and nearly every step cuts in any case."""
_ENOUGH: Final = 13_000
_OF_LARGE_ROOM: Final = 0.6
"""In a large room a cut that frees so many tokens is rare enough; up to this share of the room, the rest is kept."""
_STEPS_AHEAD: Final = 2.2
"""Steps for which a cut leaves room, so that not every second one cuts; see `Cutter._left_for_steps`."""
_ROOM_FOR_STEPS: Final = 3_000
"""Tokens of a room below which none of it is left for them."""
_LATEST: Final = 3
"""Exchanges that tell what a step brings."""
_LAST_RESORT: Final = 0.8
"""Where what must stay exceeds the goal already, a short trail is still written as long as all but what is fixed stays
below this share of the room."""
_SHORT_TRAIL: Final = 500
_LEAST_TRAIL: Final = 24
_LONGEST_TRAIL: Final = 7_000
"""Tokens of a trail; beyond, it would be a list of names that nobody reads."""
_REMEMBERED: Final = 512
"""The latest exchanges that a trail tells of, so that a cut costs the same however long the conversation is."""
_RECORD_SHARE: Final = 4
"""A record is kept unless it takes more than a quarter of the budget."""
_HANDLED: Final = 200
"""Characters of what a person said that a line of the trail tells; what is longer gets a handle."""


@dataclass(frozen=True, slots=True)
class WindowSettings:
    """Hold the settings of a window.

    Attributes:
        target: share of the room that a cut frees down to; None means by the size of the room, see `kept_of`.
        trail: share of the room that the trail may take, part of the target; None means 0.7 of what a cut leaves.
        digests: whether old outputs and arguments become digests before exchanges leave.
        weights: how much exchanges weigh against leaving, by who begins them.
        stores: whether full texts are kept in a store, so that what is left of them names a handle.
    """

    target: float | None
    trail: float | None
    digests: bool
    weights: Mapping[str, float]
    stores: bool = False

    def kept_of(self, room: int) -> int:
        """Return the tokens that a cut leaves of a room.

        Without a target, 0.35 of it, and more where cutting deeper would not make cuts rarer enough to pay: all of a
        small room, up to 500 tokens, and all but 13,000 tokens of a large one, up to 0.6 of it.
        """
        if self.target is not None:
            return int(self.target * room)
        small = min(room, _SMALL_ROOM)
        large = min(int(_OF_LARGE_ROOM * room), room - _ENOUGH)
        return max(int(_TARGET * room), small, large)

    def trail_of(self, room: int, kept: int) -> int:
        """Return the tokens that the trail may take of a room, of which a cut leaves so many."""
        return min(_LONGEST_TRAIL, int(_TRAIL * kept)) if self.trail is None else min(kept, int(self.trail * room))


@dataclass(slots=True)
class Cutter:
    """Cut one conversation. What it remembers are pure functions of single exchanges.

    Attributes:
        ledger: what the exchanges cost.
        settings: of the window.
        whole: the artifacts as they were before outputs were bounded, by position.
        handles: full texts that were given a handle and are not in the store yet.
    """

    ledger: Ledger
    settings: WindowSettings
    whole: list[Artifact]
    handles: dict[str, str] = field(default_factory=dict)
    _traces: dict[int, Trace] = field(default_factory=dict)
    _steps: list[int] = field(default_factory=lambda: [0])

    def cut(self, state: WindowState, number: int) -> WindowState:
        """Return the state after a cut at an exchange, as small as what must stay allows, down to the goal."""
        ledger, history = self.ledger, self.ledger.history
        base = self._masked_again(self._with_earlier_trail(state, number), number)
        cuts = (*state.cuts, number)[-LATEST_CUTS:]
        base = replace(base, cuts=cuts, note=None, calibration=base.calibration.after_cut())
        # An earlier trail goes: the new one tells what it told.
        there = [n for n in state.numbers() if self._is_kept(n, number)]
        base = ledger.with_kept(base, there)
        stay = set(history.must_stay(ledger.draft.keep_recent, ledger.task, number + 1))
        # Without it, what a checkpoint or summary stands for would be nowhere.
        stay.add(self._newest_record(there))
        leaving = [n for n in there if n not in stay]
        room = self._room(base, number)
        room_for_steps = max(_SMALL_ROOM, room - self._left_for_steps(room, number))
        keep = min(self.settings.kept_of(room), room_for_steps)
        taken = ledger.budget(base) - ledger.reserved(base) - room
        goal_tokens = taken + keep
        most = self.settings.trail_of(room, keep)
        cut = base
        if self.settings.digests:
            cut = self._digested(cut, leaving, goal_tokens - (most if self._steps_gone(base) else 0))
        cut = self._without_least_useful(cut, leaving, number, goal_tokens, most)
        highest = min(taken + int(_LAST_RESORT * room), max(taken + room_for_steps, cut.total + _SHORT_TRAIL))
        cut = self._with_trail(cut, min(most, max(goal_tokens, highest) - cut.total))
        cut = cut if cut.note is not None else self._beginning_with_user(cut, stay)
        return replace(cut, steps=self._steps_gone(cut))

    def _left_for_steps(self, room: int, number: int) -> int:
        """Return the tokens to leave for the next steps, each taken to bring as much as the smallest of the latest.

        Where every step brings much, as parallel calls do, what must stay and a full trail would leave room for one. In
        a small room, next to nothing would be left.
        """
        if room < _ROOM_FOR_STEPS:
            return 0
        latest = range(max(0, number + 1 - _LATEST), number + 1)
        return int(_STEPS_AHEAD * min(self.ledger.history.spans[n].tokens for n in latest))

    def _newest_record(self, there: Sequence[int]) -> int:
        """Return the newest summary or checkpoint of at most a quarter of the budget; -1 if there is none."""
        history, budget = self.ledger.history, self.ledger.draft.budget
        for other in reversed(there):
            title = record_title(history.members(other)[0])
            if title not in (None, RECALLED, TRAIL) and history.spans[other].tokens * _RECORD_SHARE <= budget:
                return other
        return -1

    def _room(self, state: WindowState, number: int) -> int:
        """Return what is not fixed of the budget, the last user message taken off."""
        last = self.ledger.history.last_asked(number + 1)
        asked = 0 if last is None or self.ledger.stays(last) else self.ledger.history.spans[last].tokens
        return max(0, self.ledger.budget(state) - self.ledger.reserved(state) - state.fixed - asked)

    # -- an earlier trail that stands in the history

    def _is_kept(self, other: int, number: int) -> bool:
        """Return whether an exchange is not an earlier trail, which the next one replaces."""
        return not self._is_trail(other) or self._is_quoted(other, number)

    def _is_quoted(self, other: int, number: int) -> bool:
        """Return whether a trail is the user's last message: somebody quoted one, as it stands nowhere else."""
        history = self.ledger.history
        if other != history.last_user(number + 1):
            return False
        # In a loop with one user message, the last trail is the last message in the user's role as well. It stands
        # where cuts put it: behind what the user asked, before everything that was answered.
        return other in (0, number) or history.users[other : other + 1] != [other]

    def _is_trail(self, number: int) -> bool:
        return record_title(self.ledger.history.members(number)[0]) == TRAIL

    def _repeats(self, number: int) -> bool:
        """Return whether an exchange is an earlier trail, or a block of what was recalled: no step of its own."""
        return record_title(self.ledger.history.members(number)[0]) in (TRAIL, RECALLED)

    def _with_earlier_trail(self, state: WindowState, number: int) -> WindowState:
        """Return the state with a trail that came with the history, of a result that was stored, taken over."""
        earlier = next((n for n in state.numbers() if not self._is_kept(n, number)), None)
        if earlier is None or state.earlier.steps:
            return state
        record = records_in(self.ledger.history.members(earlier)[0].text)[0]
        return replace(state, earlier=read_trail(record.body, earlier) or Trail())

    # -- names that became known

    def _masked_again(self, state: WindowState, number: int) -> WindowState:
        """Return the state with the names masked that are known by now, in all that was written before."""
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
                action = shortened[position].action if position in shortened else "masked"
                shortened[position] = Deferred.of(after, count(after), action)
        return replace(state, shortened=shortened, fixed=fixed)

    # -- smaller instead of gone

    def _digested(self, state: WindowState, numbers: Sequence[int], goal: int) -> WindowState:
        """Return the state with old outputs as digests, then old arguments, oldest first, until the goal is reached."""
        shortened, saved = dict(state.shortened), 0
        at = self.ledger.history.members(state.judged - 1)[0]
        # All outputs before any arguments: arguments are what the model wrote itself and refers to most.
        for shorten in (self._digest_outputs, self._digest_arguments):
            for number in numbers:
                if state.total - saved <= goal:
                    break
                saved += shorten(number, shortened, at)
        return replace(state, shortened=shortened, tokens=state.tokens - saved)

    def _digest_outputs(self, number: int, shortened: dict[int, Deferred], at: Artifact) -> int:
        return sum(self._put(p, self._digest_of(p, at), shortened) for p in self._outputs(number))

    def _outputs(self, number: int) -> list[int]:
        artifacts, costs = self.ledger.history.artifacts, self.ledger.history.costs
        positions = self.ledger.positions(number)
        outputs = (p for p in positions if artifacts[p].kind is Kind.TOOL and costs[p] > _WORTH_IT)
        return [p for p in outputs if not artifacts[p].pinned and _is_text(artifacts[p])]

    def _put(self, position: int, shorter: Deferred, shortened: dict[int, Deferred]) -> int:
        """Put what is shorter in place of an artifact, and return the tokens that it saves at least."""
        saved = self.ledger.tokens_at(position, shortened) - shorter.tokens
        # With a long handle, a digest can be longer than a short text.
        if saved <= 0:
            return 0
        shortened[position] = shorter
        return saved

    def _digest_of(self, position: int, at: Artifact) -> Deferred:
        draft, whole = self.ledger.draft, self.whole[position]
        artifact, count = self.ledger.history.artifacts[position], draft.counter
        # A handle is only named where something is stored behind it.
        handle = f"; full text: handle {handle_of(whole.text)}" if self.settings.stores else ""
        head = f"[digest of {count.text(whole.text)} tokens{handle}]"
        most = count.artifact(artifact.revised(content=head)) + _DIGEST

        def made(max_tokens: int) -> Artifact:
            told = digest(whole.text, max_tokens, count=count.text)
            return artifact.revised(content=draft.mask(f"{head} {told}".rstrip(), at=at))

        def make() -> Artifact:
            if self.settings.stores:
                self.handle(whole.text)
            return self._within(most, made)

        return Deferred(most, make, "digested")

    def _within(self, max_tokens: int, made: Callable[[int], Artifact]) -> Artifact:
        """Return what is made with a limit, in at most so many tokens: masking can make a text longer."""
        limit = _DIGEST
        while True:
            artifact = made(limit)
            if not limit or self.ledger.draft.counter.artifact(artifact) <= max_tokens:
                return artifact
            limit //= 2

    def _digest_arguments(self, number: int, shortened: dict[int, Deferred], at: Artifact) -> int:
        position = self.ledger.positions(number)[0]
        artifact, draft = self.ledger.history.artifacts[position], self.ledger.draft
        count = draft.counter.text
        large = [tokens for call in artifact.calls if (tokens := count(call.arguments)) > _WORTH_IT]
        if not large:
            return 0
        most = self.ledger.history.costs[position] - sum(large) + _DIGEST * len(large)

        def made(max_tokens: int) -> Artifact:
            calls = (
                replace(call, arguments=draft.mask(digest_arguments(call.arguments, max_tokens, count=count), at=at))
                if count(call.arguments) > _WORTH_IT
                else call
                for call in artifact.calls
            )
            return draft.mask_again(artifact.revised(calls=tuple(calls)), at)

        return self._put(position, Deferred(most, lambda: self._within(most, made), "digested"), shortened)

    def handle(self, text: str) -> str:
        """Return the handle of a text that is to be stored in full."""
        handle = handle_of(text)
        self.handles[handle] = text
        return handle

    # -- gone

    def _without_least_useful(
        self, state: WindowState, leaving: Sequence[int], number: int, goal: int, most: int
    ) -> WindowState:
        """Return the state without the exchanges that are least useful for their tokens; the trail tells of them."""
        ledger = self.ledger
        costs = {n: ledger.tokens(n, state.shortened) for n in leaving}
        # If exchanges have to leave, the trail needs room as well; it is freed along with them.
        room_for_trail = most if self._steps_gone(state) or state.total > goal else 0
        gone: set[int] = set()
        total = state.total
        # Age divides what an exchange is worth, and so does the root of its size: twice as large is not half as useful.
        for other in sorted(leaving, key=lambda n: (self._weight(n) / (number - n) / sqrt(max(1, costs[n])), n)):
            if total <= goal - room_for_trail:
                break
            gone.add(other)
            total -= costs[other]
        return ledger.with_kept(state, (n for n in state.kept if n not in gone))

    def _beginning_with_user(self, state: WindowState, stay: Iterable[int]) -> WindowState:
        """Return the state with what makes the context begin with a user message; where there is a trail, that is one.

        The message that opened the first turn comes back where it fits; else what stands before the next one goes.
        """
        ledger, history, stay = self.ledger, self.ledger.history, set(stay)
        first = next((n for n in state.kept), None)
        if first is None or history.spans[first].has_user_role:
            return state
        opener = history.opener(first)
        # Providers refuse a context that begins with the assistant or a tool result.
        if opener is not None and opener not in state.kept:
            return ledger.with_kept(state, (opener, *state.kept))
        leading = list(takewhile(lambda n: not history.spans[n].has_user_role and n not in stay, state.kept))
        return ledger.with_kept(state, state.kept[len(leading) :])

    def _weight(self, number: int) -> float:
        first = self.ledger.history.members(number)[0]
        return self.settings.weights["tool" if first.calls else first.kind.value]

    # -- the trail

    def _steps_gone(self, state: WindowState) -> int:
        """Return how many steps have left by the latest cut; those of a stored trail included."""
        history, steps = self.ledger.history, self._steps
        for number in range(len(steps) - 1, state.judged):
            calls = history.members(number)[0].calls
            steps.append(steps[-1] + (0 if self._repeats(number) else max(1, len(calls))))
        there = sum(steps[n + 1] - steps[n] for n in state.kept if n < state.judged)
        return state.earlier.steps + steps[state.judged] - there

    def _with_trail(self, state: WindowState, most: int) -> WindowState:
        """Return the state with a trail of at most so many tokens; none where there is no room."""
        if self.settings.trail == 0 or not self._steps_gone(state):
            return state
        # A trail says no more than what has left said itself.
        most = min(most, _LEAST_TRAIL + self._tokens_gone(state))
        if most < _LEAST_TRAIL + self.ledger.draft.counter.artifact(_NO_TRAIL):
            return state
        return replace(state, note=Deferred(most, lambda: self._written(state, most)), tokens=state.tokens + most)

    def _tokens_gone(self, state: WindowState) -> int:
        kept, spans = set(state.kept), self.ledger.history.spans
        return sum(spans[n].tokens for n in self._tellable(state) if n not in kept)

    def _tellable(self, state: WindowState) -> range:
        """Return the exchanges that a trail can tell of."""
        return range(max(0, state.judged - 1 - _REMEMBERED), state.judged - 1)

    def _written(self, state: WindowState, most: int) -> Artifact:
        """Return the trail of what is not kept, in at most so many tokens."""
        draft, count, number = self.ledger.draft, self.ledger.draft.counter, state.judged - 1
        at = self.ledger.history.members(number)[0]
        told = self._tellable(state)
        for old in [n for n in self._traces if n < told.start]:
            del self._traces[old]
        traces = [(n, self._trace(n)) for n in told if not self._repeats(n)]
        kept = set(state.kept)
        trail = state.earlier.extended((n, trace) for n, trace in traces if n not in kept)
        trail = replace(trail, steps=self._steps_gone(state))
        uses = Counter(name for _, trace in traces for name in trace.used)
        limit, held = most - count.artifact(_NO_TRAIL), self._names_in_context(state)
        asked = self.ledger.history.asked
        # A first message too large to stay as the task still says what the work is.
        opening = asked[0] if self.ledger.task is None and asked and asked[0] not in kept else None
        while True:
            text = trail.text(limit, count=count.text, uses=uses, now=number, held=held, opening=opening)
            note = Artifact(Kind.USER, write_record(TRAIL, draft.mask(text, at=at)))
            if count.artifact(note) <= most or limit <= 0:
                return note
            limit -= limit // 8 + 1  # masking what a line brought together made it longer

    def _trace(self, number: int) -> Trace:
        if number not in self._traces:
            positions = self.ledger.positions(number)
            members = [self.whole[p] for p in positions]
            self._traces[number] = trace_of(members, self._handles(members) if self.settings.stores else None)
        return self._traces[number]

    def _handles(self, members: Sequence[Artifact]) -> dict[int, str]:
        """Return the handles of what a line of the trail cannot tell in full."""
        count = self.ledger.draft.counter.text
        large = [
            place
            for place, artifact in enumerate(members)
            if (count(artifact.text) > _WORTH_IT if artifact.kind is Kind.TOOL else len(artifact.text) > _HANDLED)
        ]
        return {place: self.handle(members[place].text) for place in large}

    def _names_in_context(self, state: WindowState) -> frozenset[str]:
        """Return the names that stand in what is kept, which need not be told again."""
        kept = (self.ledger.artifact(state, p) for n in state.kept for p in self.ledger.positions(n))
        return frozenset().union(*map(_names_of, kept))


_NO_TRAIL: Final = Artifact(Kind.USER, write_record(TRAIL, ""))


def _is_text(artifact: Artifact) -> bool:
    """Tell an artifact that holds nothing but texts that may be changed."""
    parts = artifact.content
    return isinstance(parts, str) or all(part.text is not None and part.editable for part in parts)


def _names_of(artifact: Artifact) -> frozenset[str]:
    names: set[str] = set(names_in(artifact.text))
    for call in artifact.calls:
        names.add(call.name)
        names.update(name for _, name in labeled_names(call.arguments))
    return frozenset(names)
