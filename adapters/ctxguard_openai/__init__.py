"""ctxguard for raw OpenAI lists: Chat Completions messages and Responses items, as dicts or SDK objects."""

from __future__ import annotations

from ctxguard.formats.chat import OpenAIAdapter
from ctxguard.formats.responses import ResponsesAdapter
from ctxguard.wire.clients import guarded
from ctxguard_openai.requests import (
    astabilize_input,
    astabilize_messages,
    astabilize_request,
    recall_tool,
    stabilize_input,
    stabilize_messages,
    stabilize_request,
)

__all__ = [
    "OpenAIAdapter",
    "ResponsesAdapter",
    "astabilize_input",
    "astabilize_messages",
    "astabilize_request",
    "guarded",
    "recall_tool",
    "stabilize_input",
    "stabilize_messages",
    "stabilize_request",
]
