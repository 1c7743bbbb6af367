"""Stabilize what goes to `client.models.generate_content`, or to the REST API."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

from ctxguard.adapting.adapter import request_flow, stabilize_with_system
from ctxguard.adapting.editing import are_same_objects, copy_with
from ctxguard.adapting.fields import Path, fields_of, get
from ctxguard.adapting.request import Request, settings_of
from ctxguard.adapting.tools import recall_tool_factory
from ctxguard.draft import Ask, adrive, drive
from ctxguard.files.results import RECALL_SCHEMA
from ctxguard_google.adapter import Content, GoogleAdapter, Native

if TYPE_CHECKING:
    from ctxguard.report import Report
    from ctxguard.stabilizer import Stabilizer

Schema = Mapping[str, object]

_RECALL: Final = {
    "function_declarations": [
        {
            "name": RECALL_SCHEMA["name"],
            "description": RECALL_SCHEMA["description"],
            "parameters_json_schema": RECALL_SCHEMA["parameters"],
        }
    ]
}
_PROMPTS: Final = frozenset({"system_instruction", "systemInstruction"})
_HOLDERS: Final = ("config", "generationConfig", "generation_config")
"""Where settings stand: in the `config` of the SDK, or in the body of the REST API and its `generationConfig`."""
_SCHEMAS: Final = ("response_schema", "response_json_schema", "responseSchema", "responseJsonSchema")
"""Settings that the model is shown, and that cannot be changed without changing what comes back."""
_NOT_SENT: Final = frozenset({"http_options", "httpOptions", "automatic_function_calling"})
"""Settings of the SDK itself: headers with keys among them."""
recall_tool = recall_tool_factory(lambda recall: (_RECALL, recall))
"""Make the recall tool: its schema, for `tools=[…]`, and the function to call with the `args` of a function call.

Call it as `recall_tool(store, max_tokens=2_000)`; its parameters are those of `ctxguard.content.recall_tool`.
"""


def stabilize_request(
    request: Mapping[str, object], stabilizer: Stabilizer, *, window: int | None = None
) -> tuple[dict[str, Any], Report]:
    """Return the stabilized request and the report. The request and all in it are not changed.

    Descriptions of tools are masked as the contents are. A rule that matches in anything that cannot be changed (names,
    schemas, labels) fails the check `NoPII`. Python functions among the tools are counted by the declarations that the
    SDK makes of them.

    Args:
        request: The arguments of `client.models.generate_content` (`contents`, and `config` where there is one), or the
            body of a request to the REST API.
        stabilizer: Does the work.
        window: The model's context window in tokens, where the budget is a share of it.

    Raises:
        HistoryError: It is not a request with contents, or a content cannot be read.
        BudgetExceededError: What must stay does not fit.
    """
    return drive(_flow(request, stabilizer, window))


async def astabilize_request(
    request: Mapping[str, object], stabilizer: Stabilizer, *, window: int | None = None
) -> tuple[dict[str, Any], Report]:
    """Do what `stabilize_request` does where summarizers or stores are async."""
    return await adrive(_flow(request, stabilizer, window))


def _flow(
    request: Mapping[str, object], stabilizer: Stabilizer, window: int | None
) -> Generator[Ask, object, tuple[dict[str, Any], Report]]:
    done, report = yield from request_flow(stabilizer, GoogleAdapter(), _request(request), window=window)
    return _written(request, done), report


def stabilize_messages(
    contents: Sequence[Content],
    stabilizer: Stabilizer,
    *,
    system_instruction: Content | None = None,
    tools: Sequence[Schema] | None = None,
    window: int | None = None,
) -> tuple[Content | None, list[Content], Report]:
    """Return the system instruction, the stabilized contents and the report; see `stabilize_request`.

    The tools are sent by the caller as they are: what a rule finds in them fails the check `NoPII`.
    """
    named = ("contents", contents), ("system_instruction", system_instruction)
    return stabilize_with_system(stabilizer, GoogleAdapter(), *named, tools=tools, window=window)


def _request(request: Mapping[str, object]) -> Request[Native]:
    """Return what has to be a request, taken apart."""
    taken = {"contents", "tools", *_PROMPTS, *_HOLDERS}
    settings, schemas = settings_of(request, history="contents", taken=taken, billed=())
    for holder in _HOLDERS:
        for key, value in _set_fields(request.get(holder)):
            if key in _SCHEMAS:
                schemas.append({key: _as_schema(value)})
            elif key != "tools" and key not in _PROMPTS | _NOT_SENT:
                settings[key] = value
    tools = _tools(request)
    schemas += [_declared(tool) for tool in tools if callable(tool)]
    return Request(
        cast("Native", request),
        tools=cast("Sequence[Schema]", [tool for tool in tools if not callable(tool)]),
        schemas=schemas,
        settings=settings,
    )


def _set_fields(holder: object) -> Iterator[tuple[str, object]]:
    """Walk the fields of settings that are set, as they are: a dump would choke on functions among the tools."""
    names = holder if isinstance(holder, Mapping) else getattr(holder, "model_fields_set", ())
    for name in names:
        if (value := get(holder, name)) is not None:
            yield name, value


def _as_schema(value: object) -> object:
    return value.model_json_schema() if hasattr(value, "model_json_schema") else fields_of(value) or str(value)


def _tools_at(request: Mapping[str, object]) -> Path:
    return ("tools",) if request.get("tools") is not None else ("config", "tools")


def _tools(request: Mapping[str, object]) -> list[object]:
    path = _tools_at(request)
    tools = request.get("tools") if len(path) == 1 else get(request.get("config"), "tools")
    return list(tools) if isinstance(tools, (list, tuple)) else [] if tools is None else [tools]


def _declared(function: object) -> Schema:
    """Return the declaration that the SDK makes of a Python function."""
    from google.genai import types

    declaration = types.FunctionDeclaration.from_callable_with_api_option(callable=function)  # type: ignore[arg-type]
    return {"function_declarations": [declaration.model_dump(mode="json", exclude_none=True)]}


def _written(request: Mapping[str, object], done: Request[Native]) -> dict[str, object]:
    """Return the stabilized request, with the very tools it had where none was changed."""
    written = dict(cast("Mapping[str, object]", done.messages))
    tools = _tools(request)
    if are_same_objects(done.tools, [tool for tool in tools if not callable(tool)]):
        return written
    now: Iterator[object] = iter(done.tools)
    return copy_with(written, {_tools_at(request): [tool if callable(tool) else next(now) for tool in tools]})
