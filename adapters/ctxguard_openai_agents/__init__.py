"""ctxguard for the OpenAI Agents SDK: the model's input is stabilized, and the session keeps the original items."""

from __future__ import annotations

from ctxguard.settings import extra

with extra("openai-agents", "ctxguard_openai_agents needs the Agents SDK"):
    import agents as _framework  # noqa: F401 - imported here to report a missing package in one sentence

from ctxguard_openai_agents.durable import with_input_filter
from ctxguard_openai_agents.filters import call_model_input_filter, recall_tool, with_vault
from ctxguard_openai_agents.restoring import with_restored_values
from ctxguard_openai_agents.retries import with_overflow_retry
from ctxguard_openai_agents.sessions import MaskedSession

__all__ = [
    "MaskedSession",
    "call_model_input_filter",
    "recall_tool",
    "with_input_filter",
    "with_overflow_retry",
    "with_restored_values",
    "with_vault",
]
