"""Take a history in: artifacts only, each an object of its own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import cast

from ctxguard.artifacts import Artifact
from ctxguard.errors import HistoryError
from ctxguard.prefix_memory import PrefixMemory

__all__ = ["Intake"]


class Intake:
    """Check histories. What the last call of a session has shown to be in order is not looked at again."""

    def __init__(self) -> None:
        self._seen: PrefixMemory[set[int]] = PrefixMemory()

    def take(self, artifacts: Iterable[Artifact]) -> tuple[tuple[Artifact, ...], tuple[Artifact, ...]]:
        """Return a history as a tuple, and an earlier one that it is known to begin with, or an empty one.

        What stands in it twice as one object is copied: decisions go by identity.

        Raises:
            HistoryError: it is no iterable, or an item is no artifact.
        """
        try:
            history = tuple(artifacts)
        except TypeError:
            raise HistoryError(f"a list of artifacts is wanted, not {type(artifacts).__name__}") from None
        found = self._seen.find(history)
        # a set that has grown since then belongs to another continuation
        begin, known = (found.length, found.value) if found and len(found.value) == found.length else (0, set())
        _check_types(history, begin)
        fresh = set(map(id, history[begin:]))
        # another thread may have put its own into the set by now, so its size says nothing
        if len(fresh) != len(history) - begin or not known.isdisjoint(fresh):
            return _told_apart(history), ()
        known |= fresh
        if begin < len(history):
            self._seen.keep(history, known, after=found)
        return history, cast("tuple[Artifact, ...]", found.items) if found else ()


def _check_types(history: Sequence[object], begin: int) -> None:
    for position, artifact in enumerate(history[begin:], begin):
        if not isinstance(artifact, Artifact):
            raise HistoryError(
                f"an Artifact is wanted, not {type(artifact).__name__}; native messages go through an adapter "
                "(ctxguard_openai.stabilize_messages for a list of dicts)",
                position=position,
            )


def _told_apart(history: tuple[Artifact, ...]) -> tuple[Artifact, ...]:
    times: dict[int, int] = {}
    distinct = []
    for artifact in history:
        time = times[id(artifact)] = times.get(id(artifact), -1) + 1
        distinct.append(_copy(artifact, time) if time else artifact)
    return tuple(distinct)


def _copy(artifact: Artifact, time: int) -> Artifact:
    """Return the same copy at every call, so that the stages know it again."""
    key = (Intake, time)
    known = artifact.memo.get(key)
    if known is None:
        known = replace(artifact)
        artifact.memo.keep(key, known)
    return known  # type: ignore[return-value]  # only artifacts stand under such a key
