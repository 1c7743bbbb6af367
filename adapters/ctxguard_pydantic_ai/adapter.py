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

from ctxguard.adapting.adapter import ReadCache
from ctxguard.adapting.message_view import GONE, Slot, View, by_member, edited, is_list, misread, wanted_list, within
from ctxguard.adapting.pieces import Piece, pieces, rejoined
from ctxguard.artifacts import Artifact, Kind
from ctxguard.errors import HistoryError
from ctxguard_pydantic_ai.parts import call_place, edited_part, is_fixed, part_slots

__all__ = ["PydanticAIAdapter"]

_KINDS: Final = {
    "system-prompt": Kind.SYSTEM,
    **dict.fromkeys(("user-prompt", "speech", "retry-feedback"), Kind.USER),
    "tool-return": Kind.TOOL,
}
_EPOCH: Final = datetime.fromtimestamp(0, UTC)


class PydanticAIAdapter:
    """Look at PydanticAI messages as artifacts: a response is one, a request one for each of its parts.

    What does not survive: an edited part loses its `id` and `citations`, its response the `history_digest`, as the
    framework's documentation demands; thinking that is signed goes where its text would have changed, with the rest of
    the thinking beside it, and thinking with an id of OpenAI's goes from a response that is edited. An edited
    `StructuredContent` becomes a `TextContent`, edited speech loses its audio. Instruction deltas and baselines, parts
    of the framework's own tools and unknown parts are pinned. Nothing is known of instructions: they are no part of
    the history, see `ContextGuard`.
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
    kind = getattr(message, "kind", None)
    if kind not in ("request", "response"):
        raise HistoryError(f"a ModelRequest or ModelResponse is wanted, not {type(message).__name__}")
    strange = next((n for n, part in enumerate(message.parts) if not hasattr(part, "part_kind")), None)
    if strange is not None:
        raise misread(("parts", strange), "a part of a message", message.parts[strange])
    every = range(len(message.parts))
    numbers = [(number,) for number in every] if kind == "request" and message.parts else [tuple(every)]
    return tuple(_view(piece).artifact(piece) for piece in pieces(message, numbers))


_CACHE: Final = ReadCache(_read, spelled=frozenset({"args", "content"}))


def _view(piece: Piece) -> View:
    message: ModelMessage = piece.message  # type: ignore[assignment]  # this adapter put it there
    slots = [slot for number in piece.numbers for slot in within(number, part_slots(message.parts[number]))]
    if isinstance(message, ModelRequest):
        return _request_view(message, piece.numbers[0], slots) if piece.numbers else View(Kind.USER)
    return View(
        Kind.ASSISTANT,
        slots,
        [call_place(part, number) for number, part in enumerate(message.parts) if part.part_kind == "tool-call"],
        pinned=any(is_fixed(part) or part.part_kind == "compaction" for part in message.parts),
        reported=getattr(getattr(message, "usage", None), "input_tokens", 0) or None,
    )


def _request_view(message: ModelRequest, number: int, slots: list[Slot]) -> View:
    part: Any = message.parts[number]
    kind = _KINDS.get(part.part_kind)
    if part.part_kind == "retry-prompt":
        kind = Kind.TOOL if part.tool_name else Kind.USER
    return View(
        kind or Kind.ASSISTANT,
        slots,
        answers=part.tool_call_id if kind is Kind.TOOL else None,
        answers_at=(number, "tool_call_id"),
        pinned=kind is None or is_fixed(part),
    )


def _message_key(artifact: Artifact) -> object:
    """Return what artifacts that stand side by side in one message have in common."""
    if isinstance(artifact.source, Piece):
        return id(artifact.source.reading)
    return "response" if artifact.kind is Kind.ASSISTANT else "request"


def _message(artifacts: list[Artifact], before: ModelMessage | None) -> ModelMessage:
    piece = artifacts[0].source
    if not isinstance(piece, Piece):
        return _created(artifacts, getattr(before, "timestamp", None) or _EPOCH)
    message: ModelMessage = piece.message  # type: ignore[assignment]  # this adapter put it there
    parts: list[Any] | None = rejoined(artifacts, message.parts, _written)
    if parts is None:
        return message
    if isinstance(message, ModelRequest):
        return edited(message, {("parts",): parts})
    return edited(message, {("parts",): list(map(_unstored, filter(_is_free, parts))), ("history_digest",): GONE})


def _written(artifact: Artifact) -> list[Any]:
    """Return the parts of an artifact: the same objects where nothing was changed.

    Where thinking goes that may not be changed, the rest of it goes too: providers take it back as it was, and all.
    """
    piece: Any = artifact.source
    changes = {} if artifact.origin is None else by_member(_view(piece).changes(artifact))
    parts = [edited_part(piece.message.parts[number], changes.get(number, {})) for number in piece.numbers]
    if any(part is GONE for part in parts):
        return [part for part in parts if part is not GONE and part.part_kind != "thinking"]
    return parts


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
    part = SystemPromptPart if artifact.kind is Kind.SYSTEM else UserPromptPart
    return part(artifact.text, timestamp=timestamp)
