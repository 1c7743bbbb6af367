"""The PydanticAI adapter passes the suite that every adapter passes."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

pytest.importorskip("pydantic_ai", reason="PydanticAI is not installed (extra pydantic-ai)")

from builders import chat_of
from conversions import pydantic_ai_of
from pydantic_ai.messages import ModelRequest

from ctxguard.testing import AdapterConformance
from ctxguard_pydantic_ai import PydanticAIAdapter


@dataclass
class HologramPart:
    beam: tuple[int, ...] = (1, 2, 3)
    part_kind: str = "hologram"


class TestPydanticAIAdapter(AdapterConformance):
    adapter = PydanticAIAdapter()

    def native(self, history):
        return pydantic_ai_of(chat_of(history))

    def unknown(self):
        return ModelRequest(parts=[HologramPart()])
