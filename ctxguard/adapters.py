"""What an adapter is, and the one path that all of them share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import entry_points
from typing import Protocol, TypeVar, runtime_checkable

from ctxguard.artifacts import Artifact
from ctxguard.errors import AdapterError
from ctxguard.read_cache import ReadCache
from ctxguard.report import Report
from ctxguard.stabilizer import Stabilizer
from ctxguard.tokens import REPLY_TOKENS

__all__ = ["Adapter", "ReadCache", "adapter_names", "astabilize_native", "find_adapter", "stabilize_native"]

Native = TypeVar("Native")


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
