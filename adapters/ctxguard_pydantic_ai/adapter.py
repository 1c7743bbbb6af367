"""PydanticAI messages as artifacts and back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
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

from ctxguard.adapters import ReadCache
from ctxguard.artifacts import Artifact, Kind, Part
from ctxguard.errors import HistoryError
from ctxguard.lens import GONE, Path, Slot, are_same, changed_slots, content_of, edited, is_list, wanted_list
from ctxguard_pydantic_ai.parts import call_of, edited_call, edited_part, is_fixed, part_slots

__all__ = ["PydanticAIAdapter"]

_KINDS: Final = {
    "system-prompt": Kind.SYSTEM,
    "user-prompt": Kind.USER,
    "speech": Kind.USER,
    "retry-feedback": Kind.USER,
    "tool-return": Kind.TOOL,
}
_EPOCH: Final = datetime.fromtimestamp(0, UTC)


@dataclass(frozen=True, slots=True)
class _Place:
    """Say which message an artifact was read from, and which part of a request.

    One `reading` stands for one occurrence of the message: what stands in a history twice is read twice.
    """

    message: ModelMessage
    reading: object
    part: int | None = None


class PydanticAIAdapter:
    """Look at PydanticAI messages as artifacts: a response is one, a request one for each of its parts.

    What does not survive: an edited part loses its `id` and `citations`, its response the `history_digest`, as the
    framework's documentation demands; thinking that is signed goes where its text would have changed, and thinking
    with an id of OpenAI's goes from a response that is edited. An edited `StructuredContent` becomes a `TextContent`,
    edited speech loses its audio. Instruction deltas and baselines, parts of the framework's own tools and unknown
    parts are pinned. Nothing is known of instructions: they are no part of the history, see `ContextGuard`.
    """

    name = "pydantic-ai"

    def read(self, native: Sequence[ModelMessage]) -> list[Artifact]:
        """Return the artifacts of a list of messages.

        Raises:
            HistoryError: it is no list of `ModelRequest` and `ModelResponse`.
        """
        return list(chain.from_iterable(_CACHE.read(wanted_list(native, "messages"))))

    def write(self, native: Sequence[ModelMessage], artifacts: Iterable[Artifact]) -> list[ModelMessage]:
        """Return the messages of these artifacts: the same objects where nothing was changed."""
        del native  # every artifact carries its message
        written: list[ModelMessage] = []
        for _, group in groupby(artifacts, _message_key):
            members = list(group)
            message = _message(members, written[-1] if written else None)
            written += [] if message is None else [message]
        return written

    def detects(self, native: object) -> bool:
        """Tell whether a list holds PydanticAI's messages."""
        return is_list(native) and all(isinstance(message, (ModelRequest, ModelResponse)) for message in native)


def _read(message: ModelMessage) -> tuple[Artifact, ...]:
    kind = getattr(message, "kind", None)
    if kind == "response":
        return (_response_artifact(message),)
    if kind != "request":
        raise HistoryError(f"a ModelRequest or ModelResponse is wanted, not {type(message).__name__}")
    if not message.parts:
        return (Artifact(Kind.USER, "", source=_Place(message, object())),)
    reading = object()
    return tuple(_request_artifact(_Place(message, reading, n), part) for n, part in enumerate(message.parts))


_CACHE: Final = ReadCache(_read, spelled=frozenset({"args", "content"}))


def _request_artifact(place: _Place, part: Any) -> Artifact:  # noqa: ANN401 - duck-typed
    kind = _KINDS.get(part.part_kind)
    if part.part_kind == "retry-prompt":
        kind = Kind.TOOL if part.tool_name else Kind.USER
    return Artifact(
        Kind.ASSISTANT if kind is None else kind,
        _content([part]),
        answers=part.tool_call_id if kind is Kind.TOOL else None,
        pinned=kind is None or is_fixed(part),
        source=place,
    )


def _response_artifact(message: ModelMessage) -> Artifact:
    calls = [part for part in message.parts if part.part_kind == "tool-call"]
    pinned = any(is_fixed(part) or part.part_kind == "compaction" for part in message.parts)
    return Artifact(
        Kind.ASSISTANT,
        _content(message.parts),
        calls=tuple(map(call_of, calls)),
        pinned=pinned,
        reported=getattr(getattr(message, "usage", None), "input_tokens", 0) or None,
        source=_Place(message, object()),
    )


