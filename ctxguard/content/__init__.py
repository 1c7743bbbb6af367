"""Bounded views of texts: by type, within a hard token limit. The names of `ctxguard.files` are here as well."""

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
    from ctxguard.content.detection import detect as detect
    from ctxguard.content.views import Bounded as Bounded
    from ctxguard.content.views import FileType as FileType
    from ctxguard.content.views import TruncationInfo as TruncationInfo
    from ctxguard.files import BinaryContent as BinaryContent
    from ctxguard.files import FileExtractionResult as FileExtractionResult
    from ctxguard.files import FileMetadata as FileMetadata
    from ctxguard.files import context_result as context_result
    from ctxguard.files import handle_of as handle_of
    from ctxguard.files import read_file as read_file
    from ctxguard.files import read_file_as_string as read_file_as_string
    from ctxguard.files import recall as recall
    from ctxguard.files import recall_tool as recall_tool
    from ctxguard.stages.message_compressor import ConsoleMessageCompressor as ConsoleMessageCompressor
    from ctxguard.stages.message_compressor import MessageCompressor as MessageCompressor
    from ctxguard.stages.message_compressor import SnapshotCompressor as SnapshotCompressor

_HOMES = {
    "config": ("CompressionLevel", "ContextConfig", "TruncationConfig", "get_truncation_config", "load_context_config"),
    "content.bounding": ("bound",),
    "content.detection": ("detect",),
    "content.views": ("Bounded", "FileType", "TruncationInfo"),
    "files": (
        *("BinaryContent", "FileExtractionResult", "FileMetadata", "context_result", "handle_of"),
        *("read_file", "read_file_as_string", "recall", "recall_tool"),
    ),
    "stages.message_compressor": ("ConsoleMessageCompressor", "MessageCompressor", "SnapshotCompressor"),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}
__all__ = [*sorted(_HOME_OF)]  # noqa: PLE0604 - the names above, which are loaded when they are asked for


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"ctxguard.{_HOME_OF[name]}"), name)
