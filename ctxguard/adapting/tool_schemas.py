"""Shorten tool schemas that take a large share of the budget: first what providers ignore, then descriptions.

The result depends on the tools, the budget, and the texts that must stay whole, and on nothing else: not on the history
or the model. So the tools of a session are the same bytes in every call, and prompt caches stay valid. Names, types,
enums, and required parameters never change, so the same calls are valid for both forms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal, NamedTuple, TypeVar, cast

from ctxguard.adapting.editing import REMOVED, copy_with
from ctxguard.adapting.fields import Path, fields_of, get, is_list, is_record, member_at, text_of
from ctxguard.adapting.recent import Recent
from ctxguard.content.outcomes import clipped
from ctxguard.stabilizer import Stabilizer
from ctxguard.tokens.counters import find_counter
from ctxguard.tokens.schemas import DECLARATIONS, PARAMETERS, WRAPPED, compact

Tool = TypeVar("Tool")

TOOLS_SHARE: Final = 0.25
"""Share of the budget up to which tools are sent as they are. See `docs/decisions/0007_constants.md`."""
_WHOLE: Final = 1_000_000
_STEPS: Final = (
    *((_WHOLE, _WHOLE), (1_000, _WHOLE), (500, _WHOLE), (250, _WHOLE), (120, _WHOLE)),
    *((120, 500), (120, 250), (120, 120), (60, 60), (60, 30)),
)
"""Characters of the descriptions of a tool and of a parameter, step by step."""
_BY_NAME: Final = ("properties", "$defs", "definitions", "defs", "patternProperties")
_WITHIN: Final = (
    *("items", "additionalProperties", "additional_properties", "not", "contains"),
    *("anyOf", "oneOf", "allOf", "any_of", "prefixItems", "prefix_items"),
)
_OF_OPTIONAL: Final = ("default", "examples", "example")
# the tools of an agent are the same at every call
_KNOWN: Final[Recent[tuple[str, int, frozenset[str]], list[dict[Path, object]]]] = Recent(64)


class _Place(NamedTuple):
    """What may change in a tool: its description (`tool`), one in its schema (`field`), or a key that may go."""

    path: Path
    kind: Literal["tool", "field", "ignored"]
    text: str = ""


def shortened_tools(
    tools: Sequence[Tool], budget: int, *, is_private: Callable[[str], bool] = lambda _: False
) -> Sequence[Tool]:
    """Return tools that take at most a quarter of the budget, as far as shorter descriptions achieve that.

    Args:
        tools: In the form of any API, dicts or objects; not changed. Those that need no change stay the same objects.
        budget: Tokens that the whole request may take.
        is_private: Whether a text must not be shortened because it will be masked: a part of a personal value would
            no longer be recognized.

    Returns:
        The tools themselves if they are small enough: by an estimate that needs no vocabulary.
    """
    limit, text = int(TOOLS_SHARE * budget), _as_text(tools)
    if _size(text) <= limit:
        return tools
    places = [list(_places(tool)) for tool in tools]
    private = frozenset(place.text for of_tool in places for place in of_tool if is_private(place.text))
    changes = _KNOWN.get_or_put((text, limit, private), lambda: _changes(tools, places, limit, private))
    return list(map(copy_with, tools, changes))


def tools_of_call(
    tools: Sequence[Tool], stabilizer: Stabilizer, window: int | None, is_private: Callable[[str], bool]
) -> tuple[Sequence[Tool], Mapping[str, object]]:
    """Return the tools that a call sends, and what the report says of their tokens; nothing if they are unchanged."""
    if not stabilizer.shorten_tools or not is_list(tools) or not tools:
        return tools, {}
    sent = shortened_tools(tools, stabilizer.budget_for(window, with_headroom=True), is_private=is_private)
    if sent is tools:
        return tools, {}
    before, after = map(stabilizer.counter.tools, (tools, sent))  # type: ignore[arg-type]  # it reads objects, too
    return sent, {"tools": {"tokens_before": before, "tokens_after": after}}


def _as_text(tools: Iterable[object]) -> str:
    return compact([fields_of(tool) or str(tool) for tool in tools])


def _size(text: str) -> int:
    return find_counter("estimate").count(text)


def _changes(
    tools: Sequence[object], places: Sequence[Sequence[_Place]], limit: int, private: frozenset[str]
) -> list[dict[Path, object]]:
    """Return the changes of each tool at the first step that fits, or at the last one."""
    changes: list[dict[Path, object]] = []
    for of_tool, of_field in _STEPS:
        longest = {"tool": of_tool, "field": of_field, "ignored": 0}
        changes = [
            {p.path: clipped(p.text, longest[p.kind]) if p.text else REMOVED for p in listed if _is_long(p, longest)}
            for listed in ([p for p in of_one if p.text not in private] for of_one in places)
        ]
        if _size(_as_text(map(copy_with, tools, changes))) <= limit:
            break
    return changes


def _is_long(place: _Place, longest: Mapping[str, int]) -> bool:
    return place.kind == "ignored" or len(place.text) > longest[place.kind]


def _places(tool: object, path: Path = ()) -> Iterator[_Place]:
    """Yield what may change in a tool of any API."""
    listed = next((key for key in (*DECLARATIONS, "tools") if is_list(get(tool, key))), "")
    wrapped = next((key for key in WRAPPED if is_record(get(tool, key))), "")
    if listed:
        for number, one in enumerate(cast("Sequence[object]", get(tool, listed))):
            yield from _places(one, (*path, listed, number))
    elif wrapped:
        yield from _places(get(tool, wrapped), (*path, wrapped))
    else:
        if about := text_of(tool, "description"):
            yield _Place((*path, "description"), "tool", about)
        for at in (at for key in PARAMETERS for at in ((key,), (key, "json"))):  # Converse has one more level
            yield from _of_schema(member_at(tool, at), (*path, *at), get(tool, "name"))


def _of_schema(schema: object, path: Path, name: object, *, is_optional: bool = False) -> Iterator[_Place]:
    title, about = text_of(schema, "title") or "", text_of(schema, "description")
    ignored = {"$schema": text_of(schema, "$schema"), "title": title and _letters(title) == _letters(name)}
    ignored |= {key: is_optional and key in fields_of(schema) for key in _OF_OPTIONAL}
    yield from (_Place((*path, key), "ignored") for key, is_ignored in ignored.items() if is_ignored)
    if about:
        yield _Place((*path, "description"), "field", about)
    required = get(schema, "required")
    for key in _BY_NAME:
        for field, inner in fields_of(get(schema, key)).items():
            is_free = key == "properties" and not (is_list(required) and field in required)
            yield from _of_schema(inner, (*path, key, field), field, is_optional=is_free)
    for key in _WITHIN:
        found = get(schema, key)
        members = [((key, n), one) for n, one in enumerate(found)] if is_list(found) else [((key,), found)]
        for at, inner in members:
            if is_record(inner):
                yield from _of_schema(inner, (*path, *at), name, is_optional=is_optional)


def _letters(name: object) -> str:
    """Return a name as letters and digits alone: "Order Id" and `order_id` are the same."""
    return "".join(filter(str.isalnum, str(name))).casefold()
