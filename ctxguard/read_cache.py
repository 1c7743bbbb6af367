"""Remember what an adapter read of each message, noticing messages that were changed in place since."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from datetime import date, datetime, timedelta
from enum import Enum
from typing import Final, Generic, TypeVar
from uuid import UUID

from ctxguard.artifacts import Artifact
from ctxguard.prefix_memory import PrefixMemory, Remembered

__all__ = ["ReadCache"]

Message = TypeVar("Message")


class ReadCache(Generic[Message]):
    """Remember what was read of a message, by the very object and all that is in it.

    Histories grow at their end, so nearly every message of a call was read in the call before: these are compared as
    one list with copies of their containers, which costs little as long as the texts in them are the same objects. A
    message that was changed in place is read anew. Messages that are no plain data are read anew each time. Bounded.

    Args:
        read: reads one message; the number is its place, for errors.
        most: messages one generation may hold; at most twice as many are kept, besides the latest histories.
    """

    def __init__(self, read: Callable[[Message, int], Artifact], *, most: int = 20_000) -> None:
        self._read = read
        self._most = most
        self._histories: PrefixMemory[tuple[list[object], list[Artifact]]] = PrefixMemory()
        self._new: dict[int, tuple[Message, object, Artifact]] = {}
        self._old: dict[int, tuple[Message, object, Artifact]] = {}

    def read(self, messages: Sequence[Message]) -> list[Artifact]:
        """Return the artifacts of messages, one each."""
        found = self._histories.find(messages)
        snapshots, artifacts = self._unchanged(messages, found)
        begin = len(artifacts)
        for position in range(begin, len(messages)):
            snapshot, artifact = self._look_up(messages[position], position)
            snapshots.append(snapshot)
            artifacts.append(artifact)
        if _NO_DATA not in snapshots[begin:]:
            self._histories.keep(messages, (snapshots, artifacts), after=found)
        return artifacts[:]

    def _unchanged(
        self, messages: Sequence[Message], found: Remembered[tuple[list[object], list[Artifact]]] | None
    ) -> tuple[list[object], list[Artifact]]:
        """Return the snapshots and artifacts of the beginning of a history that is as it was."""
        if found is None:
            return [], []
        snapshots, artifacts = found.value
        same = [*messages[: found.length]] == snapshots
        return (snapshots[:], artifacts[:]) if same else ([], [])

    def _look_up(self, message: Message, position: int) -> tuple[object, Artifact]:
        entry = self._new.get(id(message)) or self._old.get(id(message))
        if entry is None or entry[0] is not message or entry[1] != message:
            artifact = self._read(message, position)
            snapshot = _snapshot(message)
            if snapshot is _NO_DATA:
                return _NO_DATA, artifact
            entry = (message, snapshot, artifact)
        if self._new.get(id(message)) is not entry:
            if len(self._new) >= self._most:
                self._old, self._new = self._new, {}
            self._new[id(message)] = entry
        return entry[1], entry[2]


def _snapshot(value: object) -> object:
    """Return a copy of the containers in a value that shares its texts; `_NO_DATA` where it holds what is no data.

    Data are scalars, lists, tuples, dicts, and what equals by its fields: dataclasses and pydantic models.
    """
    kind = type(value)
    if kind in _SCALARS:
        return value
    copied: dict[object, object] | list[object]
    if kind is dict:
        copied = {key: _snapshot(inner) for key, inner in value.items()}  # type: ignore[attr-defined]  # a dict by type
        return _NO_DATA if _NO_DATA in copied.values() else copied
    if kind is list or kind is tuple:
        copied = list(map(_snapshot, value))  # type: ignore[call-overload]  # a list or a tuple by type
        return _NO_DATA if _NO_DATA in copied else kind(copied)
    if isinstance(value, Enum):
        return value
    return _twin(value) if _equals_by_fields(kind) else _NO_DATA


def _twin(value: object) -> object:
    """Return a copy of an object that equals it as long as nothing in it is changed."""
    twin = copy(value)
    for name in ("__dict__", "__pydantic_extra__"):
        state = _snapshot(getattr(value, name, None))
        if state is _NO_DATA:
            return _NO_DATA
        if state is not None:
            object.__setattr__(twin, name, state)
    return twin


def _equals_by_fields(kind: type) -> bool:
    return bool(kind.__dictoffset__) and (hasattr(kind, "__pydantic_fields__") or hasattr(kind, "__dataclass_fields__"))


_SCALARS: Final = frozenset({str, int, float, bool, bytes, type(None), date, datetime, timedelta, UUID})
_NO_DATA: Final = object()
