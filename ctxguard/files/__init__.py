"""Read files: safely, as bounded views, documents in a process of their own."""

from ctxguard.files.images import BinaryContent
from ctxguard.files.opening import FileMetadata
from ctxguard.files.reader import FileExtractionResult, read_file, read_file_as_string
from ctxguard.files.results import context_result, handle_of, recall, recall_tool

__all__ = [
    "BinaryContent",
    "FileExtractionResult",
    "FileMetadata",
    "context_result",
    "handle_of",
    "read_file",
    "read_file_as_string",
    "recall",
    "recall_tool",
]
