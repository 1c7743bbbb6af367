"""What is known of a chat model: its window, and the tools that are bound to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.utils.function_calling import convert_to_openai_tool

__all__ = ["bound_tools", "model_window", "tool_schemas"]


def model_window(model: object) -> int | None:
    """Return the input window of a model in tokens, by its profile; None where it has none.

    Bindings (`model.bind_tools(…)`, `model.with_config(…)`) are looked through. In langchain-core 1.0 profiles need
    the package `langchain-model-profiles`.
    """
    try:
        profile = getattr(_unbound(model), "profile", None)
    except ImportError:
        return None
    window = profile.get("max_input_tokens") if isinstance(profile, Mapping) else None
    return window if isinstance(window, int) else None


def bound_tools(model: object) -> list[Mapping[str, Any]]:
    """Return the schemas of the tools that are bound to a model."""
    while hasattr(model, "bound"):
        if tools := getattr(model, "kwargs", {}).get("tools"):
            return tool_schemas(tools)
        model = model.bound
    return []


def _unbound(model: object) -> object:
    while hasattr(model, "bound"):
        model = model.bound
    return model


def tool_schemas(tools: Sequence[Any]) -> list[Mapping[str, Any]]:
    """Return tools of any kind that LangChain takes as the schemas that are sent; dicts are sent as they are."""
    return [tool if isinstance(tool, Mapping) else convert_to_openai_tool(tool) for tool in tools]
