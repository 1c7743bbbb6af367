"""Keep some exchanges and drop the rest, the same way for every strategy: what must stay stays.

A strategy chooses among the exchanges up to some point that moves in steps; what came since stays. So between two such
points prompts only grow at their end.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Final

from ctxguard.artifacts import Artifact
from ctxguard.draft import Draft
from ctxguard.errors import ConfigError
from ctxguard.history import History

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


def task_of(draft: Draft, history: History) -> int | None:
    """Return the number of the user message that is kept as the task."""
    return history.task(draft.budget) if draft.keep_task else None


def selected(
    draft: Draft,
    history: History,
    chosen: Iterable[int],
    point: int,
    *,
    reason: str | Mapping[int, str],
    otherwise: str = "",
    record: Artifact | None = None,
) -> Draft:
    """Return the draft with the chosen exchanges, those behind a point, and what must stay.

    Args:
        draft: what is chosen from.
        history: the model of it.
        chosen: numbers of the exchanges before the point that stay.
        point: number of the first exchange that was not chosen among.
        reason: why the others go, for all or by `id()` of the artifact.
        otherwise: why those go that `reason` does not name.
        record: a message that stands for what goes, at the point; it is left out where nothing goes.
    """
    end = len(history)
    kept = {*chosen, *history.must_stay(draft.keep_recent, task_of(draft, history), end), *range(point, end)}
    # A context has to begin with a user message; the one that opened the turn is the right one.
    first = min(kept, default=None)
    if first is not None and not history.spans[first].has_user_role:
        opener = history.opener(first)
        kept.update(() if opener is None else (opener,))
    spans = (history.spans[number] for number in kept)
    positions = sorted(chain(history.authority, *(range(span.start, span.end) for span in spans)))
    artifacts = [draft.artifacts[position] for position in positions]
    result = draft.revise(artifacts, reason=reason, otherwise=otherwise)
    # a record stands for what is gone; where nothing is, it would only take room
    if record is None or result is draft:
        return result
    artifacts.insert(sum(position < history.start(point) for position in positions), record)
    return result.revise(artifacts, action="summarised", reason="stands for what is gone")
