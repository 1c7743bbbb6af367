"""The tool with which a model reads what was shortened, as a PydanticAI tool."""

from __future__ import annotations

from pydantic_ai import Tool

from ctxguard.files import results
from ctxguard.stores import Store

__all__ = ["recall_tool"]


def recall_tool(store: Store | None = None, *, max_tokens: int = 2_000) -> Tool[object]:
    """Return the tool `recall`, for `Agent(tools=[…])`.

    Args:
        store: where full results were saved, as given to `BoundToolOutput` or `context_result`; None as for the latter.
        max_tokens: tokens that one call may return.
    """
    return Tool(results.recall_tool(store, max_tokens=max_tokens), takes_ctx=False)
