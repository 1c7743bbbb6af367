"""Cut a window, graded: digests first, then arguments, then whole exchanges, which go on the trail.

Every share here is one of the *room*: what system, task, pins and the last user message leave of the budget. So the
same settings work where a system prompt takes nine tenths of the budget and where there is none. The order and the
constants were measured by next-action support and bill on recorded sessions, see `benchmarks/what_stays.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import takewhile
from math import sqrt
from types import MappingProxyType
from typing import Final

from ctxguard.artifacts import Artifact, Kind
from ctxguard.content.digests import digest, digest_arguments
from ctxguard.content.names import names_in
from ctxguard.history import RECALLED, TRAIL, record_title, records_in, write_record
from ctxguard.stages.bound_tool_output import handle_of
from ctxguard.stages.trail import Trace, Trail, names_of_arguments, read_trail, trace_of
from ctxguard.stages.window_state import Ledger, WindowState

__all__ = ["WEIGHTS", "Cutter", "WindowSettings"]

WEIGHTS: Final[Mapping[str, float]] = MappingProxyType({"user": 2.0, "assistant": 1.0, "tool": 1.0})
"""How much an exchange weighs when some have to leave, by who begins it; `tool` is a step that calls tools."""
_DIGEST: Final = 60
"""Tokens of a digest, of an output or of arguments."""
_WORTH_IT: Final = 90
"""Tokens up to which a digest would save too little."""
_TARGET: Final = 0.4
_TRAIL: Final = 0.6
"""Share of what a cut leaves that the trail may take."""
_SMALL_ROOM: Final = 1_000
_OF_SMALL_ROOM: Final = 0.9
"""In a small room a deep cut saves nothing, since the system prompt is most of the prompt, and loses everything: of so
many tokens this share is kept."""
_ENOUGH: Final = 13_000
_OF_LARGE_ROOM: Final = 0.6
"""In a large room a cut that frees so many tokens is rare enough; up to this share of the room, the rest is kept."""
_LAST_RESORT: Final = 0.9
"""Share of the room up to which a trail may be written where what must stay exceeds the goal."""
_LEAST_TRAIL: Final = 24
_RECORD_SHARE: Final = 4
"""A record is kept unless it takes more than a quarter of the budget."""
_HANDLED: Final = 200
"""Characters of what a person said that a line of the trail tells; what is longer gets a handle."""


@dataclass(frozen=True, slots=True)
class WindowSettings:
    """Hold the settings of a window.

    Attributes:
        target: share of the room that a cut frees down to; None means by the size of the room, see `kept_of`.
        trail: share of the room that the trail may take, part of the target; None means 0.6 of what a cut leaves.
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

        Without a target, 0.4 of it, and more where cutting deeper would not make cuts rarer enough to pay: 0.9 of a
        room of up to 1,100 tokens, and all but 13,000 tokens of a large one, up to 0.6 of it.
        """
        if self.target is not None:
            return int(self.target * room)
        small = min(int(_OF_SMALL_ROOM * room), _SMALL_ROOM)
        large = min(int(_OF_LARGE_ROOM * room), room - _ENOUGH)
        return max(int(_TARGET * room), small, large)

    def trail_of(self, room: int, kept: int) -> int:
        """Return the tokens that the trail may take of a room, of which a cut leaves so many."""
        return int(_TRAIL * kept) if self.trail is None else min(kept, int(self.trail * room))


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
    _uses: dict[str, int] = field(default_factory=dict)
    _used_by: int = 0
    _names: dict[int, tuple[Artifact, frozenset[str]]] = field(default_factory=dict)
    _digests: dict[int, Artifact] = field(default_factory=dict)
    _names_only: dict[int, Artifact] = field(default_factory=dict)

    def cut(self, state: WindowState, number: int) -> WindowState:
        """Return the state after a cut at an exchange, as small as what must stay allows, down to the goal."""
        ledger, history = self.ledger, self.ledger.history
        base = replace(self._masked_again(self._with_earlier_trail(state, number), number), cut_at=number, note=None)
        base = replace(base, calibration=base.calibration.after_cut())
        # An earlier trail goes: the new one tells what it told.
        there = [n for n in state.numbers() if self._is_kept(n, number)]
        base = ledger.with_kept(base, there)
        stay = set(history.must_stay(ledger.draft.keep_recent, ledger.task, number + 1))
        # Without it, what a checkpoint or summary stands for would be nowhere.
        stay.add(self._newest_record(there))
        leaving = [n for n in there if n not in stay]
        room = self._room(base, number)
        keep = self.settings.kept_of(room)
        goal = ledger.budget(base) - ledger.reserved(base) - room + keep
        most = self.settings.trail_of(room, keep)
        cut = base
        if self.settings.digests:
            cut = self._digested(cut, leaving, goal - (most if base.trail.steps else 0))
        cut = self._left(cut, leaving, number, goal, most)
        cut = self._with_trail(cut, number, min(most, int(max(goal, self._highest(cut, room)) - cut.total)))
        return cut if cut.note is not None else self._beginning_with_user(cut, stay)

    def _newest_record(self, there: Sequence[int]) -> int:
        """Return the newest summary or checkpoint of at most a quarter of the budget; -1 if there is none."""
        history, budget = self.ledger.history, self.ledger.draft.budget
        for other in reversed(there):
            title = record_title(history.members(other)[0])
            if title not in (None, RECALLED, TRAIL) and history.spans[other].tokens * _RECORD_SHARE <= budget:
                return other
        return -1

    def _highest(self, state: WindowState, room: int) -> float:
        return self.ledger.budget(state) - self.ledger.reserved(state) - (1 - _LAST_RESORT) * room

    def _room(self, state: WindowState, number: int) -> int:
        """Return what is not fixed of the budget, the last user message taken off."""
        last = self.ledger.history.last_asked(number + 1)
        asked = 0 if last is None or self.ledger.stays(last) else self.ledger.history.spans[last].tokens
        return max(0, self.ledger.budget(state) - self.ledger.reserved(state) - state.fixed - asked)

    # -- an earlier trail that stands in the history

    def _is_kept(self, other: int, number: int) -> bool:
        """Return whether an exchange is not an earlier trail, which the next one replaces."""
        return other == self.ledger.history.last_user(number + 1) or not self._is_trail(other)

    def _is_trail(self, number: int) -> bool:
        return record_title(self.ledger.history.members(number)[0]) == TRAIL

    def _with_earlier_trail(self, state: WindowState, number: int) -> WindowState:
        """Return the state with a trail that came with the history, of a result that was stored, taken over."""
        earlier = next((n for n in state.numbers() if not self._is_kept(n, number)), None)
        if earlier is None or state.trail.steps:
            return state
        record = records_in(self.ledger.history.members(earlier)[0].text)[0]
        return replace(state, trail=read_trail(record.body, earlier) or Trail())

    # -- names that became known

    def _masked_again(self, state: WindowState, number: int) -> WindowState:
        """Return the state with the names masked that are known by now, in all that was written before."""
        ledger, history = self.ledger, self.ledger.history
        if not ledger.draft.remasks:
            return state
        at = history.members(number)[0]
        kept = {p: ledger.stays(n) for n in state.numbers() if n < number for p in ledger.positions(n)}
        kept |= dict.fromkeys(history.authority[: state.authority], True)
        shortened, fixed = dict(state.shortened), state.fixed
        for position, is_fixed in kept.items():
            before = shortened.get(position, history.artifacts[position])
            after = ledger.draft.mask_again(before, at)
            if after is not before:
                shortened[position] = after
                (self._made if self.is_digest(before) else self._renamed)(after)
                if is_fixed:
                    fixed += ledger.draft.counter.artifact(after) - ledger.draft.counter.artifact(before)
        return replace(state, shortened=shortened, fixed=fixed)

    def _renamed(self, artifact: Artifact) -> None:
        self._names_only[id(artifact)] = artifact

    def is_renamed(self, artifact: Artifact) -> bool:
        """Tell an artifact of which a cut made nothing smaller: it only masked names that had become known."""
        return id(artifact) in self._names_only

    # -- smaller instead of gone

    def _digested(self, state: WindowState, numbers: Sequence[int], goal: int) -> WindowState:
        """Return the state with old outputs as digests, then old arguments, oldest first, until the goal is reached."""
        shortened, saved = dict(state.shortened), 0
        at = None if state.cut_at is None else self.ledger.history.members(state.cut_at)[0]
        # All outputs before any arguments: arguments are what the model wrote itself and refers to most.
        for shorten in (partial(self._digest_outputs, at), self._digest_arguments):
            for number in numbers:
                if state.total - saved <= goal:
                    break
                saved += shorten(number, shortened)
        return replace(state, shortened=shortened, tokens=state.tokens - saved)

    def _digest_outputs(self, at: Artifact | None, number: int, shortened: dict[int, Artifact]) -> int:
        return sum(self._put(p, self._digest_of(p, at), shortened) for p in self._outputs(number))

    def _outputs(self, number: int) -> list[int]:
        artifacts, costs = self.ledger.history.artifacts, self.ledger.history.costs
        positions = self.ledger.positions(number)
        outputs = (p for p in positions if artifacts[p].kind is Kind.TOOL and costs[p] > _WORTH_IT)
        return [p for p in outputs if not artifacts[p].pinned and _is_text(artifacts[p])]

    def _put(self, position: int, artifact: Artifact, shortened: dict[int, Artifact]) -> int:
        """Put an artifact in place of a larger one, and return the tokens that it saves."""
        count, history = self.ledger.draft.counter.artifact, self.ledger.history
        before = shortened.get(position, history.artifacts[position])
        saved = count(before) - count(artifact)
        # A digest can be longer than a short text with long names.
        if saved <= 0:
            return 0
        shortened[position] = artifact
        return saved

    def _digest_of(self, position: int, at: Artifact | None) -> Artifact:
        draft, whole = self.ledger.draft, self.whole[position]
        count = draft.counter.text
        # A handle is only named where something is stored behind it.
        handle = f"; full text: handle {self.handle(whole.text)}" if self.settings.stores else ""
        told = digest(whole.text, _DIGEST, count=count)
        text = draft.mask(f"[digest of {count(whole.text)} tokens{handle}] {told}".rstrip(), at=at)
        return self._made(self.ledger.history.artifacts[position].revised(content=text))

    def _made(self, artifact: Artifact) -> Artifact:
        self._digests[id(artifact)] = artifact
        return artifact

    def is_digest(self, artifact: Artifact) -> bool:
        """Tell an artifact that a cut made a digest of, or of whose arguments."""
        return id(artifact) in self._digests

    def _digest_arguments(self, number: int, shortened: dict[int, Artifact]) -> int:
        position = self.ledger.positions(number)[0]
        artifact = shortened.get(position, self.ledger.history.artifacts[position])
        if not artifact.calls:
            return 0
        draft = self.ledger.draft
        count = draft.counter.text
        calls = tuple(
            replace(call, arguments=draft.mask(digest_arguments(call.arguments, _DIGEST, count=count)))
            if count(call.arguments) > _WORTH_IT
            else call
            for call in artifact.calls
        )
        return (
            0 if calls == artifact.calls else self._put(position, self._made(artifact.revised(calls=calls)), shortened)
        )

    def handle(self, text: str) -> str:
        """Return the handle of a text that is to be stored in full."""
        handle = handle_of(text)
        self.handles[handle] = text
        return handle

    # -- gone

    def _left(self, state: WindowState, leaving: Sequence[int], number: int, goal: int, most: int) -> WindowState:
        """Return the state without the exchanges that are least useful for their tokens; the trail tells of them."""
        ledger = self.ledger
        costs = {n: ledger.tokens(n, state.shortened) for n in leaving}
        # If exchanges have to leave, the trail needs room as well; it is freed along with them.
        room_for_trail = most if state.trail.steps or state.total > goal else 0
        gone: set[int] = set()
        total = state.total
        # Age divides what an exchange is worth, and so does the root of its size: twice as large is not half as useful.
        for other in sorted(leaving, key=lambda n: (self._weight(n) / (number - n) / sqrt(max(1, costs[n])), n)):
            if total <= goal - room_for_trail:
                break
            gone.add(other)
            total -= costs[other]
        kept = [n for n in state.kept if n not in gone]
        uses = self._uses_before(number)
        trail = state.trail.extended([(n, self._trace(n)) for n in sorted(gone)], uses, number) if gone else state.trail
        return ledger.with_kept(replace(state, trail=trail), (n for n in kept if n not in gone))

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

    def _with_trail(self, state: WindowState, number: int, most: int) -> WindowState:
        """Return the state with the trail written anew, in at most so many tokens; none where there is no room."""
        draft, count = self.ledger.draft, self.ledger.draft.counter
        most -= count.artifact(Artifact(Kind.USER, write_record(TRAIL, "")))
        if self.settings.trail == 0 or not state.trail.steps:
            return state
        uses, held = self._uses_before(number), self._held(state)
        while most >= _LEAST_TRAIL:
            told = state.trail.text(most, count=count.text, uses=uses, now=number, held=held)
            text = draft.mask(told, at=self.ledger.history.members(number)[0])
            if not text:
                break
            if count.text(text) <= most:
                note = Artifact(Kind.USER, write_record(TRAIL, text))
                return replace(state, note=note, tokens=state.tokens + count.artifact(note))
            most -= most // 8 + 1  # masking what a line brought together made it longer
        return state

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

    def _uses_before(self, number: int) -> Mapping[str, int]:
        """Return in how many messages of the model each name stands, the exchange at which is cut left out."""
        for other in range(self._used_by, number):
            if self.ledger.history.members(other)[0].kind is Kind.ASSISTANT:
                for name in self._trace(other).used:
                    self._uses[name] = self._uses.get(name, 0) + 1
        self._used_by = max(self._used_by, number)
        return self._uses

    def _held(self, state: WindowState) -> frozenset[str]:
        """Return the names that stand in what is kept, which need not be told again."""
        kept = [a for n in state.kept for a in self.ledger.members(n, state.shortened)]
        self._names = {id(a): self._names.get(id(a)) or (a, _names_of(a)) for a in kept}
        return frozenset().union(*(names for _, names in self._names.values()))


def _is_text(artifact: Artifact) -> bool:
    """Tell an artifact that holds nothing but texts that may be changed."""
    parts = artifact.content
    return isinstance(parts, str) or all(part.text is not None and part.editable for part in parts)


def _names_of(artifact: Artifact) -> frozenset[str]:
    names: set[str] = set(names_in(artifact.text))
    for call in artifact.calls:
        names.add(call.name)
        names.update(names_of_arguments(call.arguments))
    return frozenset(names)
