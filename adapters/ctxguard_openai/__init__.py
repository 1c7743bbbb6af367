"""ctxguard for raw OpenAI lists: Chat Completions messages as dicts, SDK objects mixed in."""

from __future__ import annotations

from ctxguard_openai.chat import OpenAIAdapter, astabilize_messages, stabilize_messages

__all__ = ["OpenAIAdapter", "astabilize_messages", "stabilize_messages"]
