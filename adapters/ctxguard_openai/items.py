"""One Responses input item: what it is, the texts in it, and copies of it with other texts.

The item kinds are those of `openai.types.responses.ResponseInputItemParam`; which output answers which call is the
table that OpenAI's Agents SDK uses.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, TypeAlias

from ctxguard.artifacts import Kind, Part, ToolCall
from ctxguard.media import audio_tokens, file_tokens, image_size, image_tokens
from ctxguard.tokens import EstimateCounter

if TYPE_CHECKING:
    from ctxguard.artifacts import Artifact

Item: TypeAlias = Mapping[str, object]
"""An input item: a dict, or an object of the SDK with the same fields."""
Path: TypeAlias = tuple[str | int, ...]
"""Where a text stands in an item."""

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
_ACTIONS: Final = {
    *("computer_call", "shell_call", "local_shell_call", "apply_patch_call", "mcp_approval_response"),
    *("computer_call_output", "shell_call_output", "local_shell_call_output", "apply_patch_call_output"),
}
_ACTION_KEYS: Final = ("action", "actions", "operation", "output", "reason")
_TEXT_KEYS: Final = ("text", "refusal", "command", "commands", "diff", "stdout", "stderr", "output", "reason")
_BLANK: Final = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg=="
)


def get(item: object, key: str) -> object:
    """Return a field of a dict or of an SDK object; None where it has none."""
    if type(item) is dict or isinstance(item, Mapping):
        return item.get(key)
    return getattr(item, key, None)


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


def _is_hosted(item: object) -> bool:
    """Tell a tool search that the server ran by itself: it has no call id."""
    return item_type(item) in ("tool_search_call", "tool_search_output") and call_id(item) is None


def is_output(item: object) -> bool:
    """Tell what answers a call that the caller ran."""
    return item_type(item) in CALL_OF and not _is_hosted(item)


def is_model_item(item: object) -> bool:
    """Tell what the model wrote, or the provider for it."""
    kind = item_type(item)
    if kind == "message":
        return get(item, "role") == "assistant"
    return kind not in FIXED and not is_output(item)


def is_program(items: tuple[Item, ...]) -> bool:
    """Tell a run of items in which the provider runs a program that calls tools."""
    return any(item_type(item) == "program" for item in items)


def calls_a_tool(item: Item, items: tuple[Item, ...]) -> bool:
    """Tell whether a result is awaited for an item; the calls of a hosted program are part of its run."""
    return item_type(item) in OUTPUT_OF and not _is_hosted(item) and not is_program(items)


def tool_call(item: Item) -> ToolCall:
    """Return the call that an item makes; structured arguments are texts of its content instead."""
    kind = str(item_type(item))
    arguments = get(item, _ARGUMENTS[kind]) if kind in _ARGUMENTS else ""
    return ToolCall(str(get(item, "name") or kind), str(arguments or ""), call_id(item))


def slots(items: tuple[Item, ...]) -> list[tuple[int, Path, Part]]:
    """Return every piece of content with the number of its item and the place it stands in."""
    found = [(number, path, part) for number, item in enumerate(items) for path, part in _item_slots(item)]
    if is_program(items):
        found += [
            (number, (_ARGUMENTS[kind],), Part("text", str(get(item, _ARGUMENTS[kind]))))
            for number, item in enumerate(items)
            if (kind := str(item_type(item))) in _ARGUMENTS
        ]
    return found


def _item_slots(item: Item) -> list[tuple[Path, Part]]:
    kind = item_type(item)
    if kind in ("message", "custom_tool_call_output", "function_call_output"):
        key = "content" if kind == "message" else "output"
        return _content_slots(get(item, key), (key,))
    if kind == "reasoning":
        return _reasoning_slots(item)
    if kind in _ARGUMENTS:
        return []
    if kind in _ACTIONS:
        return [slot for key in _ACTION_KEYS for slot in _leaves(get(item, key), (key,))]
    return [((), Part("opaque", tokens=_opaque_tokens(item)))]


def _content_slots(content: object, path: Path) -> list[tuple[Path, Part]]:
    if isinstance(content, str):
        return [(path, Part("text", content))] if content else []
    if not isinstance(content, (list, tuple)):
        return []
    return [_part_slot(part, (*path, number)) for number, part in enumerate(content)]


def _part_slot(part: object, path: Path) -> tuple[Path, Part]:
    kind = str(get(part, "type"))
    key = "refusal" if kind == "refusal" else "text"
    text = get(part, key)
    if isinstance(text, str):
        return (*path, key), Part("refusal" if kind == "refusal" else "text", text)
    return (), _media(kind, part)


def _media(kind: str, part: object) -> Part:
    if kind in ("input_image", "computer_screenshot"):
        url = get(part, "image_url")
        size = image_size(url) if isinstance(url, str) else None
        return Part("image", tokens=image_tokens(size, detail=str(get(part, "detail") or "auto")))
    if kind == "input_file":
        return Part("file", tokens=file_tokens(_text_or_none(get(part, "file_data"))))
    if kind == "input_audio":
        return Part("audio", tokens=audio_tokens(_text_or_none(get(get(part, "input_audio"), "data"))))
    return Part("opaque", tokens=_opaque_tokens(part))


def _text_or_none(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _opaque_tokens(value: object) -> int:
    return EstimateCounter().count(json.dumps(_fields(value), default=str, ensure_ascii=False)[:20_000])


def _fields(value: object) -> dict[str, object]:
    """Return the fields of a dict or of an SDK object; none of anything else."""
    if isinstance(value, Mapping):
        return dict(value)
    return value.model_dump(exclude_unset=True) if hasattr(value, "model_dump") else {}


def _reasoning_slots(item: Item) -> list[tuple[Path, Part]]:
    slots: list[tuple[Path, Part]] = []
    for key in ("summary", "content"):
        listed = get(item, key)
        for number, part in enumerate(listed if isinstance(listed, (list, tuple)) else ()):
            text = get(part, "text")
            if isinstance(text, str):
                slots.append(((key, number, "text"), Part("reasoning", text)))
    sealed = get(item, "encrypted_content")
    if isinstance(sealed, str):
        slots.append(((), Part("opaque", tokens=len(sealed) * 3 // 16)))  # base64, then about 4 bytes a token
    return slots


def _leaves(value: object, path: Path) -> list[tuple[Path, Part]]:
    """Walk the texts of an action or of its output; what is no text a stage may touch is only counted."""
    if isinstance(value, str):
        named = next((key for key in reversed(path) if isinstance(key, str)), "")
        return [(path, Part("text", value))] if named in _TEXT_KEYS else []
    if isinstance(value, (list, tuple)):
        return [slot for number, member in enumerate(value) for slot in _leaves(member, (*path, number))]
    if get(value, "type") == "computer_screenshot":
        return [((), _media("computer_screenshot", value))]
    return [slot for key, member in _fields(value).items() for slot in _leaves(member, (*path, key))]


def call_changes(item: Item, call: ToolCall) -> dict[Path, str]:
    """Return what a changed call changes in its item."""
    was, kind = tool_call(item), str(item_type(item))
    changes: dict[Path, str] = {}
    if was.arguments != call.arguments:
        changes[_ARGUMENTS[kind],] = call.arguments
    if was.id != call.id and call.id is not None:
        changes["call_id",] = call.id
    return changes


def edited(item: Item, changes: Mapping[Path, str]) -> Item:
    """Return a copy with these texts, without the id that would make the server use its stored copy."""
    fields = _fields(item)
    for path, text in changes.items():
        fields = _fields(_replaced(fields, path, text))
    if item_type(item) == "message" and get(item, "role") == "assistant":
        return _spoken(fields)
    if "call_id" in fields or item_type(item) == "message":
        fields.pop("id", None)
    return fields


def _replaced(value: object, path: Path, text: str) -> object:
    """Return a copy of nested dicts and lists with a text in its place; nothing but the way to it is copied."""
    if not path:
        return text
    head, rest = path[0], path[1:]
    if isinstance(value, (list, tuple)):
        return [_replaced(member, rest, text) if number == head else member for number, member in enumerate(value)]
    fields = _fields(value)
    return {**fields, str(head): _replaced(fields.get(str(head)), rest, text)}


def _spoken(fields: Mapping[str, object]) -> Item:
    """Return an assistant message that is not the server's: role, text and phase."""
    content = fields.get("content")
    if isinstance(content, (list, tuple)):
        parts = [{key: get(p, key) for key in ("type", "text", "refusal") if get(p, key) is not None} for p in content]
        content = parts[0]["text"] if len(parts) == 1 and "text" in parts[0] else parts
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
