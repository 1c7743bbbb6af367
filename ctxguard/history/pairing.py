"""Pairs and exchanges of a raw history, in which results may be late or missing."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from ctxguard.artifacts import Artifact, Kind, ToolCall
from ctxguard.errors import HistoryError


@dataclass(frozen=True, slots=True)
class Exchange:
    """Hold what belongs together: an assistant artifact that calls tools with all of its results, or one artifact.

    Attributes:
        artifacts: the members, in the order of the history.
        positions: where they stand in the history; results that came late are not adjacent.
        open: True while a call of it is unanswered and nothing but its own results has followed.
    """

    artifacts: tuple[Artifact, ...]
    positions: tuple[int, ...]
    open: bool = False


@dataclass(slots=True)
class Pairing:
    """Describe which result answers which call.

    Attributes:
        owner: position of a result → (position of the calling artifact, number of the call in it).
        unanswered: (position of the calling artifact, number of the call), in order.
        orphans: positions of results that answer no call.
        duplicates: positions of results whose call already had its result.
        turn: position of the latest user message, -1 where there is none.
    """

    owner: dict[int, tuple[int, int]] = field(default_factory=dict)
    unanswered: list[tuple[int, int]] = field(default_factory=list)
    orphans: list[int] = field(default_factory=list)
    duplicates: list[int] = field(default_factory=list)
    turn: int = -1


def whole_until(artifacts: Sequence[Artifact], begin: int = 0, end: int | None = None) -> int | None:
    """Return where the last whole exchange ends, or None where not every call is followed by its results, all with ids.

    `None` is inconclusive; a position is exact, the same that `pair` would find. Much cheaper than `pair`.

    Args:
        artifacts: the history.
        begin: position from which on to look; an exchange begins there.
        end: position up to which to look; None means the end of the history.
    """
    waiting: Counter[str | None] = Counter()
    left = 0
    whole = begin
    for position, artifact in enumerate(artifacts[begin:end], begin):
        if artifact.kind is Kind.TOOL:
            if artifact.answers is None or not waiting[artifact.answers]:
                return None
            waiting[artifact.answers] -= 1
            left -= 1
        elif left:
            return None
        elif artifact.calls:
            waiting, left = Counter(call.id for call in artifact.calls), len(artifact.calls)
            if None in waiting:
                return None
        if not left:
            whole = position + 1
    return whole


def pair(artifacts: Sequence[Artifact], begin: int = 0, *, earlier: Pairing | None = None) -> Pairing:
    """Match tool results with tool calls: by id where there is one, else in order.

    Ids repeat across steps, are sometimes missing, and results come late and in parallel. A result takes the first
    unanswered call of its id in the current turn; calls that a user message left behind come after those, so that an
    abandoned call does not steal the result of a later one that reuses its id. Without an id, on either side, the
    first unanswered call of the same tool is taken, else the first unanswered one.

    Args:
        artifacts: the history.
        begin: position to go on from.
        earlier: what was found before it; a second result of what was answered there is an orphan.
    """
    found, waiting = Pairing(turn=earlier.turn if earlier else -1), _Waiting()
    for place, number in earlier.unanswered if earlier else ():
        waiting.add((place, number), artifacts[place].calls[number], left_behind=place < found.turn)
    answered: set[str] = set()
    for position, artifact in enumerate(artifacts[begin:], begin):
        kind = artifact.kind
        if kind is Kind.USER:
            found.turn = position
            waiting.begin_turn()
        elif kind is Kind.TOOL:
            slot = waiting.call_for(artifact)
            if slot is not None:
                call = waiting.calls.pop(slot)
                found.owner[position] = slot
                if call.id is not None:
                    answered.add(call.id)
            # only what was answered here is surely a duplicate; any other result may have lost its call
            elif artifact.answers is not None and artifact.answers in answered:
                found.duplicates.append(position)
            else:
                found.orphans.append(position)
        elif artifact.calls:
            for number, call in enumerate(artifact.calls):
                waiting.add((position, number), call)
    found.unanswered = sorted(waiting.calls)
    return found


class _Waiting:
    """Hold the calls that wait for a result, by position and number, so that finding one takes constant time."""

    def __init__(self) -> None:
        self.calls: dict[tuple[int, int], ToolCall] = {}
        self._current: _Slots = {}
        self._left_behind: _Slots = {}

    def add(self, slot: tuple[int, int], call: ToolCall, *, left_behind: bool = False) -> None:
        self.calls[slot] = call
        for key in (_ANY_CALL, ("id", call.id), ("tool", call.name)):
            (self._left_behind if left_behind else self._current).setdefault(key, deque()).append(slot)

    def begin_turn(self) -> None:
        # they come after the calls of the new turn, see `pair`
        for key, slots in self._current.items():
            self._left_behind.setdefault(key, deque()).extend(slots)
        self._current = {}

    def call_for(self, result: Artifact) -> tuple[int, int] | None:
        if not self.calls:
            return None
        both = (self._current, self._left_behind)
        # recordings drop the id on either side: a result with one may answer a call without, and the other way round
        if result.answers is not None:
            found = (self._first(slots, ("id", wanted)) for wanted in (result.answers, None) for slots in both)
        else:
            found = (self._first(slots, key) for slots in both for key in (("tool", result.name), _ANY_CALL))
        return next((slot for slot in found if slot is not None), None)

    def _first(self, slots: _Slots, key: tuple[str, str | None]) -> tuple[int, int] | None:
        """Return the first call of a kind that still waits; those that were answered go when they are met."""
        queue = slots.get(key, ())
        while queue and queue[0] not in self.calls:
            queue.popleft()
        return queue[0] if queue else None


_Slots: TypeAlias = dict[tuple[str, "str | None"], deque[tuple[int, int]]]
_ANY_CALL: Final = ("any", None)


def exchanges(artifacts: Iterable[Artifact]) -> tuple[Exchange, ...]:
    """Cut a history into exchanges, in the order in which each begins.

    Every artifact is in exactly one exchange. A result that answers no call stands alone.

    Raises:
        HistoryError: an item is not an `Artifact`.
    """
    history = tuple(artifacts)
    for position, artifact in enumerate(history):
        if not isinstance(artifact, Artifact):
            raise HistoryError(f"expected an Artifact, got {type(artifact).__name__}", position=position)
    found = pair(history)
    members: dict[int, list[int]] = {}
    for position in range(len(history)):
        members.setdefault(found.owner.get(position, (position, 0))[0], []).append(position)
    waiting = {position for position, _ in found.unanswered}
    last = max(members) if members else -1
    return tuple(
        Exchange(tuple(history[p] for p in positions), tuple(positions), open=begin == last and begin in waiting)
        for begin, positions in sorted(members.items())
    )
