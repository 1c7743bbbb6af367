"""Find the installed adapters, by their name or by the format of a history.

The formats of providers are built in; packages register further adapters under the entry-point group
`ctxguard.adapters`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from typing import Final, cast

from ctxguard.adapting.fields import is_list
from ctxguard.adapting.protocol import Adapter
from ctxguard.errors import AdapterError

OBJECT_ADAPTERS: Final = ("langchain", "pydantic-ai")
"""Adapters whose messages are objects of a framework, not dicts: they do not occur in files."""


def adapter_names() -> list[str]:
    """Return the names of the installed adapters, in alphabetical order."""
    return sorted({*_installed(), *_formats()})


# once per process, because it reads the metadata of every installed package
@lru_cache(maxsize=1)
def _installed() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group="ctxguard.adapters")}


@lru_cache(maxsize=1)
def _formats() -> Mapping[str, Callable[[], Adapter[object]]]:
    from ctxguard.formats.registry import FORMATS  # it builds on this room

    return {one.name: cast("Callable[[], Adapter[object]]", type(one)) for one in FORMATS}


def find_adapter(name: str) -> Adapter[object]:
    """Return an installed adapter by its name.

    Raises:
        AdapterError: There is no adapter of that name, or its framework is not installed.
    """
    if name in _formats():
        return _formats()[name]()
    point = _installed().get(name)
    if point is None:
        raise AdapterError(f"no adapter {name!r}; installed are {', '.join(adapter_names())}")
    try:
        adapter: Adapter[object] = point.load()()
    except ImportError as error:
        raise AdapterError(f"adapter {name!r} cannot be loaded: {error}") from error
    return adapter


def detect_adapter(native: object) -> Adapter[object] | None:
    """Return the first installed adapter that recognizes a history, or None."""
    # importing a framework takes seconds: none is loaded to look at plain data
    is_data = is_list(native) and all(isinstance(message, Mapping) for message in native)
    # Chat Completions first: a history that several adapters recognize, such as a list of user messages, is most likely
    # that
    for name in sorted(adapter_names(), key=lambda name: name != "openai"):
        if is_data and name in OBJECT_ADAPTERS:
            continue
        try:
            adapter = find_adapter(name)
        except AdapterError:
            continue  # its framework is not installed, so the history cannot be in its format
        if adapter.detects(native):
            return adapter
    return None


def require_adapter(native: object) -> Adapter[object]:
    """Return the first installed adapter that recognizes a history; raise if none does."""
    adapter = detect_adapter(native)
    if adapter is None:
        kind = type(native[0] if isinstance(native, Sequence) and native else native).__name__
        raise AdapterError(
            f"no adapter knows a list of {kind}; installed are {', '.join(adapter_names())}; read the messages with an "
            "adapter of your own and hand over the artifacts"
        )
    return adapter
