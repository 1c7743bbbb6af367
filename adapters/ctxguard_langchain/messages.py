"""LangChain messages as artifacts and back.

Message classes and fields are those of `langchain_core.messages` 1.x; content blocks are the standard ones (v0, v1) and
the providers' own as their packages store them (OpenAI, Anthropic, Google).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, cast

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

from ctxguard.artifacts import Artifact, Kind, Part, PartKind
from ctxguard.errors import HistoryError
from ctxguard_langchain.blocks import Block, edited_block, part_of
from ctxguard_langchain.calls import LEGACY_ID, call_fields, calls_of, native_call

__all__ = ["LangChainAdapter"]

_KINDS: Final = (
    (AIMessage, Kind.ASSISTANT),
    (HumanMessage, Kind.USER),
    (ToolMessage, Kind.TOOL),
    (SystemMessage, Kind.SYSTEM),
    (FunctionMessage, Kind.TOOL),
)
_ROLES: Final = {
    "system": Kind.SYSTEM,
    "developer": Kind.SYSTEM,
    "user": Kind.USER,
    "human": Kind.USER,
    "assistant": Kind.ASSISTANT,
    "ai": Kind.ASSISTANT,
    "model": Kind.ASSISTANT,
}
_SPOKEN: Final[Mapping[str, PartKind]] = {"reasoning_content": "reasoning", "refusal": "refusal"}
"""Texts beside the content, in `additional_kwargs`."""


class LangChainAdapter:
    """Look at LangChain messages as artifacts: one message, one artifact; chunks as streaming stores them included.

    Arguments of tool calls are counted as LangChain's own OpenAI converter writes them: `json.dumps(args)` with its
    default separators and without ASCII escapes. Calls that stand twice in a message (in `tool_calls`, in content
    blocks, in `additional_kwargs`, in chunks) are counted once and edited together.

    What does not survive: nothing of a message that is kept. Of a changed one, a `model_copy`, only the changed texts
    and arguments differ. The provider's own item id of a changed block goes (`msg_…`, `fc_…`: OpenAI would answer from
    its stored copy); with changed arguments, so do the raw copies of the calls in `additional_kwargs` and
    `tool_call_chunks`. A result or call without an id may get one. Messages that a stage adds have no id. Unknown
    message classes and roles, and `RemoveMessage`, are kept and pinned; unknown blocks are opaque: their texts are not
    masked.
    """

    name = "langchain"

    def read(self, native: Sequence[BaseMessage]) -> list[Artifact]:
        """Return the artifacts of a list of messages.

        Raises:
            HistoryError: it is no list, or an item is no LangChain message.
        """
        if isinstance(native, (str, bytes, Mapping, BaseMessage)) or not isinstance(native, Sequence):
            raise HistoryError(f"a list of LangChain messages is wanted, not {type(native).__name__}")
        return [_artifact(message, position) for position, message in enumerate(native)]

    def write(self, native: Sequence[BaseMessage], artifacts: Iterable[Artifact]) -> list[BaseMessage]:
        """Return the messages of these artifacts: the same objects where nothing was changed.

        Raises:
            AdapterError: a stage made arguments of a tool call that are no JSON object.
        """
        del native  # every artifact carries its message
        return [
            artifact.source if artifact.origin is None and artifact.source is not None else _written(artifact)  # type: ignore[misc]
            for artifact in artifacts
        ]

    def detects(self, native: object) -> bool:
        """Tell whether a list holds LangChain messages."""
        return (
            isinstance(native, Sequence)
            and not isinstance(native, (str, bytes))
            and all(isinstance(message, BaseMessage) for message in native)
        )


def _artifact(message: BaseMessage, position: int) -> Artifact:
    if not isinstance(message, BaseMessage):
        raise HistoryError(
            f"a LangChain message is wanted, not {type(message).__name__}; "
            "langchain_core.messages.convert_to_messages makes them of tuples and dicts",
            position=position,
        )
    if isinstance(message, RemoveMessage):
        return Artifact(Kind.ASSISTANT, "", 0, pinned=True, source=message)
    kind = _kind(message)
    content = message.content
    return Artifact(
        kind or Kind.ASSISTANT,
        content if isinstance(content, str) and not message.additional_kwargs else _parts(message),
        calls=calls_of(message) if isinstance(message, AIMessage) else (),
        answers=_answers(message),
        name=message.name,
        pinned=kind is None,
        reported=_reported(message),
        source=message,
    )


def _reported(message: BaseMessage) -> int | None:
    """Return the input tokens that the provider reported for the call that gave this message."""
    usage = getattr(message, "usage_metadata", None)
    return usage.get("input_tokens") or None if usage else None


def _kind(message: BaseMessage) -> Kind | None:
    if isinstance(message, ChatMessage):
        return _ROLES.get(message.role.lower())
    return next((kind for known, kind in _KINDS if isinstance(message, known)), None)


def _answers(message: BaseMessage) -> str | None:
    if isinstance(message, ToolMessage):
        return message.tool_call_id or None
    return LEGACY_ID if isinstance(message, FunctionMessage) else None


def _spoken(message: BaseMessage) -> list[str]:
    return [key for key in _SPOKEN if isinstance(message.additional_kwargs.get(key), str)]


def _blocks(content: str | Sequence[Block]) -> Sequence[Block]:
    if isinstance(content, str):
        return [content] if content else []
    return content


def _parts(message: BaseMessage) -> str | tuple[Part, ...]:
    content, spoken = message.content, _spoken(message)
    if isinstance(content, str) and not spoken:
        return content
    parts = [part_of(block) for block in _blocks(content)]
    return (*parts, *(Part(_SPOKEN[key], message.additional_kwargs[key]) for key in spoken))


def _written(artifact: Artifact) -> BaseMessage:
    if artifact.source is None:
        return _created(artifact)
    message = cast("BaseMessage", artifact.source)
    origin = artifact.root
    fields: dict[str, Any] = {}
    if artifact.content != origin.content:
        fields.update(_content_fields(message, artifact.content))
    if artifact.calls != origin.calls:
        fields.update(call_fields(message, origin.calls, artifact.calls, fields))
    if artifact.name != origin.name:
        fields["name"] = artifact.name
    if artifact.answers != origin.answers and isinstance(message, ToolMessage):
        fields["tool_call_id"] = artifact.answers
    return message.model_copy(update=fields) if fields else message


def _content_fields(message: BaseMessage, content: str | tuple[Part, ...]) -> dict[str, Any]:
    if isinstance(content, str):
        return {"content": content}
    parts, spoken = list(content), _spoken(message)
    said = {key: parts.pop().text for key in reversed(spoken)}
    fields: dict[str, Any] = {"additional_kwargs": {**message.additional_kwargs, **said}} if spoken else {}
    blocks = [edited_block(was, now) for was, now in zip(_blocks(message.content), parts, strict=True)]
    fields["content"] = "".join(map(str, blocks)) if isinstance(message.content, str) else blocks
    return fields


def _created(artifact: Artifact) -> BaseMessage:
    """Return the message of an artifact that no message stood for: a stand-in result, a summary."""
    if artifact.kind is Kind.TOOL and artifact.answers == LEGACY_ID:
        return FunctionMessage(content=artifact.text, name=artifact.name or "")
    if artifact.kind is Kind.TOOL:
        return ToolMessage(artifact.text, tool_call_id=artifact.answers or "", name=artifact.name)
    if artifact.kind is Kind.SYSTEM:
        return SystemMessage(artifact.text)
    if artifact.kind is Kind.ASSISTANT:
        return AIMessage(artifact.text, tool_calls=list(map(native_call, artifact.calls)))
    return HumanMessage(artifact.text)
