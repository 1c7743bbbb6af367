"""Bounded views of texts: by type, within a hard token limit. The names of `ctxguard.files` are here as well."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ctxguard import _lazy

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
    "ctxguard.config": (
        "CompressionLevel",
        "ContextConfig",
        "TruncationConfig",
        "get_truncation_config",
        "load_context_config",
    ),
    "ctxguard.content.bounding": ("bound",),
    "ctxguard.content.detection": ("detect",),
    "ctxguard.content.views": ("Bounded", "FileType", "TruncationInfo"),
    "ctxguard.files": (
        *("BinaryContent", "FileExtractionResult", "FileMetadata", "context_result", "handle_of"),
        *("read_file", "read_file_as_string", "recall", "recall_tool"),
    ),
    "ctxguard.stages.message_compressor": ("ConsoleMessageCompressor", "MessageCompressor", "SnapshotCompressor"),
}
__all__ = sorted(name for names in _HOMES.values() for name in names)  # noqa: PLE0605 - the names above
__getattr__, __dir__ = _lazy(__name__, _HOMES)
