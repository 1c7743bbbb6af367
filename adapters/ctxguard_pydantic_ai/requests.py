"""The content of a request as PydanticAI prepares it: messages, instructions, tools, and output types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from pydantic_ai import RunContext
from pydantic_ai.messages import ModelMessage, ModelRequest

from ctxguard.adapting.request import Request, plain_settings

if TYPE_CHECKING:
    from pydantic_ai.models import ModelRequestContext

_SECRETS: Final = ("authorization_token", "headers", "metadata")
"""Fields of the provider's own tools that are intended for the tools' servers, or are not sent."""


def sent_content(request: ModelRequestContext) -> Request[Sequence[ModelMessage]]:
    """Return all parts of a request that are sent."""
    parameters: Any = request.model_request_parameters
    native = getattr(parameters, "native_tools", None) or getattr(parameters, "builtin_tools", None) or ()
    schemas = [{k: v for k, v in vars(tool).items() if v is not None and k not in _SECRETS} for tool in native]
    return Request(
        request.messages,
        _instructions(parameters, request.messages) or None,
        [_schema(definition) for definition in _definitions(parameters)],
        schemas,
        plain_settings(getattr(request, "model_settings", None)),
    )


def with_content(
    request: ModelRequestContext, was: Request[Sequence[ModelMessage]], now: Request[Sequence[ModelMessage]]
) -> ModelRequestContext:
    """Return a request with new content. The framework's parameters change only where the content does."""
    parameters: Any = request.model_request_parameters
    messages = list(now.messages)
    changes: dict[str, Any] = {}
    if list(now.tools) != list(was.tools):
        given = _definitions(parameters)
        masked = [one if a == b else _masked(one, b) for one, a, b in zip(given, was.tools, now.tools, strict=True)]
        count = len(parameters.function_tools)
        changes["function_tools"] = masked[:count]
        changes["output_tools"] = masked[count : count + len(parameters.output_tools)]
        if len(masked) > count + len(parameters.output_tools):
            changes["output_object"] = masked[-1]
    if now.instructions != was.instructions:
        parts = [part for part in getattr(parameters, "instruction_parts", None) or () if part.content]
        if parts:
            # the first part gets the whole masked text, because the framework joins the parts
            changes["instruction_parts"] = [replace(parts[0], content=now.instructions)]
        messages = [_with_instructions(message, was.instructions, now.instructions) for message in messages]
    if changes:
        parameters = replace(parameters, **changes)
    return replace(request, messages=messages, model_request_parameters=parameters)


def _with_instructions(message: ModelMessage, was: str | None, now: str | None) -> ModelMessage:
    # versions before 2.0 send the instructions stored in the latest request
    if isinstance(message, ModelRequest) and message.instructions == was:
        return replace(message, instructions=now)
    return message


def _instructions(parameters: Any, messages: Sequence[ModelMessage]) -> str:  # noqa: ANN401 - differs between versions
    parts = getattr(parameters, "instruction_parts", None)
    if parts is None:
        return latest_instructions(messages)
    return "\n\n".join(part.content for part in parts if part.content)


def latest_instructions(messages: Sequence[ModelMessage]) -> str:
    """Return the instructions of the latest request that has any. Only these are sent."""
    found = (getattr(message, "instructions", None) for message in reversed(messages))
    return next((text for text in found if text), "")


def _definitions(parameters: Any) -> list[Any]:  # noqa: ANN401 - differs between versions
    """Return the function tools, the output tools, and the output type if it is sent as a separate schema."""
    found = [*parameters.function_tools, *parameters.output_tools]
    output = getattr(parameters, "output_object", None)
    if output is not None and getattr(parameters, "output_mode", "") in ("native", "prompted", "auto"):
        found.append(output)
    return found


def _schema(definition: Any) -> Mapping[str, object]:  # noqa: ANN401 - a tool, or an output object
    parameters = getattr(definition, "parameters_json_schema", None) or getattr(definition, "json_schema", None)
    return {"name": definition.name, "description": definition.description, "parameters": parameters}


def _masked(definition: Any, schema: Mapping[str, object]) -> Any:  # noqa: ANN401 - the same
    at = "parameters_json_schema" if hasattr(definition, "parameters_json_schema") else "json_schema"
    return replace(definition, description=schema["description"], **{at: schema["parameters"]})


def tools_of(ctx: RunContext[Any]) -> list[Mapping[str, object]]:
    """Return the function and output tools for a step; empty if the context does not have them (as in 1.71)."""
    manager = getattr(ctx, "tool_manager", None)
    return [] if manager is None else list(map(_schema, manager.tool_defs))
