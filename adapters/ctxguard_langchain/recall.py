"""The tool with which a model reads what was shortened, as a LangChain tool."""

from __future__ import annotations

from langchain_core.tools import BaseTool, StructuredTool

from ctxguard.files import results
from ctxguard.stores import Store

__all__ = ["recall_tool"]


def recall_tool(store: Store | None = None, *, max_tokens: int = 2_000) -> BaseTool:
    """Return the tool `recall`, for `bind_tools`, agents and graphs.

    Args:
        store: where full results were saved, as given to `BoundToolOutput` or `context_result`; None as for the latter.
        max_tokens: tokens that one call may return.
    """
    return StructuredTool.from_function(results.recall_tool(store, max_tokens=max_tokens), parse_docstring=True)
