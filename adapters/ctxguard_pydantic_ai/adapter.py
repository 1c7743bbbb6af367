"""PydanticAI messages as artifacts and back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from itertools import chain, groupby
from typing import Any, Final

from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from ctxguard.adapting.editing import REMOVED, by_index, copy_with
from ctxguard.adapting.extra_fields import PlacedField
from ctxguard.adapting.fields import is_list, require_list, unreadable
from ctxguard.adapting.message_view import Fragment, MessageView, PlacedPart, join_fragments, nested, split_message
from ctxguard.adapting.read_cache import ReadCache
from ctxguard.artifacts import Artifact, Kind
from ctxguard.errors import HistoryError
from ctxguard_pydantic_ai.parts import edited_part, is_fixed, part_fields, place_call, read_part

_KINDS: Final = {
    "system-prompt": Kind.SYSTEM,
    **dict.fromkeys(("user-prompt", "speech", "retry-feedback"), Kind.USER),
    "tool-return": Kind.TOOL,
}
_EPOCH: Final = datetime.fromtimestamp(0, UTC)


class PydanticAIAdapter:
    """Read and write PydanticAI messages: a response is one artifact, a request one for each part.

    Not preserved: the `id` and `citations` of an edited part, and the `history_digest` of its response, as the
    framework's documentation requires. If the text of signed thinking would change, all thinking of the response is
    removed; an edited response also loses thinking with an id of OpenAI's. An edited `StructuredContent` becomes a
    `TextContent`, and edited speech loses its audio. Instruction deltas and baselines, parts of the framework's own
    tools, and unknown parts are pinned. Instructions are not part of the history, see `ContextGuard`.
    """

    name = "pydantic-ai"

    def read(self, native: Sequence[ModelMessage]) -> list[Artifact]:
        """Return the artifacts of a list of messages.

        Raises:
            HistoryError: it is not a list of `ModelRequest` and `ModelResponse`.
        """
        return list(chain.from_iterable(_CACHE.read(require_list(native, "messages"))))

    def write(self, native: Sequence[ModelMessage], artifacts: Iterable[Artifact]) -> list[ModelMessage]:
        """Return the messages for these artifacts: the same objects if nothing was changed."""
        del native  # every artifact contains its message
        written: list[ModelMessage] = []
        for _, group in groupby(artifacts, _message_key):
            written.append(_message(list(group), written[-1] if written else None))
        return written

    def detects(self, native: object) -> bool:
        """Return whether a list contains PydanticAI's messages."""
        return is_list(native) and all(isinstance(message, (ModelRequest, ModelResponse)) for message in native)


def _read(message: ModelMessage) -> tuple[Artifact, ...]:
    kind = getattr(message, "kind", None)
    if kind not in ("request", "response"):
        raise HistoryError(f"expected a ModelRequest or ModelResponse, got {type(message).__name__}")
    strange = next((n for n, part in enumerate(message.parts) if not hasattr(part, "part_kind")), None)
    if strange is not None:
        raise unreadable(("parts", strange), "a part of a message", message.parts[strange])
    every = range(len(message.parts))
    groups = [(number,) for number in every] if kind == "request" and message.parts else [tuple(every)]
    return tuple(_view(fragment).artifact(fragment) for fragment in split_message(message, groups))


_CACHE: Final = ReadCache(_read, exact=frozenset({"args", "content"}))


def _view(fragment: Fragment) -> MessageView:
    message: ModelMessage = fragment.message  # type: ignore[assignment]  # this adapter put it there
    parts = [placed for number in fragment.indexes for placed in nested(number, read_part(message.parts[number]))]
    fields = [placed for number in fragment.indexes for placed in part_fields(message.parts[number], number)]
    if isinstance(message, ModelRequest):
        return (
            _request_view(message, fragment.indexes[0], parts, fields) if fragment.indexes else MessageView(Kind.USER)
        )
    return MessageView(
        Kind.ASSISTANT,
        parts,
        [place_call(part, number) for number, part in enumerate(message.parts) if part.part_kind == "tool-call"],
        pinned=any(is_fixed(part) or part.part_kind == "compaction" for part in message.parts),
        reported=getattr(getattr(message, "usage", None), "input_tokens", 0) or None,
        fields=fields,
    )


