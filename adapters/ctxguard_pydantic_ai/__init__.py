"""ctxguard for PydanticAI: a capability, a history processor, and the adapter they share."""

from __future__ import annotations

from ctxguard.settings import extra

with extra("pydantic-ai", "ctxguard_pydantic_ai needs PydanticAI"):
    import pydantic_ai as _framework  # noqa: F401 - imported here to report a missing package in one sentence

from ctxguard_pydantic_ai.adapter import PydanticAIAdapter
from ctxguard_pydantic_ai.durable import DurableContextGuard
from ctxguard_pydantic_ai.guard import ContextGuard, history_processor, recall_tool

__all__ = ["ContextGuard", "DurableContextGuard", "PydanticAIAdapter", "history_processor", "recall_tool"]
