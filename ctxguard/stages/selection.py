"""Drop some exchanges and keep the rest, the same way for every strategy: what must stay stays, cuts are noted.

A strategy chooses among the exchanges up to the last `every`-th one; what came since stays. So between two such points
prompts only grow at their end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from ctxguard.artifacts import Artifact, Kind
from ctxguard.draft import Cut, Draft
from ctxguard.errors import ConfigError
from ctxguard.protection import Unit, task_of

__all__ = ["Choose", "check_every", "must_stay", "selected", "settled"]

Choose: TypeAlias = Callable[[int], set[int]]
"""Say which of the first so many exchanges stay; a function of these alone."""


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


def must_stay(draft: Draft, found: Sequence[Unit], end: int) -> set[int]:
    """Return which of the first `end` exchanges stay whatever a strategy says.

    Pins, the task, the last user message, the latest messages and the last exchange.
    """
    task = task_of(draft)
    kept = {n for n in range(end) if found[n].pinned or draft.artifacts[found[n].start] is task}
    messages = [n for n in range(end) if found[n].message]
    users = [n for n in messages if found[n].user]
    kept.update(users[-1:])
    kept.update(messages[-draft.keep_recent :] if draft.keep_recent else ())
    return kept | set(range(max(0, end - 1), end))


def selected(draft: Draft, found: Sequence[Unit], choose: Choose, every: int, reason: str | Mapping[int, str]) -> Draft:
    """Return the draft with the chosen exchanges, and the cut noted where this call made one."""
    kept = _kept(draft, found, choose, every, len(found))
    if len(kept) == len(found):
        return draft
    gone = {p for n, u in enumerate(found) if n not in kept for p in range(u.start, u.end)}
    result = draft.revise((a for p, a in enumerate(draft.artifacts) if p not in gone), reason=reason)
    return replace(result, cut=_cut(draft, found, kept, choose, every) or draft.cut)


def _kept(draft: Draft, found: Sequence[Unit], choose: Choose, every: int, end: int) -> set[int]:
    """Return what stays of the first `end` exchanges; the context starts with a user message."""
    point = settled(end, every)
    kept = choose(point) | set(range(point, end)) | must_stay(draft, found, end)
    first = min(kept, default=0)
    if end and not found[first].user:
        opener = next((n for n in range(first, -1, -1) if found[n].user), None)
        kept |= set() if opener is None else {opener}
    return kept


def _cut(draft: Draft, found: Sequence[Unit], kept: set[int], choose: Choose, every: int) -> Cut | None:
    """Compare with what the call before kept: it was made before the last reply."""
    artifacts = draft.artifacts
    before = max((n for n, u in enumerate(found) if artifacts[u.start].kind is Kind.ASSISTANT), default=0)
    previous = _kept(draft, found, choose, every, before)
    changed = min((n for n in range(before) if (n in kept) != (n in previous)), default=None)
    if changed is None:
        return None
    authority = [a for a in artifacts if a.kind in (Kind.SYSTEM, Kind.TASK)]
    position = len(authority) + _size(found[n] for n in kept if n < changed)
    rest = [a for n in kept if n >= changed for a in _members(artifacts, found[n])]
    rebilled = sum(map(draft.counter.artifact, rest))
    return Cut(at=found[before].start, position=position, fresh=True, rebilled=rebilled)


def _size(found: Iterable[Unit]) -> int:
    return sum(u.end - u.start for u in found)


def _members(artifacts: Sequence[Artifact], unit: Unit) -> Sequence[Artifact]:
    return artifacts[unit.start : unit.end]
