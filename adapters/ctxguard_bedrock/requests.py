"""Stabilize the arguments of `client.converse` and `client.converse_stream`."""

from __future__ import annotations

from typing import Final

from ctxguard.adapting.tool_calls import RecallToolFactory
from ctxguard.content.results import RECALL_SCHEMA
from ctxguard.formats.converse import BedrockAdapter
from ctxguard.formats.requests import Requests

_RECALL: Final = {
    "toolSpec": {
        "name": RECALL_SCHEMA["name"],
        "description": RECALL_SCHEMA["description"],
        "inputSchema": {"json": RECALL_SCHEMA["parameters"]},
    }
}
_REQUESTS: Final = Requests(BedrockAdapter())
stabilize_request = _REQUESTS.stabilize_request
astabilize_request = _REQUESTS.astabilize_request
stabilize_messages = _REQUESTS.stabilize_messages
recall_tool = RecallToolFactory(lambda recall: (_RECALL, recall))
"""Create the recall tool: its schema, for `toolConfig["tools"]`, and the function to call with a `toolUse` input.

Call it as `recall_tool(store, max_tokens=2_000)`. The parameters are those of `ctxguard.content.recall_tool`.
"""
