"""Remember what an adapter read of each message, noticing messages that were changed in place since."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from copy import copy
from datetime import date, datetime, timedelta
from enum import Enum
from functools import lru_cache
from typing import Final, Generic, TypeVar
from uuid import UUID

from ctxguard.adapting.message_view import are_same
from ctxguard.adapting.prefix_memory import PrefixMemory, Remembered
from ctxguard.errors import HistoryError

__all__ = ["ReadCache", "RunCache"]

Message = TypeVar("Message")
Read = TypeVar("Read")


class ReadCache(Generic[Message, Read]):
    """Remember what was read of a message, by the very object and all that is in it.

    Histories grow at their end, so nearly every message of a call was read in the call before: these are compared as
    one list with copies of their containers, which costs little as long as the texts in them are the same objects. A
    message that was changed in place is read anew, also where old and new are equal (0, 0.0 and False). Messages that
    are no plain data are read anew each time. A message that stands in a history twice is read twice. Bounded.

    Args:
        read: reads one message: an artifact, or all that it holds. Its errors get the message's place.
        most: messages one generation may hold; at most twice as many are kept, besides the latest histories.
        spelled: names of the fields whose values are read as they are written out, so that the order of keys in them
            and the type of any number count. Elsewhere only numbers in dicts and lists keep their type. None means
            that all is compared so, which takes longer.
    """

    def __init__(
        self,
        read: Callable[[Message], Read],
        *,
        most: int = 20_000,
        spelled: frozenset[str] | None = None,
    ) -> None:
        self._read = read
        self._most = most
        self._spelled = spelled
        self._histories: PrefixMemory[tuple[list[object], list[Read]]] = PrefixMemory()
        self._new: dict[tuple[int, int], tuple[Message, object, Read]] = {}
        self._old: dict[tuple[int, int], tuple[Message, object, Read]] = {}

    def read(self, messages: Sequence[Message]) -> list[Read]:
        """Return what is read of messages, in their order.

        Raises:
            HistoryError: a message cannot be read.
        """
        found = self._histories.find(messages)
        snapshots, results = self._unchanged(messages, found)
        begin = len(results)
        for position, time in enumerate(_times(messages, begin), begin):
            snapshot, result = self._look_up(messages[position], position, time)
            snapshots.append(snapshot)
            results.append(result)
        if not any(snapshot is _NO_DATA for snapshot in snapshots[begin:]):
            self._histories.keep(messages, (snapshots, results), after=found)
        return results[:]

    def _unchanged(
        self, messages: Sequence[Message], found: Remembered[tuple[list[object], list[Read]]] | None
    ) -> tuple[list[object], list[Read]]:
        """Return the snapshots and results of the beginning of a history that is as it was."""
        if found is None:
            return [], []
        snapshots, results = found.value
        same = [*messages[: found.length]] == snapshots
        return (snapshots[:], results[:]) if same else ([], [])

    def _look_up(self, message: Message, position: int, time: int) -> tuple[object, Read]:
        key = id(message), time
        entry = self._new.get(key) or self._old.get(key)
        if entry is None or entry[0] is not message or entry[1] != message:
            result = _read_at(self._read, message, position)
            try:
                snapshot = _snapshot(message, self._spelled, is_exact=self._spelled is None)
            except (_NoDataError, RecursionError):
                return _NO_DATA, result
            entry = (message, snapshot, result)
        if self._new.get(key) is not entry:
            if len(self._new) >= self._most:
                self._old, self._new = self._new, {}
            self._new[key] = entry
        return entry[1], entry[2]


class RunCache(Generic[Message, Read]):
    """Remember what was read of items that are read together, as `ReadCache` does of messages.

    Args:
        cut: cuts a history into runs of such items.
        read: reads one run. Its errors get the place of the item at fault.
        most: runs that are found again by their items.
        spelled: see `ReadCache`.
    """

    def __init__(
        self,
        cut: Callable[[Sequence[Message]], Iterable[tuple[Message, ...]]],
        read: Callable[[tuple[Message, ...]], Read],
        *,
        most: int = 20_000,
        spelled: frozenset[str] | None = None,
    ) -> None:
        self._cut = cut
        self._read = read
        self._most = most
        self._cache: ReadCache[tuple[Message, ...], Read] = ReadCache(read, most=most, spelled=spelled)
        self._runs: dict[int, tuple[Message, ...]] = {}

    def read(self, items: Sequence[Message]) -> list[Read]:
        """Return what is read of each run, in order.

        Raises:
            HistoryError: an item cannot be read.
        """
        runs = [self._known(run) for run in self._cut(items)]
        try:
            return self._cache.read(runs)
        except HistoryError:
            self._name_fault(items)
            raise

    def _known(self, run: tuple[Message, ...]) -> tuple[Message, ...]:
        """Return the tuple that was made of these very items before, or this one."""
        found = self._runs.get(id(run[0]))
        if found is not None and are_same(found, run):
            return found
        if len(self._runs) >= self._most:
            self._runs.clear()
        self._runs[id(run[0])] = run
        return run

    def _name_fault(self, items: Sequence[Message]) -> None:
        for position, item in enumerate(items):
            _read_at(self._read, (item,), position)


def _read_at(read: Callable[[Message], Read], message: Message, position: int) -> Read:
    """Return what is read of a message; errors say where it stands."""
    try:
        return read(message)
    except HistoryError as error:
        raise HistoryError(str(error), position=position) from None
    except RecursionError:
        raise HistoryError("it is nested too deeply to be read", position=position) from None


def _times(messages: Sequence[object], begin: int) -> list[int]:
    """Return how often each of the messages from a place on stands before itself."""
    if begin == len(messages):
        return []
    ids = list(map(id, messages))
    seen = Counter(ids[:begin]) if len(set(ids)) < len(ids) else None
    times = [0] * (len(ids) - begin)
    if seen is not None:
        for number, identity in enumerate(ids[begin:]):
            times[number] = seen[identity]
            seen[identity] += 1
    return times


class _Exact:
    """Equal a scalar of the same type that is written the same: 0 is no False, and no 0.0."""

    __slots__ = ("value",)
    __hash__ = None  # type: ignore[assignment]  # it stands in snapshots, never among keys

    def __init__(self, value: object) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        value = self.value
        return value is other or (type(value) is type(other) and repr(value) == repr(other))


class _Ordered(dict[object, object]):
    """Equal a dict with the same keys in the same order, numbers among them of the same type."""

    __slots__ = ()
    __hash__ = None

    def __eq__(self, other: object) -> bool:
        if not dict.__eq__(self, other) or not isinstance(other, dict):
            return False
        mine, others = [*self], [*other]
        return mine == others and [*map(type, mine)] == [*map(type, others)]

    def __ne__(self, other: object) -> bool:
        return not self == other


class _NoDataError(Exception):
    """Say that a message holds what a copy would not equal."""


def _snapshot(value: object, spelled: frozenset[str] | None, *, is_exact: bool) -> object:
    """Return a copy of the containers in a value that shares its texts.

    Data are scalars, lists, tuples, dicts, and what equals by its fields: dataclasses and pydantic models.

    Raises:
        _NoDataError: it holds anything else.
    """
    kind = type(value)
    if kind in _SCALARS:
        return _Exact(value) if kind in _NUMBERS or (is_exact and kind in _TIMES) else value
    if kind is dict:
        return _members(value, spelled, is_exact=is_exact)  # type: ignore[arg-type]  # a dict by type
    if kind is list or kind is tuple:
        return kind([_snapshot(inner, spelled, is_exact=is_exact) for inner in value])  # type: ignore[attr-defined]
    if isinstance(value, Enum):
        return _Exact(value)
    if not _equals_by_fields(kind):
        raise _NoDataError
    return _twin(value, spelled, is_exact=is_exact)


def _members(value: dict[object, object], spelled: frozenset[str] | None, *, is_exact: bool) -> object:
    exact = value if is_exact else spelled or ()
    copied = {
        key: inner if type(inner) is str else _snapshot(inner, spelled, is_exact=key in exact)
        for key, inner in value.items()
    }
    is_plain = not is_exact or not copied or (len(copied) == 1 and type(next(iter(copied))) is str)
    return copied if is_plain else _Ordered(copied)


def _twin(value: object, spelled: frozenset[str] | None, *, is_exact: bool) -> object:
    """Return a copy of an object that equals it as long as nothing in it is changed."""
    kind: type = type(value)
    twin = object.__new__(kind) if _is_plain(kind) else copy(value)
    for name in ("__dict__", "__pydantic_extra__"):
        state = getattr(value, name, None)
        if state is not None:
            copied = {key: _field(key, inner, spelled, is_exact=is_exact) for key, inner in state.items()}
            object.__setattr__(twin, name, copied)
    return twin


@lru_cache(maxsize=256)
def _is_plain(kind: type) -> bool:
    """Tell objects that hold nothing but their `__dict__`; pydantic's hold more."""
    new: object = kind.__new__
    return new is object.__new__ and not any(vars(base).get("__slots__") for base in kind.__mro__)


def _field(name: str, value: object, spelled: frozenset[str] | None, *, is_exact: bool) -> object:
    """Return the snapshot of a field; its class says of which type a number is, unless the field is spelled out."""
    is_spelled = is_exact or name in (spelled or ())
    return value if type(value) in _SCALARS and not is_spelled else _snapshot(value, spelled, is_exact=is_spelled)


def _equals_by_fields(kind: type) -> bool:
    return bool(kind.__dictoffset__) and (hasattr(kind, "__pydantic_fields__") or hasattr(kind, "__dataclass_fields__"))


_NUMBERS: Final = frozenset({int, float, bool})
_TIMES: Final = frozenset({date, datetime, timedelta})
_SCALARS: Final = frozenset({str, bytes, type(None), UUID}) | _NUMBERS | _TIMES
_NO_DATA: Final = object()
