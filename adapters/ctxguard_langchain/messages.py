"""LangChain messages as artifacts and back.

Message classes and fields are those of `langchain_core.messages` 1.x; content blocks are the standard ones (v0, v1) and
the providers' own as their packages store them (OpenAI, Anthropic, Google).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Final, cast

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)

from ctxguard.adapting.editing import copy_with
from ctxguard.adapting.extra_fields import PlacedField, extra_fields, fixed_field, without_tokens
from ctxguard.adapting.fields import is_list, require_list
from ctxguard.adapting.fragments import LEFT_OUT, fill_nulls
from ctxguard.adapting.message_view import MessageView, PlacedCall, PlacedPart, write_each
from ctxguard.adapting.read_cache import ReadCache
from ctxguard.adapting.reasoning import REASONING_FIELDS, reasoning_changes, reasoning_parts
from ctxguard.artifacts import BY_POSITION, Artifact, Kind, Part
from ctxguard.errors import HistoryError
from ctxguard_langchain.blocks import BLOCKS, block_changes
from ctxguard_langchain.calls import call_changes, calls_of, native_call

_ROLES: Final = {role: Kind(role) for role in ("system", "developer", "user", "human", "assistant", "ai", "model")}
"""The known roles of a `ChatMessage`."""
_TYPES: Final = {**_ROLES, "tool": Kind.TOOL, "function": Kind.TOOL}
_EXTRAS: Final = ("additional_kwargs",)
_REPEATED: Final = frozenset({"function_call", "parsed", "tool_calls", *REASONING_FIELDS})
"""Keys of `additional_kwargs` that are read elsewhere, or that no package sends to a provider."""
_PRIVATE: Final = ("_", "lc_")
"""Prefixes of keys for LangChain's internal use."""
_READ: Final = frozenset(
    ("args", "arguments", "input", "name", "partial_json", "reasoning", "summary", "thinking", "type")
)
"""Fields of a block that are read besides its texts, or belong to a call that `tool_calls` repeats."""
_CALL: Final = frozenset(("args", "id", "name", "type"))


class LangChainAdapter:
    """Read and write LangChain messages: each message, or chunk of a stream, is one artifact.

    Arguments of tool calls are counted as compact JSON, as in every other format. Calls that a message repeats (in
    `tool_calls`, content blocks, `additional_kwargs`, and chunks) are counted once and edited together.

    Unchanged messages stay the same objects. A changed one is a `model_copy` with other texts and arguments. Not
    preserved: the provider's item id of a changed block (`msg_…`, `fc_…`: OpenAI would use its stored copy), and the
    reasoning items in `additional_kwargs` that would change; if arguments change, also the raw copies of the calls in
    `additional_kwargs` and `tool_call_chunks`. A result or call without an id may get one. Messages that a stage adds
    have no id. Messages of unknown class or role are kept and pinned, and the report names the role; `RemoveMessage` is
    kept too. Unknown blocks are opaque: their texts are not masked.
    """

    name = "langchain"
    last_stage = staticmethod(partial(fill_nulls, text=LEFT_OUT))  # LangChain drops blocks without text

    def read(self, native: Sequence[BaseMessage]) -> list[Artifact]:
        """Return the artifacts of a list of messages.

        Raises:
            HistoryError: it is not a list, or an item is not a LangChain message.
        """
        return _CACHE.read(require_list(native, "LangChain messages"))

    def write(self, native: Sequence[BaseMessage], artifacts: Iterable[Artifact]) -> list[BaseMessage]:
        """Return the messages for these artifacts: the same objects if nothing was changed.

        Raises:
            AdapterError: a stage changed the arguments of a tool call to something other than a JSON object.
        """
        del native  # every artifact contains its message
        return write_each(artifacts, _written)

    def detects(self, native: object) -> bool:
        """Return whether a list contains LangChain messages."""
        return is_list(native) and all(isinstance(message, BaseMessage) for message in native)


