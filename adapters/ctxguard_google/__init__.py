"""ctxguard for google-genai: contents as dicts or SDK objects. It does not need Google's package."""

from __future__ import annotations

from ctxguard.formats.gemini import GoogleAdapter
from ctxguard_google.clients import guarded
from ctxguard_google.requests import astabilize_request, recall_tool, stabilize_messages, stabilize_request

__all__ = [
    "GoogleAdapter",
    "astabilize_request",
    "guarded",
    "recall_tool",
    "stabilize_messages",
    "stabilize_request",
]