def _request_view(
    message: ModelRequest, number: int, parts: list[PlacedPart], fields: list[PlacedField]
) -> MessageView:
    part: Any = message.parts[number]
    kind = _KINDS.get(part.part_kind)
    if part.part_kind == "retry-prompt":
        kind = Kind.TOOL if part.tool_name else Kind.USER
    return MessageView(
        kind or Kind.ASSISTANT,
        parts,
        tool_call_id=part.tool_call_id if kind is Kind.TOOL else None,
        tool_call_id_at=(number, "tool_call_id"),
        pinned=kind is None or is_fixed(part),
        fields=fields,
    )


def _message_key(artifact: Artifact) -> object:
    """Return the key by which adjacent artifacts are grouped into one message."""
    if isinstance(artifact.source, Fragment):
        return id(artifact.source.occurrence)
    return "response" if artifact.kind is Kind.ASSISTANT else "request"


def _message(artifacts: list[Artifact], before: ModelMessage | None) -> ModelMessage:
    fragment = artifacts[0].source
    if not isinstance(fragment, Fragment):
        return _created(artifacts, getattr(before, "timestamp", None) or _EPOCH)
    message: ModelMessage = fragment.message  # type: ignore[assignment]  # this adapter put it there
    parts: list[Any] | None = join_fragments(artifacts, message.parts, _written)
    if parts is None:
        return message
    if isinstance(message, ModelRequest):
        return copy_with(message, {("parts",): parts})
    return copy_with(
        message, {("parts",): list(map(_unstored, filter(_may_stay, parts))), ("history_digest",): REMOVED}
    )


def _written(artifact: Artifact) -> list[Any]:
    """Return the parts for an artifact: the same objects if nothing was changed.

    If signed thinking is removed, all thinking is: providers accept it only complete and unchanged.
    """
    fragment: Any = artifact.source
    changes = {} if artifact.origin is None else by_index(_view(fragment).changes(artifact))
    parts = [edited_part(fragment.message.parts[number], changes.get(number, {})) for number in fragment.indexes]
    if any(part is REMOVED for part in parts):
        return [part for part in parts if part is not REMOVED and part.part_kind != "thinking"]
    return parts


def _may_stay(part: Any) -> bool:  # noqa: ANN401 - duck-typed
    """Return whether a part may stay in a changed response: thinking with an id must match the provider's copy."""
    return part.part_kind != "thinking" or part.id is None or part.provider_name == "anthropic"


def _unstored(part: Any) -> Any:  # noqa: ANN401 - duck-typed
    """Return a part without an id by which a provider would use its stored copy."""
    is_stored = part.part_kind in ("text", "tool-call") and part.id is not None
    return copy_with(part, {("id",): REMOVED}) if is_stored else part


def _created(artifacts: list[Artifact], timestamp: datetime) -> ModelMessage:
    """Return a message for artifacts that a stage added, with the timestamp of the previous message."""
    if artifacts[0].kind is Kind.ASSISTANT:
        texts: list[Any] = [TextPart(a.text) for a in artifacts if a.text or not a.calls]
        calls = [ToolCallPart(c.name, c.arguments, c.id or "") for a in artifacts for c in a.calls]
        return ModelResponse(parts=texts + calls, timestamp=timestamp)
    return ModelRequest(parts=[_created_part(artifact, timestamp) for artifact in artifacts])


def _created_part(artifact: Artifact, timestamp: datetime) -> SystemPromptPart | ToolReturnPart | UserPromptPart:
    if artifact.kind is Kind.TOOL:
        return ToolReturnPart(artifact.name or "", artifact.text, artifact.answers or "", timestamp=timestamp)
    part = SystemPromptPart if artifact.kind is Kind.SYSTEM else UserPromptPart
    return part(artifact.text, timestamp=timestamp)
