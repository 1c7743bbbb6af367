"""What an adapter is, and the one path that all of them share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import entry_points
from typing import Final, Generic, Protocol, TypeVar, runtime_checkable

from ctxguard.artifacts import Artifact
from ctxguard.errors import AdapterError
from ctxguard.report import Report
from ctxguard.stabilizer import Stabilizer
from ctxguard.tokens import REPLY_TOKENS

__all__ = ["Adapter", "ReadCache", "adapter_names", "astabilize_native", "find_adapter", "stabilize_native"]

Native = TypeVar("Native")
Message = TypeVar("Message")


@runtime_checkable
class Adapter(Protocol[Native]):
    """Look at native messages as artifacts, and put what became of them back. A lens: it rebuilds nothing.

    Attributes:
        name: what `--adapter` and reports call it.
    """

    name: str

    def read(self, native: Native) -> list[Artifact]:
        """Return the artifacts of a history; `source` is the adapter's own mark. Changes nothing.

        Raises:
            HistoryError: the history is not of the adapter's kind; the message at fault is named.
        """
        ...

    def write(self, native: Native, artifacts: Iterable[Artifact]) -> Native:
        """Return the native history of these artifacts: the same objects, but for those that were changed or added."""
        ...

    def detects(self, native: object) -> bool:
        """Tell whether a history looks like one of this adapter's."""
        ...


def stabilize_native(
    stabilizer: Stabilizer,
    adapter: Adapter[Native],
    native: Native,
    *,
    tools: Sequence[Mapping[str, object]] | None = None,
    window: int | None = None,
) -> tuple[Native, Report]:
    """Return the stabilized native history and the report.

    Args:
        stabilizer: does the work.
        adapter: of the history's kind.
        native: the history; not changed.
        tools: tool schemas that are sent along, to be counted.
        window: the model's context window in tokens, where the budget is a share of it.
    """
    artifacts = adapter.read(native)
    result = stabilizer.stabilize(artifacts, tools=tools, overhead=REPLY_TOKENS, window=window)
    return adapter.write(native, result.artifacts), result.report


async def astabilize_native(
    stabilizer: Stabilizer,
    adapter: Adapter[Native],
    native: Native,
    *,
    tools: Sequence[Mapping[str, object]] | None = None,
    window: int | None = None,
) -> tuple[Native, Report]:
    """Do what `stabilize_native` does where summarizers or stores are async."""
    artifacts = adapter.read(native)
    result = await stabilizer.astabilize(artifacts, tools=tools, overhead=REPLY_TOKENS, window=window)
    return adapter.write(native, result.artifacts), result.report


class ReadCache(Generic[Message]):
    """Remember what was read of a message, by the very object and all that is in it.

    Histories grow at their end, so nearly every message of a call was read in the call before. A message that was
    changed in place since is read anew: it is compared with a copy of its containers, which costs little as long as
    the texts in it are the same objects. Bounded; messages that are no plain data are never remembered.

    Args:
        read: reads one message; the number is its place, for errors.
        most: messages one generation may hold; at most twice as many are kept.
    """

    def __init__(self, read: Callable[[Message, int], Artifact], *, most: int = 20_000) -> None:
        self._read = read
        self._most = most
        self._new: dict[int, tuple[Message, object, Artifact]] = {}
        self._old: dict[int, tuple[Message, object, Artifact]] = {}

    def read(self, messages: Sequence[Message]) -> list[Artifact]:
        """Return the artifacts of messages, one each."""
        known = self._new.get
        return [
            entry[2]
            if (entry := known(id(message))) is not None and entry[0] is message and entry[1] == message
            else self._look_up(message, position)
            for position, message in enumerate(messages)
        ]

    def _look_up(self, message: Message, position: int) -> Artifact:
        entry = self._old.get(id(message))
        if entry is None or entry[0] is not message or entry[1] != message:
            artifact = self._read(message, position)
            snapshot = _snapshot(message)
            if snapshot is _NO_DATA:
                return artifact
            entry = (message, snapshot, artifact)
        if len(self._new) >= self._most:
            self._old, self._new = self._new, {}
        self._new[id(message)] = entry
        return entry[2]


def _snapshot(value: object) -> object:
    """Return a copy of the containers of plain data that shares its texts; `_NO_DATA` where it holds anything else."""
    kind = type(value)
    if kind in _SCALARS:
        return value
    copied: dict[object, object] | list[object]
    if kind is dict:
        copied = {key: _snapshot(inner) for key, inner in value.items()}  # type: ignore[attr-defined]  # a dict by type
        return _NO_DATA if _NO_DATA in copied.values() else copied
    if kind is list:
        copied = list(map(_snapshot, value))  # type: ignore[call-overload]  # a list by type
        return _NO_DATA if _NO_DATA in copied else copied
    return _NO_DATA


_SCALARS: Final = frozenset({str, int, float, bool, type(None)})
_NO_DATA: Final = object()


def adapter_names() -> list[str]:
    """Return the names of the installed adapters, in alphabetical order."""
    return sorted(point.name for point in entry_points(group="ctxguard.adapters"))


def find_adapter(name: str) -> Adapter[object]:
    """Return an installed adapter by its name.

    Raises:
        AdapterError: there is none of that name, or its framework is not installed.
    """
    for point in entry_points(group="ctxguard.adapters"):
        if point.name == name:
            try:
                adapter: Adapter[object] = point.load()()
            except ImportError as error:
                raise AdapterError(f"adapter {name!r} cannot be loaded: {error}") from error
            return adapter
    raise AdapterError(f"no adapter {name!r}; installed are {', '.join(adapter_names())}")
