"""ctxguard for Google's Agent Development Kit (ADK): a plugin that guards the model calls of a runner."""

from __future__ import annotations

from ctxguard.settings import extra

with extra("adk", "ctxguard_adk needs the Agent Development Kit"):
    import google.adk as _framework  # noqa: F401 - imported here to report a missing package in one sentence

from ctxguard_adk.guard import ContextGuard, recall_tool

__all__ = ["ContextGuard", "recall_tool"]
