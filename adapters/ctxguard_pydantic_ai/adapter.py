"""PydanticAI messages as artifacts and back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import groupby
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

from ctxguard.artifacts import Artifact, Kind, Part
from ctxguard.errors import HistoryError
from ctxguard_pydantic_ai.parts import call_of, copied, edited_call, edited_part, is_fixed, pieces

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
    """Say which message an artifact was read from, and which part of a request."""

    message: ModelMessage
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
        if isinstance(native, (str, bytes)) or not isinstance(native, Sequence):
            raise HistoryError(f"a list of messages is wanted, not {type(native).__name__}")
        return [artifact for position, message in enumerate(native) for artifact in _read(message, position)]

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
        return (
            isinstance(native, Sequence)
            and not isinstance(native, (str, bytes))
            and all(isinstance(message, (ModelRequest, ModelResponse)) for message in native)
        )


def _read(message: ModelMessage, position: int) -> Iterator[Artifact]:
    kind = getattr(message, "kind", None)
    if kind == "response":
        yield _response_artifact(message)
    elif kind != "request":
        raise HistoryError(
            f"a ModelRequest or ModelResponse is wanted, not {type(message).__name__}", position=position
        )
    elif not message.parts:
        yield Artifact(Kind.USER, "", source=_Place(message))
    else:
        yield from (_request_artifact(message, number, part) for number, part in enumerate(message.parts))


def _request_artifact(message: ModelMessage, number: int, part: Any) -> Artifact:  # noqa: ANN401 - duck-typed
    kind = _KINDS.get(part.part_kind)
    if part.part_kind == "retry-prompt":
        kind = Kind.TOOL if part.tool_name else Kind.USER
    return Artifact(
        Kind.ASSISTANT if kind is None else kind,
        _content(pieces(part)),
        answers=part.tool_call_id if kind is Kind.TOOL else None,
        pinned=kind is None or is_fixed(part),
        source=_Place(message, number),
    )


def _response_artifact(message: ModelMessage) -> Artifact:
    calls = [part for part in message.parts if part.part_kind == "tool-call"]
    pinned = any(is_fixed(part) or part.part_kind == "compaction" for part in message.parts)
    return Artifact(
        Kind.ASSISTANT,
        _content([piece for part in message.parts for piece in pieces(part)]),
        calls=tuple(map(call_of, calls)),
        pinned=pinned,
        reported=getattr(getattr(message, "usage", None), "input_tokens", 0) or None,
        source=_Place(message),
    )


def _content(found: list[Part]) -> str | tuple[Part, ...]:
    if not found:
        return ""
    only = found[0].text if len(found) == 1 and found[0].kind == "text" else None
    return tuple(found) if only is None else only


def _message_key(artifact: Artifact) -> object:
    """Return what artifacts that stand side by side in one message have in common."""
    if isinstance(artifact.source, _Place):
        return id(artifact.source.message)
    return "response" if artifact.kind is Kind.ASSISTANT else "request"


def _message(members: list[Artifact], before: ModelMessage | None) -> ModelMessage | None:
    place = members[0].source
    if not isinstance(place, _Place):
        return _created(members, getattr(before, "timestamp", None) or _EPOCH)
    if place.message.kind == "response":
        return _response(place.message, members[0])
    if place.part is None:
        return place.message
    parts = [_request_part(artifact, place.message) for artifact in members]
    same = len(parts) == len(place.message.parts) and all(map(_is, parts, place.message.parts))
    return place.message if same else replace(place.message, parts=parts)


def _is(left: object, right: object) -> bool:
    return left is right


def _request_part(artifact: Artifact, message: ModelRequest) -> Any:  # noqa: ANN401 - duck-typed
    part: Any = message.parts[getattr(artifact.source, "part", 0)]
    if artifact.origin is None:
        return part
    if artifact.answers is not None and artifact.answers != part.tool_call_id:
        part = replace(part, tool_call_id=artifact.answers)
    return edited_part(part, _new_pieces(artifact, len(pieces(part))))


def _new_pieces(artifact: Artifact, expected: int) -> list[Part]:
    """Return the pieces of a changed content; one text that took the place of several is put first."""
    content = artifact.content
    found = [Part("text", content)] if isinstance(content, str) else list(content)
    return [*found, *[Part("text", "")] * expected][:expected]


def _response(message: ModelResponse, artifact: Artifact) -> ModelResponse | None:
    if artifact.origin is None:
        return message
    now = _new_pieces(artifact, sum(len(pieces(part)) for part in message.parts))
    calls = iter(artifact.calls)
    parts: list[Any] = []
    for part in message.parts:
        own, now = now[: len(pieces(part))], now[len(pieces(part)) :]
        call = next(calls) if part.part_kind == "tool-call" else None
        edited = edited_part(part, own) if call is None else edited_call(part, call)
        parts += [] if edited is None else [edited]
    if len(parts) == len(message.parts) and all(map(_is, parts, message.parts)):
        return message
    return _unstored(message, parts)


def _unstored(message: ModelResponse, parts: list[Any]) -> ModelResponse:
    """Return a copy that no provider takes for the response it has stored."""
    kept = [
        replace(part, id=None) if part.part_kind in ("text", "tool-call") and part.id is not None else part
        for part in parts
        if part.part_kind != "thinking" or part.id is None or part.provider_name == "anthropic"
    ]
    response: ModelResponse = copied(message, parts=kept, history_digest=None)
    return response


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
