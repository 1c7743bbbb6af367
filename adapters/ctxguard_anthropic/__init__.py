"""ctxguard for raw Anthropic requests: Messages as dicts or SDK objects. It does not need Anthropic's package."""

from __future__ import annotations

from ctxguard.formats.anthropic import AnthropicAdapter
from ctxguard.wire.clients import guarded
from ctxguard_anthropic.requests import astabilize_request, recall_tool, stabilize_messages, stabilize_request

__all__ = [
    "AnthropicAdapter",
    "astabilize_request",
    "guarded",
    "recall_tool",
    "stabilize_messages",
    "stabilize_request",
]
