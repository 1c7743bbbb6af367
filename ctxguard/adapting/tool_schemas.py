"""Shorten tool schemas that take a large share of the budget: first fields that providers ignore, then descriptions.

The result depends only on the tools, the budget, and the texts that must not be shortened, not on the history or the
model. So the tools of a session have the same bytes in every call, and prompt caches stay valid. Names, types, enums,
and required parameters never change, so a call that is valid for a shortened schema is valid for the original.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final, Literal, TypeAlias, TypeVar

from ctxguard.adapting.fields import is_list, is_record
from ctxguard.adapting.recent import Recent
from ctxguard.content.outcomes import clipped
from ctxguard.stabilizer import Stabilizer
from ctxguard.tokens.counters import find_counter
from ctxguard.tokens.schemas import DECLARATIONS, PARAMETERS, WRAPPED, compact, fields_of

Tool = TypeVar("Tool")
Clip: TypeAlias = Callable[[str, Literal["tool", "field"]], str]

TOOLS_SHARE: Final = 0.25
"""Maximum share of the budget for tools that are sent unchanged. See `docs/decisions/0007_constants.md`."""
_WHOLE: Final = 1_000_000
_STEPS: Final = (
    *((_WHOLE, _WHOLE), (1_000, _WHOLE), (500, _WHOLE), (250, _WHOLE), (120, _WHOLE)),
    *((120, 500), (120, 250), (120, 120), (60, 60), (60, 30)),
)
"""Maximum number of characters in the description of a tool and in that of a parameter, for each step of shortening."""
_HOLDERS: Final = (*DECLARATIONS, *WRAPPED, "tools")
_BY_NAME: Final = ("properties", "$defs", "definitions", "defs", "patternProperties", "dependentSchemas")
_OF_OPTIONAL: Final = ("default", "examples", "example")
_VERBATIM: Final = (*_OF_OPTIONAL, "enum", "const", "required")
# Shortened tools, because an agent's tools are the same in every call; as JSON, because a caller may change the result.
_KNOWN: Final[Recent[tuple[str, int, frozenset[str]], str]] = Recent(64)


def shortened_tools(
    tools: Sequence[Tool], budget: int, *, is_private: Callable[[str], bool] = lambda _: False
) -> Sequence[Tool]:
    """Return tools that take at most a quarter of the budget, as far as shorter descriptions can achieve that.

    Args:
        tools: Tool schemas in the format of any API, as dicts or objects. They are not changed.
        budget: Maximum number of tokens in the whole request.
        is_private: Function that returns whether a text must not be shortened because it will be masked: rules might
            not recognize a truncated personal value.

    Returns:
        The tools: `tools` itself if an estimate says that they are small enough. Each tool that needs no shortening is
        the same object as before.
    """
    limit, text = int(TOOLS_SHARE * budget), _as_text(tools)
    if _size(text) <= limit:
        return tools
    said: dict[str, None] = {}
    for tool in tools:
        _shorter(tool, lambda text, _: said.setdefault(text) or text)
    private = frozenset(filter(is_private, said))
    short = json.loads(_KNOWN.get_or_put((text, limit, private), lambda: _fitting(tools, limit, private)))
    return [was if not now or now == fields_of(was) else _like(was, now) for was, now in zip(tools, short, strict=True)]


def tools_of_call(
    tools: Sequence[Tool], stabilizer: Stabilizer, window: int | None, is_private: Callable[[str], bool]
) -> tuple[Sequence[Tool], Mapping[str, object]]:
    """Return the tools to send in a call, and their token counts before and after shortening, for the report.

    The counts are left out if the tools did not change.
    """
    if not stabilizer.shorten_tools or not is_list(tools) or not tools:
        return tools, {}
    budget = stabilizer.budget_for(window, with_headroom=True)
    try:
        sent = shortened_tools(tools, budget, is_private=is_private)
    except (RecursionError, ValueError):  # not valid JSON; the counter will reject it with an error that names the tool
        return tools, {}
    if sent is tools:
        return tools, {}
    before, after = map(stabilizer.counter.tools, (tools, sent))  # type: ignore[arg-type]  # it reads objects, too
    return sent, {"tools": {"tokens_before": before, "tokens_after": after}}


def _like(was: Tool, now: Tool) -> Tool:
    """Return a shortened tool (`now`). If the original tool (`was`) is a pydantic object, so is the result."""
    return was.model_validate(now) if hasattr(was, "model_validate") else now


def _as_text(tools: Iterable[object]) -> str:
    return compact([fields_of(tool) or str(tool) for tool in tools])


@lru_cache(maxsize=64)  # cached, because counting takes 80% of the time of a call whose tools are small
def _size(text: str) -> int:
    return find_counter("estimate").count(text)


def _fitting(tools: Sequence[object], limit: int, private: frozenset[str]) -> str:
    """Return the tools as JSON, shortened by the first of `_STEPS` with which they fit, or by the last."""
    text = ""
    for of_tool, of_field in _STEPS:
        longest = {"tool": of_tool, "field": of_field}

        def clip(said: str, kind: str, longest: Mapping[str, int] = longest) -> str:
            return said if said in private or len(said) <= longest[kind] else clipped(said, longest[kind])

        text = compact([_shorter(tool, clip) for tool in tools])
        if _size(text) <= limit:
            break
    return text


def _shorter(tool: object, clip: Clip) -> dict[str, object]:
    made = fields_of(tool)
    for key, value in made.items():
        if key == "description" and isinstance(value, str):
            made[key] = clip(value, "tool")
        elif key in PARAMETERS:
            made[key] = _shorter_schema(value, clip, made.get("name"))
        elif key in _HOLDERS and (is_list(value) or is_record(value)):
            made[key] = [_shorter(one, clip) for one in value] if is_list(value) else _shorter(value, clip)
    return made


def _shorter_schema(schema: object, clip: Clip, name: object, *, is_optional: bool = False) -> object:
    """Return a shortened JSON schema. The schema of an optional parameter also loses its default and examples.

    Args:
        schema: The JSON schema.
        clip: Function that shortens a description.
        name: The name of the tool or parameter that the schema describes; a title that repeats the name is removed.
        is_optional: Whether the parameter is optional.
    """
    if is_list(schema):
        return [_shorter_schema(one, clip, name, is_optional=is_optional) for one in schema]
    if not is_record(schema):
        return schema
    made: dict[str, object] = {}
    fields = fields_of(schema)
    required = fields.get("required")
    for key, value in fields.items():
        repeats = key == "$schema" or (key == "title" and _letters(value) == _letters(name))
        if (repeats and isinstance(value, str)) or (is_optional and key in _OF_OPTIONAL):
            continue
        made[key] = value
        if key == "description" and isinstance(value, str):
            made[key] = clip(value, "field")
        elif key in _BY_NAME and is_record(value):
            free = {
                one: key == "properties" and not (is_list(required) and one in required) for one in fields_of(value)
            }
            made[key] = {
                one: _shorter_schema(inner, clip, one, is_optional=free[one]) for one, inner in fields_of(value).items()
            }
        elif key not in _VERBATIM:
            made[key] = _shorter_schema(value, clip, name, is_optional=is_optional)
    return made


def _letters(name: object) -> str:
    """Return only the letters and digits of a name, in lower case, so that "Order Id" equals `order_id`."""
    return "".join(filter(str.isalnum, str(name))).casefold()
