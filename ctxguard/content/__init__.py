"""Bounded views of anything a tool or a file can hold: by type, within a hard token limit."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ctxguard.config import CompressionLevel as CompressionLevel
    from ctxguard.config import ContextConfig as ContextConfig
    from ctxguard.config import TruncationConfig as TruncationConfig
    from ctxguard.config import get_truncation_config as get_truncation_config
    from ctxguard.config import load_context_config as load_context_config
    from ctxguard.content.bounding import bound as bound
    from ctxguard.content.compression import ConsoleMessageCompressor as ConsoleMessageCompressor
    from ctxguard.content.compression import MessageCompressor as MessageCompressor
    from ctxguard.content.compression import SnapshotCompressor as SnapshotCompressor
    from ctxguard.content.detection import detect as detect
    from ctxguard.content.views import Bounded as Bounded
    from ctxguard.content.views import FileType as FileType
    from ctxguard.content.views import TruncationInfo as TruncationInfo
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
    "BinaryContent": "files.images",
    "Bounded": "content.views",
    "CompressionLevel": "config",
    "ConsoleMessageCompressor": "content.compression",
    "ContextConfig": "config",
    "FileExtractionResult": "files.reader",
    "FileMetadata": "files.opening",
    "FileType": "content.views",
    "MessageCompressor": "content.compression",
    "SnapshotCompressor": "content.compression",
    "TruncationConfig": "config",
    "TruncationInfo": "content.views",
    "bound": "content.bounding",
    "context_result": "files.results",
    "detect": "content.detection",
    "get_truncation_config": "config",
    "handle_of": "files.results",
    "load_context_config": "config",
    "read_file": "files.reader",
    "read_file_as_string": "files.reader",
    "recall": "files.results",
    "recall_tool": "files.results",
}
__all__ = [  # noqa: PLE0604 - the names above, which are loaded when they are asked for
    *_HOME
]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"ctxguard.{_HOME[name]}"), name)
