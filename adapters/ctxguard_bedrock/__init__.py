"""ctxguard for Amazon Bedrock's Converse API: messages as the dicts of boto3. It does not need boto3."""

from __future__ import annotations

from ctxguard.formats.converse import BedrockAdapter
from ctxguard_bedrock.clients import guarded
from ctxguard_bedrock.requests import astabilize_request, recall_tool, stabilize_messages, stabilize_request

__all__ = [
    "BedrockAdapter",
    "astabilize_request",
    "guarded",
    "recall_tool",
    "stabilize_messages",
    "stabilize_request",
]
