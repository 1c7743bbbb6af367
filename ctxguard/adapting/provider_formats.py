"""Reject messages that are clearly in another format than expected, with an error that names their format.

An adapter for another format would pass parts of such a message unmasked. Roles, fields, and types are those of the
OpenAI and Anthropic SDKs. `thinking` is in none of these tables: Anthropic defined it, but Mistral also accepts it in
Chat Completions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

from ctxguard.adapting.fields import Path, get, is_list, place_name
from ctxguard.errors import HistoryError

ProviderFormat: TypeAlias = str
"""The name of a format and the function that reads the format, as quoted in error messages."""
CHAT: Final[ProviderFormat] = "Chat Completions; use ctxguard_openai.stabilize_messages (adapter 'openai')"
RESPONSES: Final[ProviderFormat] = "the Responses API; use ctxguard_openai.stabilize_input (adapter 'openai-responses')"
ANTHROPIC: Final[ProviderFormat] = (
    "Anthropic's Messages; use ctxguard_anthropic.stabilize_request (adapter 'anthropic')"
)
_LANGCHAIN: Final[ProviderFormat] = "LangChain; use ctxguard_langchain.ContextGuard (adapter 'langchain')"
GEMINI: Final[ProviderFormat] = "Gemini; use ctxguard_google.stabilize_request (adapter 'google')"
BEDROCK: Final[ProviderFormat] = "Bedrock Converse; use ctxguard_bedrock.stabilize_request (adapter 'bedrock')"
_INTERFACE: Final[ProviderFormat] = "a user interface, which no adapter reads; convert it first"

_ROLES: Final[Mapping[object, ProviderFormat]] = {"tool": CHAT, "function": CHAT}
_FIELDS: Final[Mapping[str, ProviderFormat]] = {"tool_calls": CHAT, "function_call": CHAT, "parts": GEMINI}
_RESPONSES_ITEMS: Final = ("reasoning", "item_reference")
_RESPONSES_ENDINGS: Final = ("_call", "_call_output")
_LANGCHAIN_TYPES: Final = ("human", "ai", "system", "tool", "chat")
_LANGCHAIN_CHUNKS: Final = "MessageChunk"
"""Suffix of the types of LangChain's message chunks."""
_PARTS: Final[Mapping[object, ProviderFormat]] = {
    "tool_use": ANTHROPIC,
    "tool_result": ANTHROPIC,
    "input_text": RESPONSES,
    "output_text": RESPONSES,
}
_CONVERSE_KEYS: Final = (
    "toolUse",
    "toolResult",
    "reasoningContent",
    "guardContent",
    "cachePoint",
    "image",
    "document",
    "video",
)
"""The keys of Converse blocks, which have no type. A block with only `text` could also be part of Chat Completions."""


def is_converse(messages: object) -> bool:
    """Return whether messages are in the format of Bedrock Converse: each content is a list of untyped blocks."""
    if not is_list(messages) or not all(isinstance(get(message, "content"), (list, tuple)) for message in messages):
        return False
    blocks = [block for message in messages for block in get(message, "content")]  # type: ignore[attr-defined]
    return bool(blocks) and all(isinstance(block, Mapping) and block.get("type") is None for block in blocks)


def refuse_foreign(message: object, own: ProviderFormat) -> None:
    """Reject a message or item that is in another format than the expected one (`own`), and name its format."""
    kind, role = get(message, "type"), get(message, "role")
    if type(message) is dict and message.keys() == {"role", "content"} and isinstance(role, str) and role not in _ROLES:
        return  # nearly every message
    if isinstance(kind, str) and (kind in _RESPONSES_ITEMS or kind.endswith(_RESPONSES_ENDINGS)):
        _refuse(f"type {kind!r}", RESPONSES, own)
    # a Chat Completions message has a role, and may also have a type of any value
    if isinstance(kind, str) and role is None and (kind in _LANGCHAIN_TYPES or kind.endswith(_LANGCHAIN_CHUNKS)):
        _refuse(f"type {kind!r}", _LANGCHAIN, own)
    # some of Google's examples use a role of their own for function results
    is_content = own == GEMINI and get(message, "parts") is not None
    if isinstance(role, str) and role in _ROLES and not is_content:
        _refuse(f"role {role!r}", _ROLES[role], own)
    # SDK objects have all fields of their class: only a field with a value reveals the format
    for field, owner in _FIELDS.items():
        if found := get(message, field):
            _refuse(repr(field), _INTERFACE if field == "parts" and _has_types(found) else owner, own)


def _has_types(parts: object) -> bool:
    """Return whether a message's parts have a type: those of user interfaces do, those of Gemini do not."""
    return isinstance(parts, (list, tuple)) and any(get(part, "type") is not None for part in parts)


def refuse_foreign_part(part: object, path: Path = (), *, own: ProviderFormat | None = None) -> None:
    """Reject a part of unknown type that another format defines.

    If parts of the expected format have no type, `own` is this format.
    """
    # Rejected rather than counted as unknown, because a part that is not read is neither masked nor shortened.
    kind = get(part, "type")
    if isinstance(kind, str) and kind in _PARTS:
        _refuse(f"{place_name(path)} type {kind!r}".lstrip(), _PARTS[kind], None)
    converse = next((key for key in _CONVERSE_KEYS if kind is None and get(part, key) is not None), None)
    if converse is not None:
        _refuse(f"{place_name(path)} key {converse!r}".lstrip(), BEDROCK, own)


def require_role(message: object, own: ProviderFormat) -> str:
    """Return the role of a message; raise `HistoryError` if the message has no role or is in another format."""
    refuse_foreign(message, own)
    role = get(message, "role")
    if isinstance(role, str):
        return role
    if isinstance(message, Mapping) or hasattr(message, "role"):
        raise HistoryError("it has no 'role'; every message needs one")
    raise HistoryError(f"expected a dict with 'role' and 'content', got {type(message).__name__}")


def _refuse(what: str, owner: ProviderFormat, own: ProviderFormat | None) -> None:
    if owner != own:
        raise HistoryError(f"{what} is of {owner}")
