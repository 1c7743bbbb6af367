"""Stabilize the arguments of `client.messages.create`."""

from __future__ import annotations

from typing import Final

from ctxguard.adapting.tool_calls import RecallToolFactory
from ctxguard.content.results import RECALL_SCHEMA
from ctxguard.formats.anthropic import AnthropicAdapter
from ctxguard.formats.requests import Requests

_RECALL: Final = AnthropicAdapter().declared(RECALL_SCHEMA)
_REQUESTS: Final = Requests(AnthropicAdapter())
stabilize_request = _REQUESTS.stabilize_request
astabilize_request = _REQUESTS.astabilize_request
stabilize_messages = _REQUESTS.stabilize_messages
recall_tool = RecallToolFactory(lambda recall: (_RECALL, recall))
"""Create the recall tool: its schema, for `tools=[…]`, and the function to call with the input of a `tool_use` block.

Call it as `recall_tool(store, max_tokens=2_000)`. The parameters are those of `ctxguard.content.recall_tool`.
"""
