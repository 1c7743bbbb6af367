"""Bounded views of anything a tool or a file can hold: by type, within a hard token limit."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ctxguard.content.bounding import bound as bound
    from ctxguard.content.detection import detect as detect
    from ctxguard.content.views import Bounded as Bounded
    from ctxguard.content.views import FileType as FileType
    from ctxguard.content.views import TruncationInfo as TruncationInfo

__all__ = ["Bounded", "FileType", "TruncationInfo", "bound", "detect"]

_HOME = {
    "Bounded": "views",
    "FileType": "views",
    "TruncationInfo": "views",
    "bound": "bounding",
    "detect": "detection",
}


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
