"""The building blocks of adapters. `adapters/README.md` in the repository shows how to write one for your own messages.

| module | content |
|---|---|
| `protocol` | the `Adapter` protocol |
| `adapter` | the one function through which every native history is stabilized |
| `request` | the parts of a request outside the history: instructions, tool and output schemas |
| `guard` | `ctxguard.guard`: one line for a first user |
| `registry` | finds the installed adapters by name or by the format of a history |
| `message_view` | `MessageView`: the texts, calls and ids of a message, and their places in it |
| `content_format` | `ContentFormat`: a table that says how to read content parts of each type, media included |
| `fields` | reading fields of dicts and objects, with errors that name the place |
| `editing` | `copy_with`: a copy of a message with other values in some places |
| `extra_fields` | fields of a message other than its texts: citations, metadata, links, unknown keys |
| `fragments` | messages whose parts can be kept or dropped separately |
| `reasoning` | reasoning and refusals in fields next to the content |
| `provider_formats` | rejects messages in another provider's format, and names it |
| `read_cache` | `ReadCache`: each message is parsed once |
| `tools` | bounding a tool's output, restoring its arguments, the recall tool |
"""

from __future__ import annotations

from ctxguard.adapting.adapter import (
    astabilize_native,
    astabilize_request,
    stabilize_native,
    stabilize_request,
)
from ctxguard.adapting.content_format import ContentFormat, read_audio, read_file, read_image, text_reader, with_titles
from ctxguard.adapting.editing import REMOVED, copy_with
from ctxguard.adapting.message_view import MessageView, PlacedCall, PlacedPart, write_each
from ctxguard.adapting.protocol import Adapter
from ctxguard.adapting.read_cache import ReadCache
from ctxguard.adapting.registry import adapter_names, detect_adapter, find_adapter
from ctxguard.adapting.request import Request
from ctxguard.adapting.tools import recall_tool_factory, unmask_arguments

__all__ = [
    "REMOVED",
    "Adapter",
    "ContentFormat",
    "MessageView",
    "PlacedCall",
    "PlacedPart",
    "ReadCache",
    "Request",
    "adapter_names",
    "astabilize_native",
    "astabilize_request",
    "copy_with",
    "detect_adapter",
    "find_adapter",
    "read_audio",
    "read_file",
    "read_image",
    "recall_tool_factory",
    "stabilize_native",
    "stabilize_request",
    "text_reader",
    "unmask_arguments",
    "with_titles",
    "write_each",
]