def _slots(parts: Sequence[Any]) -> list[Slot]:
    return [
        ((number, *path) if path else (), piece)
        for number, part in enumerate(parts)
        for path, piece in part_slots(part)
    ]


def _content(parts: Sequence[Any]) -> str | tuple[Part, ...]:
    return content_of([piece for _, piece in _slots(parts)])


def _message_key(artifact: Artifact) -> object:
    """Return what artifacts that stand side by side in one message have in common."""
    if isinstance(artifact.source, _Place):
        return id(artifact.source.reading)
    return "response" if artifact.kind is Kind.ASSISTANT else "request"


def _message(members: list[Artifact], before: ModelMessage | None) -> ModelMessage | None:
    place = members[0].source
    if not isinstance(place, _Place):
        return _created(members, getattr(before, "timestamp", None) or _EPOCH)
    if place.message.kind == "response":
        return _response(place.message, members[0])
    if place.part is None:
        return place.message
    parts = [part for artifact in members for part in _request_parts(artifact, place.message)]
    return place.message if are_same(parts, place.message.parts) else edited(place.message, {("parts",): parts})


def _request_parts(artifact: Artifact, message: ModelRequest) -> list[Any]:
    number: int = artifact.source.part  # type: ignore[attr-defined]  # this adapter put it there
    part: Any = message.parts[number]
    if artifact.origin is None:
        return [part]
    if artifact.answers is not None and artifact.answers != part.tool_call_id:
        part = edited(part, {("tool_call_id",): artifact.answers})
    return _edited_parts(artifact, [part])


def _edited_parts(artifact: Artifact, parts: Sequence[Any]) -> list[Any]:
    """Return the parts of a changed artifact: the same objects where nothing was changed."""
    texts: dict[int, dict[Path, str | None]] = {}
    for (number, *path), _, now in (slot for slot in changed_slots(artifact, _slots(parts)) if slot[0]):
        texts.setdefault(int(number), {})[tuple(path)] = now.text
    calls = iter(artifact.calls)
    edits = (
        edited_call(part, next(calls)) if part.part_kind == "tool-call" else edited_part(part, texts.get(number, {}))
        for number, part in enumerate(parts)
    )
    return [part for part in edits if part is not None]


def _response(message: ModelResponse, artifact: Artifact) -> ModelResponse:
    parts: list[Any] = list(message.parts) if artifact.origin is None else _edited_parts(artifact, message.parts)
    if are_same(parts, message.parts):
        return message
    # a copy that no provider takes for the response it has stored
    unstored = [
        edited(part, {("id",): GONE}) if part.part_kind in ("text", "tool-call") and part.id is not None else part
        for part in parts
        if part.part_kind != "thinking" or part.id is None or part.provider_name == "anthropic"
    ]
    return edited(message, {("parts",): unstored, ("history_digest",): GONE})


def _created(members: list[Artifact], timestamp: datetime) -> ModelMessage:
    """Return the message of artifacts that no message stood for; its time is that of the one before it."""
    if members[0].kind is Kind.ASSISTANT:
        texts: list[Any] = [TextPart(a.text) for a in members if a.text or not a.calls]
        calls = [ToolCallPart(c.name, c.arguments, c.id or "") for a in members for c in a.calls]
        return ModelResponse(parts=texts + calls, timestamp=timestamp)
    return ModelRequest(parts=[_created_part(artifact, timestamp) for artifact in members])


def _created_part(artifact: Artifact, timestamp: datetime) -> SystemPromptPart | ToolReturnPart | UserPromptPart:
    if artifact.kind is Kind.TOOL:
        return ToolReturnPart(artifact.name or "", artifact.text, artifact.answers or "", timestamp=timestamp)
    if artifact.kind is Kind.SYSTEM:
        return SystemPromptPart(artifact.text, timestamp=timestamp)
    return UserPromptPart(artifact.text, timestamp=timestamp)
