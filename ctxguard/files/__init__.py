"""Read files safely as bounded views, documents in a separate process. The names are public in `ctxguard.content`."""

from ctxguard.files.images import BinaryContent as BinaryContent
from ctxguard.files.opening import FileMetadata as FileMetadata
from ctxguard.files.reader import FileExtractionResult as FileExtractionResult
from ctxguard.files.reader import read_file as read_file
from ctxguard.files.reader import read_file_as_string as read_file_as_string
from ctxguard.files.results import context_result as context_result
from ctxguard.files.results import handle_of as handle_of
from ctxguard.files.results import recall as recall
from ctxguard.files.results import recall_tool as recall_tool
