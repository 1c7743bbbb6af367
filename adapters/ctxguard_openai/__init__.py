"""ctxguard for raw OpenAI lists: Chat Completions messages and Responses items, as dicts or SDK objects."""

from __future__ import annotations

from ctxguard_openai.chat import OpenAIAdapter, astabilize_messages, stabilize_messages
from ctxguard_openai.recall import recall_tool
from ctxguard_openai.responses import ResponsesAdapter, astabilize_input, stabilize_input

__all__ = [
    "OpenAIAdapter",
    "ResponsesAdapter",
    "astabilize_input",
    "astabilize_messages",
    "recall_tool",
    "stabilize_input",
    "stabilize_messages",
]
