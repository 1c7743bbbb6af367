"""ctxguard for LiteLLM's proxy: a guardrail that stabilizes and masks requests, and restores values in responses."""

from __future__ import annotations

try:
    import litellm as _framework  # noqa: F401 - imported here to report a missing package in one sentence
except ImportError as error:
    raise ImportError("ctxguard_litellm needs LiteLLM's proxy: pip install 'litellm[proxy]'") from error

from ctxguard_litellm.guard import Guard

__all__ = ["Guard"]
