"""What adapters are made of: the protocol, views of native messages, their parts, and a cache of what was read."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ctxguard.adapting.adapter import Adapter as Adapter
    from ctxguard.adapting.adapter import adapter_names as adapter_names
    from ctxguard.adapting.adapter import astabilize_native as astabilize_native
    from ctxguard.adapting.adapter import detect_adapter as detect_adapter
    from ctxguard.adapting.adapter import find_adapter as find_adapter
    from ctxguard.adapting.adapter import stabilize_native as stabilize_native
    from ctxguard.adapting.read_cache import ReadCache as ReadCache

_HOME = {
    "Adapter": "adapter",
    "ReadCache": "read_cache",
    "adapter_names": "adapter",
    "astabilize_native": "adapter",
    "detect_adapter": "adapter",
    "find_adapter": "adapter",
    "stabilize_native": "adapter",
}
__all__ = [  # noqa: PLE0604 - the names above, which are loaded when they are asked for
    *_HOME
]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"ctxguard.adapting.{_HOME[name]}"), name)
