"""Pairs and exchanges of a raw history, in which results may be late or missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, TypeAlias

from ctxguard.artifacts import Artifact, Kind, ToolCall
from ctxguard.errors import HistoryError


@dataclass(frozen=True, slots=True)
class Exchange:
    """One exchange: an assistant artifact that calls tools with all of its results, or one other artifact.

    Attributes:
        artifacts: the members, in the order of the history.
        positions: their positions in the history; late results are not adjacent.
        open: True while one of its calls is unanswered and only its own results have followed.
    """

    artifacts: tuple[Artifact, ...]
    positions: tuple[int, ...]
    open: bool = False


@dataclass(slots=True)
class Pairing:
    """Which result answers which call.

    Attributes:
        owner: position of a result → (position of the calling artifact, number of the call in it).
        unanswered: (position of the calling artifact, number of the call), in order.
        orphans: positions of results that answer no call.
        unclear: those of the orphans that answer a call, but which one is unknown.
        doubtful: those of the unanswered calls that they may answer.
        duplicates: positions of results whose call already had its result.
        turn: position of the latest user message, -1 if there is none.
    """

    owner: dict[int, tuple[int, int]] = field(default_factory=dict)
    unanswered: list[tuple[int, int]] = field(default_factory=list)
    orphans: list[int] = field(default_factory=list)
    unclear: set[int] = field(default_factory=set)
    doubtful: set[tuple[int, int]] = field(default_factory=set)
    duplicates: list[int] = field(default_factory=list)
    turn: int = -1


def whole_until(artifacts: Sequence[Artifact], begin: int = 0, end: int | None = None) -> int | None:
    """Return where the last whole exchange ends, or None if not every call is followed by its results, all with ids.

    `None` is inconclusive; a position is exact, the same that `pair` would find. Much cheaper than `pair`.

    Args:
        artifacts: the history.
        begin: position at which to start; an exchange begins there.
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


def pair(
    artifacts: Sequence[Artifact], begin: int = 0, *, earlier: Pairing | None = None, is_end: bool = True
) -> Pairing:
    """Match tool results with tool calls, and leave ambiguous ones open.

    Ids repeat across steps, are sometimes missing, and results come late and in parallel. The evidence, in this order:
    a result answers a call with its id; without an id, on either side, a call of its tool; without a name, any call.
    Among several such calls, those directly before the results take precedence, then those of the current turn, then
    those before the latest user message. Consecutive results are matched in order if there are as many as calls, or
    more, provided that all calls of that kind are directly before them. With fewer results than calls it is unknown
    which call each of them answers, so none is matched.

    Args:
        artifacts: the history.
        begin: position to continue from; the artifact there is not a result.
        earlier: the pairing before it; a second result of a call that was answered there is an orphan.
        is_end: whether the history ends here, so that more results may follow the last one.
    """
    found, waiting = Pairing(turn=earlier.turn if earlier else -1), _Waiting()
    latest = begin
    while latest and artifacts[latest - 1].kind is Kind.ASSISTANT:
        latest -= 1
    for place, number in earlier.unanswered if earlier else ():
        tier = _LEFT_BEHIND if place < found.turn else _IN_TURN if place < latest else _LATEST
        waiting.add((place, number), artifacts[place].calls[number], tier)
    answered: set[str] = set()
    position = begin
    while position < len(artifacts):
        artifact = artifacts[position]
        end = position + 1
        if artifact.kind is Kind.TOOL:
            while end < len(artifacts) and artifacts[end].kind is Kind.TOOL:
                end += 1
            may_go_on = is_end and end == len(artifacts) and not holds_all_results(artifacts[end - 1])
            _pair_results(artifacts, range(position, end), waiting, found, answered, may_go_on=may_go_on)
            waiting.demote(_IN_TURN)
        elif artifact.kind is Kind.USER:
            found.turn = position
            waiting.demote(_LEFT_BEHIND)
        elif artifact.kind is not Kind.ASSISTANT:
            waiting.demote(_IN_TURN)
        for number, call in enumerate(artifact.calls):
            waiting.add((position, number), call)
        position = end
    found.owner = dict(sorted(found.owner.items()))
    found.orphans.sort()
    found.duplicates.sort()
    found.unanswered = sorted(waiting.calls)
    return found