def _artifact(message: BaseMessage) -> Artifact:
    if not isinstance(message, BaseMessage):
        raise HistoryError(
            f"expected a LangChain message, got {type(message).__name__}; "
            "langchain_core.messages.convert_to_messages makes them of tuples and dicts"
        )
    if isinstance(message, RemoveMessage):
        return Artifact(Kind.ASSISTANT, "", 0, pinned=True, source=message)
    return _view(message).artifact(message)


def _view(message: BaseMessage) -> MessageView:
    kind = _kind(message)
    return MessageView(
        kind or Kind.ASSISTANT,
        _parts(message),
        [PlacedCall(call) for call in calls_of(message)] if isinstance(message, AIMessage) else (),
        tool_call_id=_tool_call_id(message),
        tool_call_id_at=("tool_call_id",) if isinstance(message, ToolMessage) else (),
        name=message.name,
        role=getattr(message, "role", message.type) if kind is None else None,
        reported=_reported(message),
        fields=[*_fields(message)],
    )


def _fields(message: BaseMessage) -> Iterator[PlacedField]:
    """Yield the other fields that are sent: packages of providers may send any of `additional_kwargs`."""
    yield from BLOCKS.extra_fields(message.content, ("content",), own=_READ)
    yield from fixed_field("id", message.id or "", ("id",))
    for key in ("tool_calls", "invalid_tool_calls"):
        for number, call in enumerate(getattr(message, key, ())):
            yield from without_tokens(extra_fields(call, (key, number), own=_CALL))
    sent = {key: value for key, value in message.additional_kwargs.items() if not key.startswith(_PRIVATE)}
    yield from extra_fields(sent, _EXTRAS, own=_REPEATED)


_CACHE: Final = ReadCache(_artifact, exact=frozenset({"args", "arguments", "input"}))


def _reported(message: BaseMessage) -> int | None:
    """Return the input tokens that the provider reported for the call that this message answers."""
    usage = getattr(message, "usage_metadata", None)
    return usage.get("input_tokens") or None if usage else None


def _kind(message: BaseMessage) -> Kind | None:
    if isinstance(message, ChatMessage):
        return _ROLES.get(message.role.lower())
    return _TYPES.get(message.type.removesuffix("MessageChunk").lower())


def _tool_call_id(message: BaseMessage) -> str | None:
    if isinstance(message, ToolMessage):
        return message.tool_call_id or None
    return BY_POSITION if isinstance(message, FunctionMessage) else None


def _parts(message: BaseMessage) -> list[PlacedPart]:
    """Return the parts of a message's content, followed by its reasoning in `additional_kwargs`."""
    reasoning = reasoning_parts(message.additional_kwargs, _EXTRAS) if message.additional_kwargs else []
    return [*BLOCKS.read(message.content, ("content",)), *reasoning] or [(("content",), Part("text", ""))]


def _written(artifact: Artifact) -> BaseMessage:
    if artifact.source is None:
        return _created(artifact)
    message = cast("BaseMessage", artifact.source)
    changes = dict(reasoning_changes(message.additional_kwargs, _view(message).changes(artifact), _EXTRAS))
    changes = dict(block_changes(message.content, changes))
    if artifact.calls != artifact.root.calls and isinstance(message, AIMessage):
        changes.update(call_changes(message, artifact.root.calls, artifact.calls))
    return copy_with(message, changes)


def _created(artifact: Artifact) -> BaseMessage:
    """Return a message for an artifact that a stage added, such as a placeholder result or a summary."""
    if artifact.kind is Kind.TOOL and artifact.answers == BY_POSITION:
        return FunctionMessage(content=artifact.text, name=artifact.name or "")
    if artifact.kind is Kind.TOOL:
        return ToolMessage(artifact.text, tool_call_id=artifact.answers or "", name=artifact.name)
    if artifact.kind is Kind.SYSTEM:
        return SystemMessage(artifact.text)
    if artifact.kind is Kind.ASSISTANT:
        return AIMessage(artifact.text, tool_calls=list(map(native_call, artifact.calls)))
    return HumanMessage(artifact.text)
