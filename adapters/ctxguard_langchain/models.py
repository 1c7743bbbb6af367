"""What is known of a chat model, bare or wrapped: its name, its window, its tools, and what else is bound to it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.utils.function_calling import convert_to_openai_tool

from ctxguard.adapting.request import plain_settings


def model_window(model: object) -> int | None:
    """Return the number of input tokens in a model's profile, or None if the model has no profile.

    langchain-core 1.0.0 has no profiles. Later versions first kept them in the package `langchain-model-profiles`.
    """
    try:
        profile = next((getattr(m, "profile", None) for m in _layers(model) if isinstance(m, BaseChatModel)), None)
    except ImportError:
        return None
    window = profile.get("max_input_tokens") if isinstance(profile, Mapping) else None
    return window if isinstance(window, int) else None


def model_name(model: object) -> str | None:
    """Return the name of a model, or None if its class has no name attribute."""
    named = (getattr(m, field, None) for m in _layers(model) for field in ("model_name", "model", "model_id"))
    return next((name for name in named if isinstance(name, str) and name), None)


def bound_arguments(model: object) -> Mapping[str, Any]:
    """Return the arguments that are bound to a model, such as its tools. Of two, the outer one counts."""
    bound: dict[str, Any] = {}
    for layer in _layers(model):
        kwargs = getattr(layer, "kwargs", None)
        bound = {**(kwargs if isinstance(kwargs, Mapping) else {}), **bound}
    return bound


def sent_settings(bound: Mapping[str, Any]) -> tuple[list[Mapping[str, Any]], Mapping[str, object]]:
    """Return what is bound to a model besides its tools: the schema of an output given as a class, and the rest.

    Arguments that begin with `ls_` are for tracing and are not sent.
    """
    rest = {key: value for key, value in bound.items() if key != "tools" and not key.startswith("ls_")}
    form = rest.pop("response_format") if isinstance(rest.get("response_format"), type) else None
    return tool_schemas([form] if form else []), plain_settings(rest)


def _layers(model: object) -> Iterator[object]:
    """Yield the wrappers around a model (bindings, retries, fallbacks, alternatives), and the model last."""
    while model is not None:
        yield model
        if isinstance(model, BaseChatModel):
            return
        model = next(
            (inner for name in ("bound", "runnable", "default") if (inner := getattr(model, name, None))), None
        )


def tool_schemas(tools: Sequence[Any]) -> list[Mapping[str, Any]]:
    """Return the schemas of tools of any type that LangChain accepts. Dicts are returned unchanged."""
    return [tool if isinstance(tool, Mapping) else convert_to_openai_tool(tool) for tool in tools]


def model_among(steps: Sequence[object]) -> int | None:
    """Return the index of the first step of a chain that is a chat model, or wraps one; None if there is none."""
    for number, step in enumerate(steps):
        if any(isinstance(layer, BaseChatModel) for layer in _layers(step)):
            return number
    return None
