"""The tool with which a model reads what was shortened, as a tool of the Agents SDK."""

from __future__ import annotations

from agents import FunctionTool, function_tool

from ctxguard.files import results
from ctxguard.stores import Store

__all__ = ["recall_tool"]


def recall_tool(store: Store | None = None, *, max_tokens: int = 2_000) -> FunctionTool:
    """Return the tool `recall`, for `Agent(tools=[…])`.

    Args:
        store: where full results were saved, as given to `BoundToolOutput` or `context_result`; None as for the latter.
        max_tokens: tokens that one call may return.
    """
    return function_tool(results.recall_tool(store, max_tokens=max_tokens))
