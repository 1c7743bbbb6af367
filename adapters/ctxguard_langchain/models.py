"""The context window of a chat model, its name, and the tools that are bound to it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.tools import StructuredTool
from langchain_core.utils.function_calling import convert_to_openai_tool

from ctxguard.adapting.tools import RecallToolFactory

recall_tool = RecallToolFactory(lambda recall: StructuredTool.from_function(recall, parse_docstring=True))
"""Make the recall tool, for `bind_tools`, agents and graphs.

Call it as `recall_tool(store, max_tokens=2_000)`; its parameters are those of `ctxguard.content.recall_tool`.
"""


def model_window(model: object) -> int | None:
    """Return the input window of a model in tokens, from its profile; None if it has none.

    langchain-core 1.0.0 has no profiles; later versions first kept them in the package `langchain-model-profiles`.
    """
    try:
        profile = next((getattr(m, "profile", None) for m in layers(model) if isinstance(m, BaseChatModel)), None)
    except ImportError:
        return None
    window = profile.get("max_input_tokens") if isinstance(profile, Mapping) else None
    return window if isinstance(window, int) else None


def model_name(model: object) -> str | None:
    """Return the name of a model; None if its class has none."""
    named = (getattr(m, field, None) for m in layers(model) for field in ("model_name", "model", "model_id"))
    return next((name for name in named if isinstance(name, str) and name), None)


def bound_tools(model: object) -> list[Mapping[str, Any]]:
    """Return the schemas of the tools that are bound to a model."""
    bound = (getattr(layer, "kwargs", {}).get("tools") for layer in layers(model))
    return next((tool_schemas(tools) for tools in bound if tools), [])


def layers(model: object) -> Iterator[object]:
    """Yield the wrappers of a model (bindings, retries, fallbacks, alternatives), and the model last."""
    while model is not None:
        yield model
        if isinstance(model, BaseChatModel):
            return
        model = next(
            (inner for name in ("bound", "runnable", "default") if (inner := getattr(model, name, None))), None
        )


def tool_schemas(tools: Sequence[Any]) -> list[Mapping[str, Any]]:
    """Return tools of any kind that LangChain accepts as schemas; dicts stay unchanged."""
    return [tool if isinstance(tool, Mapping) else convert_to_openai_tool(tool) for tool in tools]