def _pair_results(
    artifacts: Sequence[Artifact],
    places: Iterable[int],
    waiting: _Waiting,
    found: Pairing,
    answered: set[str],
    *,
    may_go_on: bool,
) -> None:
    """Pair consecutive results, the best evidence first."""
    left = list(places)
    for evidence in _EVIDENCE:
        groups: dict[_Key | None, list[int]] = {}
        for place in left:
            groups.setdefault(evidence(artifacts[place]), []).append(place)
        left = groups.pop(None, [])
        for key, results in groups.items():
            slots, is_clear = waiting.calls_for(key, len(results), may_go_on=may_go_on) if key else ([], True)
            if not is_clear:
                found.orphans += results
                found.unclear.update(results)
                found.doubtful.update(slots)
                continue
            for place, slot in zip(results, slots, strict=False):
                call = waiting.answer(slot)
                found.owner[place] = slot
                if call.id is not None:
                    answered.add(call.id)
            left += results[len(slots) :]
    for place in left:
        # only if the call was answered here is it surely a duplicate; any other result may have lost its call
        (found.duplicates if artifacts[place].answers in answered else found.orphans).append(place)


class _Waiting:
    """The calls that wait for a result, by position and number; finding one takes constant time."""

    def __init__(self) -> None:
        self.calls: dict[_Slot, ToolCall] = {}
        self._tiers: tuple[dict[_Key, dict[_Slot, None]], ...] = ({}, {}, {})

    def add(self, slot: _Slot, call: ToolCall, tier: int = 0) -> None:
        self.calls[slot] = call
        for key in _keys(call):
            self._tiers[tier].setdefault(key, {})[slot] = None

    def demote(self, to: int) -> None:
        """Move the calls of the better tiers into tier `to`, so that newer calls take precedence."""
        for tier in reversed(self._tiers[:to]):
            for key, slots in tier.items():
                self._tiers[to].setdefault(key, {}).update(slots)
            tier.clear()

    def calls_for(self, key: _Key, results: int, *, may_go_on: bool) -> tuple[list[_Slot], bool]:
        """Return the calls that so many results answer, and True; if ambiguous, all that they may answer, and False."""
        tiers = [slots for tier in self._tiers if (slots := tier.get(key))]
        if not tiers:
            return [], True
        if results < len(tiers[0]) and not may_go_on:
            return list(tiers[0]), False
        if results > len(tiers[0]) and len(tiers) > 1:  # late results, or duplicates
            return [slot for slots in tiers for slot in slots], False
        return list(islice(tiers[0], results)), True

    def answer(self, slot: _Slot) -> ToolCall:
        call = self.calls.pop(slot)
        for key in _keys(call):
            for tier in self._tiers:
                tier.get(key, {}).pop(slot, None)
        return call


_Slot: TypeAlias = tuple[int, int]
_Key: TypeAlias = tuple[str, "str | None"]
_ANY_CALL: Final[_Key] = ("any", None)
_LATEST, _IN_TURN, _LEFT_BEHIND = range(3)
# recordings drop the id on either side: a result with an id may answer a call without, and the reverse
_EVIDENCE: Final[tuple[Callable[[Artifact], _Key | None], ...]] = (
    lambda result: None if result.answers is None else ("id", result.answers),
    lambda result: None if result.answers is None else ("id", None),
    lambda result: None if result.answers is not None or result.name is None else ("tool", result.name),
    lambda result: None if result.answers is not None or result.name is not None else _ANY_CALL,
)


def _keys(call: ToolCall) -> tuple[_Key, ...]:
    return ("id", call.id), ("tool", call.name), _ANY_CALL


def holds_all_results(artifact: Artifact) -> bool:
    """Return whether a message contains all results, as its format requires, so that no further one can follow."""
    return artifact.kind is Kind.TOOL and getattr(artifact.source, "holds_all_results", False)


def exchanges(artifacts: Iterable[Artifact]) -> tuple[Exchange, ...]:
    """Split a history into exchanges, in the order in which each begins.

    Every artifact is in exactly one exchange. A result that answers no call is an exchange of its own.

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
