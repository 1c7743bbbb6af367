"""Restore values in the events of `converse_stream`, which may split a placeholder."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ctxguard.wire.streams import ReplyEvents

if TYPE_CHECKING:
    from ctxguard.formats.format import Event
    from ctxguard.wire.replies import Reply


class GuardedStream:
    """The events of a response with values restored; all other attributes are the stream's own.

    Text that may be the beginning of a placeholder is held back, at most 64 characters of a block, until the block ends
    at the latest.
    """

    def __init__(self, stream: Any, reply: Reply) -> None:  # noqa: ANN401 - boto3 makes the classes of its streams
        self._stream = stream
        self._events: ReplyEvents[None] = ReplyEvents(reply)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._stream, name)

    def __iter__(self) -> Iterator[Event]:
        for event in self._stream:
            yield from (restored for restored, _ in self._events.feed(event, None))
        yield from (restored for restored, _ in self._events.close())
