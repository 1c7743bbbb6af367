"""Read files: safely, in bounded views, documents in a process of their own."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ctxguard.files.images import BinaryContent as BinaryContent
    from ctxguard.files.opening import FileMetadata as FileMetadata
    from ctxguard.files.reader import FileExtractionResult as FileExtractionResult
    from ctxguard.files.reader import read_file as read_file
    from ctxguard.files.reader import read_file_as_string as read_file_as_string
    from ctxguard.files.results import context_result as context_result
    from ctxguard.files.results import handle_of as handle_of
    from ctxguard.files.results import recall as recall
    from ctxguard.files.results import recall_tool as recall_tool

_HOME = {
    "BinaryContent": "images",
    "FileExtractionResult": "reader",
    "FileMetadata": "opening",
    "context_result": "results",
    "handle_of": "results",
    "read_file": "reader",
    "read_file_as_string": "reader",
    "recall": "results",
    "recall_tool": "results",
}
__all__ = [  # noqa: PLE0604 - the names above, which are loaded when they are asked for
    *_HOME
]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"ctxguard.files.{_HOME[name]}"), name)
