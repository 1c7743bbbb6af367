"""Give values back in the events of `converse_stream`, where events cut placeholders in two."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from ctxguard.adapting.editing import copy_with
from ctxguard.adapting.fields import Path, member_at

if TYPE_CHECKING:
    from ctxguard.pii import UnmaskStream
    from ctxguard.wire.replies import Reply

Event = Mapping[str, Any]

_TEXT: Final[Path] = ("contentBlockDelta", "delta", "text")
_INPUT: Final[Path] = ("contentBlockDelta", "delta", "toolUse", "input")
"""Where the pieces of a text and of a tool's input stand. Reasoning keeps its placeholders."""


class GuardedStream:
    """Hold the events of an answer with the values back; all else is the stream's own.

    What may still become a placeholder is held back, at most 64 characters of a block, and sent at its end at the
    latest.
    """

    def __init__(self, stream: Any, reply: Reply) -> None:  # noqa: ANN401 - boto3 makes the classes of its streams
        self._stream = stream
        self._reply = reply
        self._open: dict[object, tuple[UnmaskStream, Path]] = {}

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._stream, name)

    def __iter__(self) -> Iterator[Event]:
        for event in self._stream:
            yield from self._ended(event)
            yield self._restored(event)

    def _restored(self, event: Event) -> Event:
        place = _TEXT if member_at(event, _TEXT) else _INPUT
        text = member_at(event, place)
        if not text or not isinstance(text, str):
            return event
        index = member_at(event, ("contentBlockDelta", "contentBlockIndex"))
        if index not in self._open:
            is_json = place == _INPUT or self._reply.wants_json
            self._open[index] = (self._reply.session.unmask_stream(arguments=is_json), place)
        restored = self._open[index][0].feed(text)
        return event if restored == text else copy_with(event, {place: restored})

    def _ended(self, event: Event) -> Iterator[Event]:
        """Walk the events for what was held back of a block that ends."""
        over = event.get("contentBlockStop")
        indexes = [over.get("contentBlockIndex")] if over else list(self._open) if "messageStop" in event else []
        for index in indexes:
            unmask, place = self._open.pop(index, (None, ()))
            if unmask is not None and (text := unmask.close()):
                delta = {"text": text} if place == _TEXT else {"toolUse": {"input": text}}
                yield {"contentBlockDelta": {"delta": delta, "contentBlockIndex": index}}
