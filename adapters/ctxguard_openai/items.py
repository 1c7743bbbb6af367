"""One Responses input item: what it is, the texts in it, and copies of it with other texts.

The item kinds are those of `openai.types.responses.ResponseInputItemParam`; which output answers which call is the
table that OpenAI's Agents SDK uses.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

from ctxguard.artifacts import Artifact, Kind, Part, ToolCall
from ctxguard.formats import RESPONSES, refuse_foreign, unknown_part
from ctxguard.lens import (
    CallPlace,
    Path,
    Slot,
    View,
    argument_text,
    edited,
    fields_of,
    get,
    sealed,
    text_of,
    wanted_field,
    within,
)
from ctxguard_openai.contents import content_slots, picture

Item: TypeAlias = Mapping[str, object]
"""An input item: a dict, or an object of the SDK with the same fields."""

KINDS: Final = {
    "system": Kind.SYSTEM,
    "developer": Kind.SYSTEM,
    "user": Kind.USER,
    "assistant": Kind.ASSISTANT,
}
OUTPUT_OF: Final = {
    "function_call": "function_call_output",
    "custom_tool_call": "custom_tool_call_output",
    "computer_call": "computer_call_output",
    "shell_call": "shell_call_output",
    "apply_patch_call": "apply_patch_call_output",
    "local_shell_call": "local_shell_call_output",
    "tool_search_call": "tool_search_output",
    "mcp_approval_request": "mcp_approval_response",
}
CALL_OF: Final = {output: call for call, output in OUTPUT_OF.items()}
_ARGUMENTS: Final = {"function_call": "arguments", "custom_tool_call": "input", "mcp_approval_request": "arguments"}
FIXED: Final = (
    "item_reference",
    "compaction",
    "compaction_trigger",
    "configuration_update",
    "additional_tools",
    "mcp_list_tools",
)
"""Items that say something about the whole conversation: they stay, and stand alone."""
HOSTED: Final = (
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
_KNOWN: Final = frozenset({*OUTPUT_OF, *CALL_OF, *HOSTED, "message", "reasoning"})
_CONTENT: Final = {"message": "content", "custom_tool_call_output": "output", "function_call_output": "output"}
"""Items with a content of text or parts: the field it stands in."""
_ACTIONS: Final = {
    *("computer_call", "shell_call", "local_shell_call", "apply_patch_call", "mcp_approval_response"),
    *("computer_call_output", "shell_call_output", "local_shell_call_output", "apply_patch_call_output"),
}
_ACTION_KEYS: Final = ("action", "actions", "operation", "output", "reason")
_TEXT_KEYS: Final = ("text", "refusal", "command", "commands", "diff", "stdout", "stderr", "output", "reason")
_SPOKEN: Final = ("type", "text", "refusal")
_BLANK: Final = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg=="
)


def item_type(item: object) -> str | None:
    """Return the kind of an item; a role stands for `message`, an id alone for `item_reference`."""
    kind = get(item, "type")
    if isinstance(kind, str):
        return kind
    if isinstance(get(item, "role"), str):
        return "message"
    return "item_reference" if isinstance(get(item, "id"), str) else None


def call_id(item: object) -> str | None:
    """Return the id that a call has or an output refers to."""
    by_kind = {"mcp_approval_request": "id", "mcp_approval_response": "approval_request_id"}
    found = get(item, by_kind.get(item_type(item) or "", "call_id"))
    if found is None and item_type(item) == "local_shell_call_output":
        found = get(item, "id")
    return found if isinstance(found, str) else None


def _is_hosted(item: object, kind: str | None) -> bool:
    """Tell a tool search that the server ran by itself: it has no call id."""
    return kind in ("tool_search_call", "tool_search_output") and call_id(item) is None


def is_output(item: object, kind: str | None) -> bool:
    """Tell what answers a call that the caller ran; `kind` is the item's `item_type`."""
    return kind in CALL_OF and not _is_hosted(item, kind)


def is_model_item(item: object, kind: str | None) -> bool:
    """Tell what the model wrote, or the provider for it; `kind` is the item's `item_type`."""
    if kind == "message":
        return get(item, "role") == "assistant"
    return kind not in FIXED and not is_output(item, kind)


def is_program(items: tuple[Item, ...]) -> bool:
    """Tell a run of items in which the provider runs a program that calls tools."""
    return any(item_type(item) == "program" for item in items)


def calls_a_tool(item: Item, items: tuple[Item, ...]) -> bool:
    """Tell whether a result is awaited for an item; the calls of a hosted program are part of its run."""
    kind = item_type(item)
    return kind in OUTPUT_OF and not _is_hosted(item, kind) and not is_program(items)


