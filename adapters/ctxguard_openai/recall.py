"""The tool with which a model reads what was shortened: its schema for Chat Completions, and what answers its calls."""

from __future__ import annotations

from collections.abc import Callable

from ctxguard.files import results
from ctxguard.stores import Store

__all__ = ["recall_tool"]


def recall_tool(store: Store | None = None, *, max_tokens: int = 2_000) -> tuple[dict[str, object], Callable[..., str]]:
    """Return the schema of `recall`, for `tools=[…]`, and the function to call with the arguments of a call.

    Args:
        store: where full results were saved, as given to `BoundToolOutput` or `context_result`; None as for the latter.
        max_tokens: tokens that one call may return.
    """
    return {"type": "function", "function": results.RECALL_SCHEMA}, results.recall_tool(store, max_tokens=max_tokens)
