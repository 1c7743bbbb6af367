"""Drop some exchanges and keep the rest, the same way for every strategy: what must stay stays, cuts are noted.

A strategy chooses among the exchanges up to some point that moves in steps; what came since stays. So between two such
points prompts only grow at their end.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import Final, NamedTuple, TypeAlias

from ctxguard.artifacts import Artifact
from ctxguard.draft import Cut, Draft
from ctxguard.errors import ConfigError
from ctxguard.history import Unit
from ctxguard.stages.cuts import with_cut
from ctxguard.stages.growing import GrowingHistory

__all__ = ["Choose", "Note", "SelectedHistory", "Settle", "check_every", "must_stay", "selected", "settled", "widening"]

Choose: TypeAlias = Callable[[int], Sequence[int]]
"""Say which of the first so many exchanges stay, in order; a function of these alone."""
Settle: TypeAlias = Callable[[int], int]
"""Say how many of so many exchanges are chosen among; it never goes back as their number grows."""
Note: TypeAlias = Callable[[int, int, int], Artifact | None]
"""Give the message that stands at a point, or None: by the point, the end, and how many artifacts are gone before."""

_POINTS: Final = 2
"""Points whose choice is remembered: that of this call and that of the call before."""
_WIDENING: Final = 100


def check_every(every: int) -> int:
    """Return the setting, or say that it is out of range.

    Raises:
        ConfigError: `every` is below 1.
    """
    if every < 1:
        raise ConfigError(f"every must be 1 exchange or more, not {every}", setting="every")
    return every


def settled(end: int, every: int) -> int:
    """Return how many of `end` exchanges are chosen among."""
    return end // every * every


def widening(end: int, every: int) -> int:
    """Return how many of `end` exchanges are chosen among where each choice looks at all of them.

    The step doubles as the history does, from 100 steps on: a choice then costs one part in a hundred of its work a
    step however long the history is, and at most two exchanges in a hundred wait for it.
    """
    doubled = max(0, (end // (_WIDENING * every)).bit_length() - 1)
    return settled(end, every << doubled)


@dataclass(slots=True)
class SelectedHistory(GrowingHistory):
    """Hold a history and what was chosen of it.

    Attributes:
        chosen: by point: where the choice ends, its first exchange, and a flag for each artifact before that end.
    """

    chosen: dict[int, tuple[int, int | None, bytes]] = field(default_factory=dict)

    def choice(self, point: int, choose: Choose) -> tuple[int | None, bytes]:
        """Return the first exchange of a choice, and which artifacts before the point are in it."""
        end = self.units[point - 1].end if point else 0
        known = self.chosen.get(point)
        if known is None or known[0] != end:
            numbers = choose(point)
            known = (end, numbers[0] if numbers else None, self._flags(numbers, self.start(point)))
            self.chosen.pop(point, None)
            while len(self.chosen) >= _POINTS:
                del self.chosen[next(iter(self.chosen))]
            self.chosen[point] = known
        return known[1], known[2]

    def _flags(self, numbers: Sequence[int], size: int) -> bytes:
        flags = bytearray(size)
        for position in self.authority[: bisect_left(self.authority, size)]:
            flags[position] = 1
        for number in numbers:
            _raise(flags, self.units[number])
        return bytes(flags)


def _raise(flags: bytearray, unit: Unit) -> None:
    flags[unit.start : unit.end] = b"\1" * (unit.end - unit.start)


def must_stay(draft: Draft, history: GrowingHistory, end: int) -> list[int]:
    """Return which of the first `end` exchanges stay whatever a strategy says, in order.

    Pins, the task, the last user message, the latest messages and the last exchange.
    """
    task = history.task(draft)
    kept = set(history.pinned[: bisect_left(history.pinned, end)])
    kept.update(() if task is None or task >= end else (task,))
    users, messages = bisect_left(history.users, end), bisect_left(history.messages, end)
    kept.update(history.users[max(0, users - 1) : users])
    kept.update(history.messages[max(0, messages - draft.keep_recent) : messages])
    kept.update(range(max(0, end - 1), end))
    return sorted(kept)


def selected(
    draft: Draft,
    history: SelectedHistory,
    choose: Choose,
    settle: Settle,
    reason: str | Mapping[int, str],
    *,
    otherwise: str = "",
    note: Note = lambda _point, _end, _gone: None,
) -> Draft:
    """Return the draft with the chosen exchanges, and the cut noted where this call made one.

    Args:
        draft: what is chosen from.
        history: the same, as far as it is known.
        choose: says which of the exchanges before a point stay.
        settle: says where the point is.
        reason: why the others go, for all or by `id()` of the artifact.
        otherwise: why those go that `reason` does not name.
        note: gives the message that stands at the point.
    """
    row = _row(draft, history, choose, settle, note, len(history.units))
    result = draft
    if 0 in row.flags:
        result = draft.revise(compress(draft.artifacts, row.flags), reason=reason, otherwise=otherwise)
    if row.note is not None:
        place = row.flags.count(1, 0, row.place)
        artifacts = (*result.artifacts[:place], row.note, *result.artifacts[place:])
        result = result.revise(artifacts, action="summarised", reason="stands for what is gone")
    before = history.replies[-1] if history.replies else 0  # the call before was made before the last reply
    earlier = _row(draft, history, choose, settle, note, before)
    return with_cut(draft, result, _cut(draft, history, row, earlier, history.start(before)))


class _Row(NamedTuple):
    """Say what a call keeps: a flag for each artifact, and the message that stands at the point, with its place."""

    flags: bytearray
    place: int
    note: Artifact | None


def _row(draft: Draft, history: SelectedHistory, choose: Choose, settle: Settle, note: Note, end: int) -> _Row:
    """Return what the call keeps that was made before exchange `end`."""
    point = settle(end)
    flags = _kept(draft, history, choose, point, end)
    place = history.start(point)
    return _Row(flags, place, note(point, end, flags.count(0, 0, place)))


def _kept(draft: Draft, history: SelectedHistory, choose: Choose, point: int, end: int) -> bytearray:
    """Return a flag for each artifact before exchange `end`: does it stay? The context starts with a user message."""
    first, chosen = history.choice(point, choose)
    flags = bytearray(chosen).ljust(history.start(end), b"\1")
    fixed = must_stay(draft, history, end)
    for number in fixed:
        _raise(flags, history.units[number])
    first = min((n for n in (first, *fixed[:1], point) if n is not None and n < end), default=0)
    if end and not history.units[first].user:
        openers = history.users[: bisect_right(history.users, first)]
        if openers:
            _raise(flags, history.units[openers[-1]])
    return flags


def _cut(draft: Draft, history: SelectedHistory, now: _Row, before: _Row, since: int) -> Cut | None:
    """Compare with what the call before kept; `since` is the position of the first artifact that came after it."""
    at = _first_difference(now, before)
    if at is None:
        return None
    authority = bisect_left(history.authority, at)
    position = len(history.authority) + now.flags.count(1, 0, at) - authority
    rebilled = sum(compress(history.costs[at:], now.flags[at:]))
    rebilled -= sum(history.costs[p] for p in history.authority[authority:])
    if now.note is not None:
        stands_before = now.place < at or (now.place == at and _is_noted_alike(now, before))
        position += stands_before
        rebilled += 0 if stands_before else draft.counter.artifact(now.note)
    return Cut(at=since, position=position, fresh=True, rebilled=rebilled)


def _first_difference(now: _Row, before: _Row) -> int | None:
    """Return where two rows differ first, as far as the second one goes."""
    size = len(before.flags)
    differing = int.from_bytes(now.flags[:size], "big") ^ int.from_bytes(before.flags, "big")
    places = [size - (differing.bit_length() + 7) // 8] if differing else []
    if not _is_noted_alike(now, before):
        places += [row.place for row in (now, before) if row.note is not None]
    return min(places, default=None)


def _is_noted_alike(now: _Row, before: _Row) -> bool:
    if now.note is None or before.note is None:
        return now.note is before.note
    return now.place == before.place and now.note.text == before.note.text
