"""The PydanticAI adapter passes the suite that every adapter passes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pytest

pytest.importorskip("pydantic_ai", reason="PydanticAI is not installed (extra pydantic-ai)")

from builders import chat_of
from conversions import pydantic_ai_of
from pydantic_ai.messages import ModelMessage, ModelRequest

from ctxguard.testing import AdapterConformance
from ctxguard_pydantic_ai import PydanticAIAdapter


@dataclass
class HologramPart:
    beam: tuple[int, ...] = (1, 2, 3)
    part_kind: str = "hologram"


class TestPydanticAIAdapter(AdapterConformance):
    adapter = PydanticAIAdapter()
    classes = (ModelMessage,)
    unsearched: ClassVar = {
        "*.metadata*": "for the application; the framework does not send it",
        "*.provider_name": "the framework compares it with the provider of the model",
        "*.dynamic_ref": "by which the framework finds the function that made the prompt",
        "*.context_id": "the framework's own",
        "SpeechTimestamp.text": "belongs to the sound; the transcript is searched",
        "ErrorDetails.input": "left out of what the model is told of an error",
        "ErrorDetails.ctx*": "left out of what the model is told of an error",
        "RetryPromptPart.tool_call_id": "sent with the name of a tool alone, and searched there",
        "ModelRequest.instructions": "sent beside the history, and masked by ContextGuard",
        "ModelRequest.*_id": "the framework's own",
        "ModelResponse.*": "what the provider said of an answer; its parts alone are sent back",
        "RequestUsage.details*": "counts of tokens",
        "WorkspaceRef.*": "the framework's own",
        "ModelRequestAttempt.*": "what came of earlier tries; the framework does not send it",
    }

    def native(self, history):
        return pydantic_ai_of(chat_of(history))

    def unknown(self):
        return ModelRequest(parts=[HologramPart()])
