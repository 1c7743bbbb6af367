"""Cache the result of reading each message, and detect messages that were changed in place after they were read."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from copy import copy
from datetime import date, datetime, timedelta
from enum import Enum
from itertools import takewhile
from typing import Final, Generic, NamedTuple, TypeVar, cast
from uuid import UUID

from ctxguard.errors import HistoryError

Message = TypeVar("Message")
Read = TypeVar("Read")


class _Entry(NamedTuple):
    message: object  # referenced so that its id() is not reused
    snapshot: object
    result: object


class _Latest(NamedTuple):
    messages: Sequence[object]  # referenced for the same reason
    keys: list[Hashable]
    snapshots: list[object]
    results: list[object]


class ReadCache(Generic[Message, Read]):
    """Reads each message once, as long as it is the same object with the same content.

    Histories grow at the end, so nearly every message was already read in the previous call. If a history begins with
    the previous history, all of these messages are compared with their snapshots by comparing two lists, which is fast
    while the strings in them are the same objects. A message that contains anything other than plain data is read every
    time. A message that occurs twice in a history is read twice, so that each occurrence has a result of its own.

    Args:
        read: Function that reads one message.
        key: Function that identifies a message by the objects it consists of. Two messages with the same key must
            consist of the same objects.
        exact: Names of the fields whose values are compared exactly, including the order of keys and the types of
            numbers. In other fields, values must be equal, and numbers in dicts and lists must have the same type. None
            compares every message exactly, which takes longer.
        size: Number of messages to cache. If there are more, all messages except those of the latest history are
            removed. In a proxy, each message takes a few kilobytes.
    """

    def __init__(
        self,
        read: Callable[[Message], Read],
        *,
        key: Callable[[Message], Hashable] = id,
        exact: frozenset[str] | None = None,
        size: int = 2_000,
    ) -> None:
        self._read = read
        self._key = key
        self._exact = exact
        self._size = size
        self._entries: dict[Hashable, _Entry] = {}
        self._latest = _Latest((), [], [], [])

    def read(self, messages: Sequence[Message]) -> list[Read]:
        """Return the result of reading each message, in order.

        Raises:
            HistoryError: If a message cannot be read. The error names the position of the message.
        """
        keys: list[Hashable] = list(map(self._key, messages))
        latest = self._latest  # read once: another thread may replace it
        known = len(latest.keys)
        if keys[:known] != latest.keys or latest.snapshots != list(messages[:known]):
            known = 0
        results = latest.results[:known]
        if known < len(keys):
            entries = self._known(keys, messages) if not known else []
            unread = self._unread(keys, messages, known + len(entries))
            entries += [self._entry(*place) for place in unread]
            results += [entry.result for entry in entries]
            snapshots = latest.snapshots[:known] + [entry.snapshot for entry in entries]
            self._latest = _Latest(list(messages), keys, snapshots, results[:])
            if len(self._entries) > max(self._size, 2 * len(keys)):
                self._entries = {key: self._entries[key] for key in keys if key in self._entries}
        return cast("list[Read]", results)

    def _known(self, keys: Sequence[Hashable], messages: Sequence[Message]) -> list[_Entry]:
        """Return the cached results for the longest run of unchanged messages at the start of a history.

        Used if the history does not continue the latest one, because several conversations may take turns.
        """
        if len(set(keys)) < len(keys):
            return []
        entries = cast("list[_Entry]", list(takewhile(bool, map(self._entries.get, keys))))
        is_unchanged = [entry.snapshot for entry in entries] == list(messages[: len(entries)])
        return entries if is_unchanged else []

    def _unread(
        self, keys: Sequence[Hashable], messages: Sequence[Message], known: int
    ) -> Iterator[tuple[Hashable, Message, int]]:
        """Yield the messages from position `known` on, with their positions and keys that distinguish repetitions."""
        repeats = Counter(keys[:known]) if len(set(keys)) < len(keys) else None
        for position in range(known, len(keys)):
            key = keys[position]
            if repeats is not None:
                repeats[key] += 1
                key = (key, repeats[key]) if repeats[key] > 1 else key
            yield key, messages[position], position

    def _entry(self, key: Hashable, message: Message, position: int) -> _Entry:
        entry = self._entries.get(key)
        if entry is None or entry.snapshot != message:
            result = read_at(self._read, message, position)
            try:
                snapshot = _Exact(message) if self._exact is None else _snapshot(message, self._exact)
            except (_NotDataError, RecursionError):
                snapshot = _UNEQUAL
            entry = self._entries[key] = _Entry(message, snapshot, result)
        return entry


def read_at(read: Callable[[Message], Read], message: Message, position: int) -> Read:
    """Return the result of reading a message. If the message cannot be read, the error names its position."""
    try:
        return read(message)
    except HistoryError as error:
        raise HistoryError(str(error), position=position) from None
    except RecursionError:
        raise HistoryError("it is nested too deeply to be read", position=position) from None


class _NotDataError(Exception):
    """Raised when no snapshot of a value can be compared with the value later."""


class _Exact:
    """Snapshot that equals a value with the same pickle, so the types of numbers and the order of keys matter."""

    __slots__ = ("_kind", "_written")
    __hash__ = None  # type: ignore[assignment]  # used in snapshots, never as a key

    def __init__(self, value: object) -> None:
        self._kind = type(value)
        self._written = _pickled(value)
        if self._written is None:
            raise _NotDataError

    def __eq__(self, other: object) -> bool:
        return type(other) is self._kind and _pickled(other) == self._written


def _pickled(value: object) -> bytes | None:
    try:
        return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    except Exception:  # noqa: BLE001 - objects may raise anything; they are then not plain data
        return None


def _snapshot(value: object, exact: frozenset[str]) -> object:
    """Return a snapshot: an object that equals a value until the value is changed. It shares the strings of the value.

    Raises:
        _NotDataError: If the value contains an object that is neither a dataclass nor a pydantic model, because only
            these are compared by their fields.
    """
    kind = type(value)
    if kind in _SCALARS:
        return value
    if kind in _NUMBERS or isinstance(value, Enum):
        return _Exact(value)
    if kind is dict:
        return {key: _member(key, inner, exact) for key, inner in value.items()}  # type: ignore[attr-defined]
    if kind is list or kind is tuple:
        return kind([_snapshot(inner, exact) for inner in value])  # type: ignore[attr-defined]
    if not kind.__dictoffset__ or not (hasattr(kind, "__pydantic_fields__") or hasattr(kind, "__dataclass_fields__")):
        raise _NotDataError
    return _twin(value, exact)


def _member(name: object, value: object, exact: frozenset[str]) -> object:
    if type(value) is str:
        return value
    return _Exact(value) if name in exact else _snapshot(value, exact)


def _twin(value: object, exact: frozenset[str]) -> object:
    """Return a copy of an object whose fields are snapshots. The `__eq__` of its class compares the two."""
    kind = type(value)
    # dataclasses have no copy method of their own, and `copy.copy` takes fifty microseconds
    is_plain = kind.__new__ is object.__new__ and not any(vars(base).get("__slots__") for base in kind.__mro__)
    twin = object.__new__(kind) if is_plain else copy(value)
    for name in ("__dict__", "__pydantic_extra__"):
        state = getattr(value, name, None)
        if state is not None:
            # a class declares the types of its fields, so numbers in fields need no exact comparison
            fields = {
                key: inner if type(inner) in _NUMBERS and key not in exact else _member(key, inner, exact)
                for key, inner in state.items()
            }
            object.__setattr__(twin, name, fields)
    return twin


_UNEQUAL: Final = float("nan")
"""Snapshot that equals nothing, for a message that has to be read every time."""
_NUMBERS: Final = frozenset({int, float, bool})
_SCALARS: Final = frozenset({str, bytes, type(None), UUID, date, datetime, timedelta})