def view(items: tuple[Item, ...]) -> View:
    """Say what one artifact holds of items that stand together; the places begin with the number of the item."""
    first, kind = items[0], item_type(items[0])
    answers = is_output(first, kind)
    role = str(get(first, "role")) if kind == "message" else None
    return View(
        Kind.TOOL if answers else KINDS.get(role or "", Kind.ASSISTANT),
        slots(items),
        [_call_place(item, number) for number, item in enumerate(items) if calls_a_tool(item, items)],
        answers=call_id(first) if answers else None,
        answers_at=(0, "call_id"),
        name=text_of(first, "name") if answers or role else None,
        name_at=(0, "name"),
        role=None if role in KINDS else role,
        pinned=stays(items),
    )


def _call_place(item: Item, number: int) -> CallPlace:
    """Return the call that an item makes; structured arguments are texts of its content instead."""
    kind = str(item_type(item))
    field = _ARGUMENTS.get(kind, "")
    call = ToolCall(str(get(item, "name") or kind), argument_text(get(item, field)), call_id(item))
    return CallPlace(call, (number, field), (number, "call_id"))


def slots(items: tuple[Item, ...]) -> list[Slot]:
    """Return every piece of content; the places begin with the number of the item."""
    found = [slot for number, item in enumerate(items) for slot in within(number, _item_slots(item))]
    if is_program(items):
        found += [
            ((number, _ARGUMENTS[kind]), Part("text", str(get(item, _ARGUMENTS[kind]))))
            for number, item in enumerate(items)
            if (kind := str(item_type(item))) in _ARGUMENTS
        ]
    return found


def _item_slots(item: Item) -> list[Slot]:
    refuse_foreign(item, RESPONSES)
    kind = str(item_type(item))
    if kind in _ACTIONS:
        return [slot for key in _ACTION_KEYS for slot in _leaves(get(item, key), (key,))]
    if kind in _CONTENT:
        return content_slots(wanted_field(item, _CONTENT[kind]), (_CONTENT[kind],))
    if kind == "reasoning":
        return _reasoning_slots(item)
    if kind in _ARGUMENTS:
        wanted_field(item, _ARGUMENTS[kind])
        return []
    return [((), unknown_part(item))]


def _reasoning_slots(item: Item) -> list[Slot]:
    found = [slot for key in ("summary", "content") for slot in content_slots(get(item, key), (key,))]
    encrypted = get(item, "encrypted_content")
    return [*found, ((), Part("opaque", tokens=sealed(encrypted)))] if isinstance(encrypted, str) else found


def _leaves(value: object, path: Path) -> list[Slot]:
    """Walk the texts of an action or of its output; what is no text a stage may touch is only counted."""
    if isinstance(value, str):
        named = next((key for key in reversed(path) if isinstance(key, str)), "")
        return [(path, Part("text", value))] if named in _TEXT_KEYS else []
    if isinstance(value, (list, tuple)):
        return [slot for number, member in enumerate(value) for slot in _leaves(member, (*path, number))]
    if get(value, "type") == "computer_screenshot":
        return [((), picture(value))]
    return [slot for key, member in fields_of(value).items() for slot in _leaves(member, (*path, key))]


def unstored(item: Item, changes: Mapping[Path, object]) -> Item:
    """Return a copy with these changes, without the id that would make the server use its stored copy."""
    fields = edited(fields_of(item), changes)
    if item_type(item) == "message" and get(item, "role") == "assistant":
        return _spoken(fields)
    if "call_id" in fields or item_type(item) == "message":
        fields.pop("id", None)
    return fields


def _spoken(fields: Mapping[str, object]) -> Item:
    """Return an assistant message that is not the server's: role, text and phase."""
    content = fields.get("content")
    if isinstance(content, (list, tuple)):
        parts = [p if isinstance(p, str) else {k: get(p, k) for k in _SPOKEN if get(p, k) is not None} for p in content]
        content = parts[0].get("text", parts) if len(parts) == 1 and isinstance(parts[0], dict) else parts
    return {"role": "assistant", "content": content, **({"phase": fields["phase"]} if fields.get("phase") else {})}


def stand_in(artifact: Artifact, call_type: str) -> Item:
    """Return an output in the shape that its call demands."""
    text = artifact.text
    item: dict[str, object] = {"type": OUTPUT_OF.get(call_type, "function_call_output"), "call_id": artifact.answers}
    if call_type == "mcp_approval_request":
        return {"type": item["type"], "approval_request_id": artifact.answers, "approve": False, "reason": text}
    if call_type == "local_shell_call":
        return {"type": item["type"], "id": artifact.answers, "output": text}
    shapes: dict[str, dict[str, object]] = {
        "computer_call": {"output": {"type": "computer_screenshot", "image_url": _BLANK}},
        "shell_call": {"output": [{"stdout": "", "stderr": text, "outcome": {"type": "exit", "exit_code": 1}}]},
        "apply_patch_call": {"status": "failed", "output": text},
        "tool_search_call": {"tools": []},
    }
    return {**item, **shapes.get(call_type, {"output": text})}


def stays(items: tuple[Item, ...]) -> bool:
    """Tell what may not be dropped: what concerns all that follows, and kinds and roles nobody here knows."""
    if item_type(items[0]) == "message":
        return str(get(items[0], "role")) not in KINDS
    return all(item_type(item) not in _KNOWN for item in items)
