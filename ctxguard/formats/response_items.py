"""One input item of the Responses API: its type, its texts, and copies of it with other texts.

The item types are those of `openai.types.responses.ResponseInputItemParam`; which outputs belong to which calls is as
in OpenAI's Agents SDK.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, TypeAlias

from ctxguard.adapting.content_format import places_of_texts, read_unknown, sealed
from ctxguard.adapting.fields import REMOVED, Path, arguments_as_text, copy_with, get, require_field, text_of
from ctxguard.adapting.json_walk import PlacedField, extra_fields, fixed_field, without_tokens
from ctxguard.adapting.message_view import RESPONSES, MessageView, PlacedCall, PlacedPart, nested, refuse_foreign
from ctxguard.artifacts import Artifact, Field, Kind, Part, ToolCall
from ctxguard.formats.chat import PARTS
from ctxguard.tokens.families import Costs
from ctxguard.tokens.schemas import fields_of

Item: TypeAlias = Mapping[str, object]
"""An input item: a dict, or an SDK object with the same fields."""

_ROLES: Final = {role: Kind(role) for role in ("system", "developer", "user", "assistant")}
_OUTPUT_OF: Final = {
    "function_call": "function_call_output",
    "custom_tool_call": "custom_tool_call_output",
    "computer_call": "computer_call_output",
    "shell_call": "shell_call_output",
    "apply_patch_call": "apply_patch_call_output",
    "local_shell_call": "local_shell_call_output",
    "tool_search_call": "tool_search_output",
    "mcp_approval_request": "mcp_approval_response",
}
_CALL_OF: Final = {output: call for call, output in _OUTPUT_OF.items()}
_ID_AT: Final = {"mcp_approval_request": "id", "mcp_approval_response": "approval_request_id"}
"""The field that contains the id of a call, for types that do not use `call_id`."""
_FIXED: Final = (
    "item_reference",
    "compaction",
    "compaction_trigger",
    "configuration_update",
    "additional_tools",
    "mcp_list_tools",
)
"""Types of items that concern the whole conversation. They are never dropped; each becomes one artifact."""
_HOSTED: Final = (
    "file_search_call",
    "web_search_call",
    "code_interpreter_call",
    "image_generation_call",
    "mcp_call",
    "tool_search_call",
    "tool_search_output",
    "program",
    "program_output",
)
"""Types of items that the provider executed. Such items cannot be sent without their ids."""
_KNOWN: Final = frozenset({*_OUTPUT_OF, *_CALL_OF, *_HOSTED, "message", "reasoning"})
OWN: Final = _KNOWN.union(_FIXED) - {"message"}
"""Types of items that no other format has."""
_CONTENT: Final = {"message": "content", "custom_tool_call_output": "output", "function_call_output": "output"}
"""Types of items whose content is a string or a list of parts, and the field that contains it."""
_ARGUMENTS: Final = {"function_call": "arguments", "custom_tool_call": "input", "mcp_approval_request": "arguments"}
_ACTIONS: Final = ("action", "actions", "operation", "output", "reason")
"""Fields that may contain an action or its result, in calls and outputs that the two tables above do not list."""
_INSTEAD: Final = ("actions", "operation", "arguments", "approve", "tools", "status")
"""Fields that an item may have instead of an action or output."""
_TEXTS: Final = ("text", "refusal", "command", "commands", "diff", "stdout", "stderr", "output", "reason")
"""Keys in actions and their outputs whose strings a stage may change."""
_READ: Final = frozenset({"type", "role", "call_id", "name", "summary", "status"})
"""Fields of an item that the adapter reads besides its content."""
_SEALED: Final = frozenset({"encrypted_content"})
_SPOKEN: Final = ("type", "text", "refusal")
_BLANK: Final = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg=="
)


def item_type(item: object) -> str | None:
    """Return the type of an item: `message` if it has only a role, `item_reference` if it has only an id."""
    kind = text_of(item, "type")
    if kind is None:
        kind = "message" if text_of(item, "role") is not None else None
    return "item_reference" if kind is None and text_of(item, "id") is not None else kind


def call_id(item: object) -> str | None:
    """Return the id of a call, or the id of the call that an output answers."""
    kind = item_type(item) or ""
    found = text_of(item, _ID_AT.get(kind, "call_id"))
    return text_of(item, "id") if found is None and kind == "local_shell_call_output" else found


def _is_in(item: object, kind: str | None, pairs: Mapping[str, str]) -> bool:
    """Return whether an item is of a type in `pairs` and not executed by the provider.

    A tool search without a call id was executed by the provider.
    """
    return kind in pairs and (kind not in _HOSTED or call_id(item) is not None)


def is_model_item(item: object, kind: str | None) -> bool:
    """Return whether an item of type `kind` was written by the model, or by the provider on its behalf."""
    if kind == "message":
        return get(item, "role") == "assistant"
    return kind not in _FIXED and not _is_in(item, kind, _CALL_OF)


def is_bound(item: object) -> bool:
    """Return whether the provider accepts an item only with its id."""
    return item_type(item) in _HOSTED or _stays((item,))


def _stays(items: tuple[object, ...]) -> bool:
    """Return whether items must not be dropped: items in `_FIXED`, and items of unknown type or role."""
    if item_type(items[0]) == "message":
        return str(get(items[0], "role")) not in _ROLES
    return all(item_type(item) not in _KNOWN for item in items)


def view(items: tuple[Item, ...]) -> MessageView:
    """Return the view of the consecutive items of one artifact. Each path in it begins with the index of the item.

    Each item has the framing of a message. Since the artifact is counted as one message, the framing of the other items
    is added as a field. The calls that a program makes are part of its run and have no separate results.
    """
    first, kinds = items[0], list(map(item_type, items))
    answers, runs = _is_in(first, kinds[0], _CALL_OF), "program" in kinds
    framed: list[PlacedField] = [((), Field("", "", tokens=Costs().message)) for _ in items[1:]]
    calling = [n for n, item in enumerate(items) if not runs and _is_in(item, kinds[n], _OUTPUT_OF)]
    role = str(get(first, "role")) if kinds[0] == "message" else None
    return MessageView(
        Kind.TOOL if answers else _ROLES.get(role or "", Kind.ASSISTANT),
        [placed for n, item in enumerate(items) for placed in nested(n, _parts(item, str(kinds[n]), in_program=runs))],
        [_call_place(items[number], str(kinds[number]), number) for number in calling],
        tool_call_id=call_id(first) if answers else None,
        tool_call_id_at=(0, "call_id"),
        name=text_of(first, "name") if answers or role else None,
        role=None if role in _ROLES else role,
        pinned=_stays(items),
        fields=[placed for number, item in enumerate(items) for placed in nested(number, _fields(item))] + framed,
    )


def _fields(item: Item) -> Iterator[PlacedField]:
    """Yield the fields of an item other than its content and its call."""
    kind = str(item_type(item))
    read = _parts(item, kind, in_program=True)
    is_opaque = any(part.kind == "opaque" and part.tokens != 0 for _, part in read)
    if is_opaque and kind not in _CONTENT and kind != "reasoning":
        # the item is already counted as a whole, but its texts still have to be searched
        yield from without_tokens(fixed_field("", item, ()))
        return
    held = _CONTENT.get(kind, "")
    shown = {key for key in _ACTIONS if get(get(item, key), "type") == "computer_screenshot"}
    yield from extra_fields(item, own=_READ | {held} | shown, billed=_SEALED, taken=places_of_texts(read))
    yield from PARTS.extra_fields(get(item, held), (held,))
    for key in shown:
        yield from PARTS.part_fields(get(item, key), (key,))


def _call_place(item: Item, kind: str, number: int) -> PlacedCall:
    """Return the call in an item, and the paths of its fields. Structured arguments belong to the content instead."""
    field = _ARGUMENTS.get(kind, "")
    arguments = arguments_as_text(get(item, field))
    call = ToolCall(str(get(item, "name") or kind), arguments, call_id(item), takes_object=kind == "function_call")
    return PlacedCall(call, (number, field), (number, "call_id"))


def _parts(item: Item, kind: str, *, in_program: bool) -> list[PlacedPart]:
    """Return the parts of an item's content; in a program's run, these include the arguments of calls."""
    refuse_foreign(item, RESPONSES)
    if kind in _CONTENT:
        return PARTS.read(require_field(item, _CONTENT[kind]), (_CONTENT[kind],))
    if kind in _ARGUMENTS:
        text = arguments_as_text(require_field(item, _ARGUMENTS[kind]))
        return [((_ARGUMENTS[kind],), Part("text", text))] if in_program else []
    if kind == "reasoning":
        return _reasoning_parts(item)
    if kind in _OUTPUT_OF or kind in _CALL_OF:
        require_field(item, "output" if kind in _CALL_OF else "action", unless=_INSTEAD)
        told = [placed for key in _ACTIONS for placed in _leaves(get(item, key), (key,))]
        return told or read_unknown(item, ())
    return read_unknown(item, ())


def _reasoning_parts(item: Item) -> list[PlacedPart]:
    require_field(item, "summary", unless=("content", "encrypted_content"))
    found = [placed for key in ("summary", "content") for placed in PARTS.read(get(item, key), (key,))]
    encrypted = get(item, "encrypted_content")
    return [*found, ((), sealed(encrypted, kind="opaque"))] if isinstance(encrypted, str) else found


def _leaves(value: object, path: Path) -> list[PlacedPart]:
    """Return the texts in an action or in its output that a stage may change, and a screenshot.

    Texts under keys that `_TEXTS` does not list are never changed; they are only counted and searched.
    """
    if isinstance(value, str):
        named = next((key for key in reversed(path) if isinstance(key, str)), "")
        return [(path, Part("text", value))] if named in _TEXTS or "env" in path else []
    if isinstance(value, (list, tuple)):
        return [placed for number, member in enumerate(value) for placed in _leaves(member, (*path, number))]
    if get(value, "type") == "computer_screenshot":
        return PARTS.read_part(value, path)
    return [placed for key, member in fields_of(value).items() for placed in _leaves(member, (*path, key))]


def without_empties(item: Item) -> dict[Path, object]:
    """Return the changes of an item by which nothing in it is null or empty that the API refuses."""
    changes: dict[Path, object] = {}
    field = _CONTENT.get(item_type(item) or "", "")
    if field and get(item, field) in (None, [], ()):
        changes[field,] = ""
    if get(item, "id") == "":
        changes["id",] = REMOVED
    return changes


def unstored(item: Item, changes: Mapping[Path, object]) -> Item:
    """Return a changed copy of an item without its id, since with the id the server would use its stored copy."""
    fields = copy_with(fields_of(item), changes)
    is_message = item_type(item) == "message"
    if is_message and get(item, "role") == "assistant":
        return _spoken(fields)
    return copy_with(fields, {("id",): REMOVED}) if is_message or "call_id" in fields else fields


def _spoken(fields: Mapping[str, object]) -> Item:
    """Return an assistant message with only its role, content, and phase; unknown content parts are kept."""
    content = fields.get("content")
    if isinstance(content, (list, tuple)):
        parts = [_spoken_part(part) for part in content]
        content = parts[0].get("text", parts) if len(parts) == 1 and isinstance(parts[0], dict) else parts
    return {"role": "assistant", "content": content, **({"phase": fields["phase"]} if fields.get("phase") else {})}


def _spoken_part(part: object) -> object:
    is_known = any(get(part, key) is not None for key in ("text", "refusal"))
    return {key: get(part, key) for key in _SPOKEN if get(part, key) is not None} if is_known else part


def stand_in(artifact: Artifact, call_type: str) -> Item:
    """Return a substitute for a missing output, in the format that the type of its call requires."""
    text, output = artifact.text, _OUTPUT_OF.get(call_type, "function_call_output")
    id_at = "id" if call_type == "local_shell_call" else _ID_AT.get(output, "call_id")
    shapes: dict[str, dict[str, object]] = {
        "computer_call": {"output": {"type": "computer_screenshot", "image_url": _BLANK}},
        "shell_call": {"output": [{"stdout": "", "stderr": text, "outcome": {"type": "exit", "exit_code": 1}}]},
        "apply_patch_call": {"status": "failed", "output": text},
        "tool_search_call": {"tools": []},
        "mcp_approval_request": {"approve": False, "reason": text},
    }
    return {"type": output, id_at: artifact.answers, **shapes.get(call_type, {"output": text})}
