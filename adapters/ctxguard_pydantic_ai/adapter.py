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
from ctxguard.artifacts import Artifact, Kind
from ctxguard.errors import HistoryError
from ctxguard.lens import GONE, Slot, View, are_same, by_member, edited, is_list, wanted_list, within
from ctxguard_pydantic_ai.parts import call_place, edited_part, is_fixed, part_slots

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
    """Say which message an artifact was read from, and which part of a request; None is all of a message.

    One `reading` stands for one occurrence of the message: what stands in a history twice is read twice.
    """

    message: ModelMessage
    reading: object
    part: int | None = None

    @property
    def parts(self) -> list[tuple[int, Any]]:
        """The parts that the artifact holds, with their numbers."""
        parts = self.message.parts
        return list(enumerate(parts)) if self.part is None else [(self.part, parts[self.part])]


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
            written.append(_message(list(group), written[-1] if written else None))
        return written

    def detects(self, native: object) -> bool:
        """Tell whether a list holds PydanticAI's messages."""
        return is_list(native) and all(isinstance(message, (ModelRequest, ModelResponse)) for message in native)


def _read(message: ModelMessage) -> tuple[Artifact, ...]:
    kind, reading = getattr(message, "kind", None), object()
    if kind not in ("request", "response"):
        raise HistoryError(f"a ModelRequest or ModelResponse is wanted, not {type(message).__name__}")
    places = [_Place(message, reading)]
    if kind == "request" and message.parts:
        places = [_Place(message, reading, number) for number in range(len(message.parts))]
    return tuple(_view(place).artifact(place) for place in places)


_CACHE: Final = ReadCache(_read, spelled=frozenset({"args", "content"}))


def _view(place: _Place) -> View:
    slots = [slot for number, part in place.parts for slot in within(number, part_slots(part))]
    if isinstance(place.message, ModelRequest):
        return _request_view(place, slots)
    parts = place.message.parts
    return View(
        Kind.ASSISTANT,
        slots,
        [call_place(part, number) for number, part in enumerate(parts) if part.part_kind == "tool-call"],
        pinned=any(is_fixed(part) or part.part_kind == "compaction" for part in parts),
        reported=getattr(getattr(place.message, "usage", None), "input_tokens", 0) or None,
    )


def _request_view(place: _Place, slots: list[Slot]) -> View:
    if place.part is None:  # a request without parts
        return View(Kind.USER)
    part: Any = place.message.parts[place.part]
    kind = _KINDS.get(part.part_kind)
    if part.part_kind == "retry-prompt":
        kind = Kind.TOOL if part.tool_name else Kind.USER
    return View(
        kind or Kind.ASSISTANT,
        slots,
        answers=part.tool_call_id if kind is Kind.TOOL else None,
        answers_at=(place.part, "tool_call_id"),
        pinned=kind is None or is_fixed(part),
    )


def _message_key(artifact: Artifact) -> object:
    """Return what artifacts that stand side by side in one message have in common."""
    if isinstance(artifact.source, _Place):
        return id(artifact.source.reading)
    return "response" if artifact.kind is Kind.ASSISTANT else "request"


def _message(artifacts: list[Artifact], before: ModelMessage | None) -> ModelMessage:
    place = artifacts[0].source
    if not isinstance(place, _Place):
        return _created(artifacts, getattr(before, "timestamp", None) or _EPOCH)
    message = place.message
    is_whole = place.part is None or len(message.parts) == 1
    if is_whole and len(artifacts) == 1 and artifacts[0].origin is None:
        return message
    parts = [part for artifact in artifacts for part in _written(artifact)]
    if are_same(parts, message.parts):
        return message
    if isinstance(message, ModelRequest):
        return edited(message, {("parts",): parts})
    return edited(message, {("parts",): list(map(_unstored, filter(_is_free, parts))), ("history_digest",): GONE})


def _written(artifact: Artifact) -> list[Any]:
    """Return the parts of an artifact: the same objects where nothing was changed."""
    place: _Place = artifact.source  # type: ignore[assignment]  # this adapter put it there
    changes = {} if artifact.origin is None else by_member(_view(place).changes(artifact))
    parts = [edited_part(part, changes.get(number, {})) for number, part in place.parts]
    return [part for part in parts if part is not GONE]


def _is_free(part: Any) -> bool:  # noqa: ANN401 - duck-typed
    """Tell parts of a changed response that may be sent: thinking with an id is one that the provider has stored."""
    return part.part_kind != "thinking" or part.id is None or part.provider_name == "anthropic"


def _unstored(part: Any) -> Any:  # noqa: ANN401 - duck-typed
    """Return a part that no provider takes for the one it has stored."""
    is_stored = part.part_kind in ("text", "tool-call") and part.id is not None
    return edited(part, {("id",): GONE}) if is_stored else part


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
