"""What one provider's format alone has. Read as another's it would be passed on unmasked, so it is refused by name.

Roles, fields and types are those of the OpenAI and Anthropic SDKs. `thinking` stands in no table here: it is
Anthropic's, and Mistral takes it in Chat Completions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

from ctxguard.adapting.message_view import Path, get, opaque, place_name
from ctxguard.artifacts import Part
from ctxguard.errors import HistoryError

__all__ = ["ANTHROPIC", "CHAT", "RESPONSES", "Format", "refuse_foreign", "unknown_part", "wanted_role"]

Format: TypeAlias = str
"""Says whose format it is and what reads it, as errors do."""
CHAT: Final[Format] = "Chat Completions; use ctxguard_openai.stabilize_messages (adapter 'openai')"
RESPONSES: Final[Format] = "the Responses API; use ctxguard_openai.stabilize_input (adapter 'openai-responses')"
ANTHROPIC: Final[Format] = "Anthropic's Messages; use ctxguard_anthropic.stabilize_request (adapter 'anthropic')"
_LANGCHAIN: Final[Format] = "LangChain; use ctxguard_langchain.ContextGuard (adapter 'langchain')"
_GEMINI: Final[Format] = "Gemini or of a user interface, which no adapter reads; convert it first"

_ROLES: Final[Mapping[object, Format]] = {"tool": CHAT, "function": CHAT}
_FIELDS: Final[Mapping[str, Format]] = {"tool_calls": CHAT, "function_call": CHAT, "parts": _GEMINI}
_ITEMS: Final = ("reasoning", "item_reference")
_ITEM_ENDS: Final = ("_call", "_call_output")
_CLASSES: Final = ("human", "ai", "system", "tool", "chat")
_CHUNKS: Final = "MessageChunk"
"""The types that messages of LangChain have, and how those of its chunks end; they have no role."""
_PARTS: Final[Mapping[object, Format]] = {
    "tool_use": ANTHROPIC,
    "tool_result": ANTHROPIC,
    "input_text": RESPONSES,
    "output_text": RESPONSES,
}


def refuse_foreign(message: object, own: Format) -> None:
    """Refuse a message or item that has what only another format has.

    Args:
        message: a dict, or an object with fields.
        own: the format it is read as.

    Raises:
        HistoryError: what it has and whose that is.
    """
    kind, role = get(message, "type"), get(message, "role")
    if isinstance(kind, str) and (kind in _ITEMS or kind.endswith(_ITEM_ENDS)):
        _refuse(f"type {kind!r}", RESPONSES, own)
    if isinstance(kind, str) and role is None and (kind in _CLASSES or kind.endswith(_CHUNKS)):
        _refuse(f"type {kind!r}", _LANGCHAIN, own)
    if isinstance(role, str) and role in _ROLES:
        _refuse(f"role {role!r}", _ROLES[role], own)
    for field, owner in _FIELDS.items():
        if get(message, field):
            _refuse(repr(field), owner, own)


def wanted_role(message: object, own: Format) -> str:
    """Return the role of a message.

    Args:
        message: a dict, or an object with fields.
        own: the format it is read as.

    Raises:
        HistoryError: it has none, is no message, or is of another format.
    """
    refuse_foreign(message, own)
    role = get(message, "role")
    if isinstance(role, str):
        return role
    if isinstance(message, Mapping) or hasattr(message, "role"):
        raise HistoryError("it has no 'role'; every message needs one")
    raise HistoryError(f"a dict with 'role' and 'content' is wanted, not {type(message).__name__}")


def unknown_part(part: object, path: Path = ()) -> Part:
    """Return the opaque part of what an adapter does not know.

    Args:
        part: a dict, or an object with fields.
        path: where it stands in its message.

    Raises:
        HistoryError: another format knows it.
    """
    kind = get(part, "type")
    if isinstance(kind, str) and kind in _PARTS:
        _refuse(f"{place_name(path)} type {kind!r}".lstrip(), _PARTS[kind], None)
    return opaque(part)


def _refuse(what: str, owner: Format, own: Format | None) -> None:
    if owner != own:
        raise HistoryError(f"{what} is of {owner}")
