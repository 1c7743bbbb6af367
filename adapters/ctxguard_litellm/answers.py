"""Give values back in the answers that LiteLLM's proxy hands over: objects, dicts, and streams of objects or bytes."""

from __future__ import annotations

import json
from collections.abc import AsyncIterable, AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any

from ctxguard.wire.events import EventSplitter, data_of
from ctxguard.wire.streams import MOST_EVENT, EventStream

if TYPE_CHECKING:
    from ctxguard.wire.guard import Prepared
    from ctxguard.wire.replies import Reply


def restored_answer(answer: Any, reply: Reply) -> Any:  # noqa: ANN401 - one of LiteLLM's types
    """Return an answer with the values back; the very same one where there is nothing to give back."""
    raw = _as_json(answer)
    restored = reply.restored(raw)
    reply.learn(raw)
    return answer if restored is raw else _like(answer, restored)


async def restored_stream(chunks: AsyncIterable[Any], prepared: Prepared) -> AsyncIterator[Any]:
    """Walk the chunks of a streamed answer with the values back."""
    stream = _ObjectStream(prepared.stream())
    async for chunk in chunks:
        if isinstance(chunk, (bytes, str)):
            if piece := stream.events.feed(chunk.encode() if isinstance(chunk, str) else chunk):
                yield piece.decode() if isinstance(chunk, str) else piece
        else:
            for each in stream.feed(chunk):
                yield each
    if rest := stream.events.close():
        for last in stream.close(rest):
            yield last


class _ObjectStream:
    """Give values back in a stream of objects, by way of the events that they stand for."""

    def __init__(self, events: EventStream) -> None:
        self.events = events
        self._splitter = EventSplitter(MOST_EVENT)
        self._latest: dict[object, Any] = {}

    def feed(self, chunk: Any) -> Iterator[Any]:  # noqa: ANN401 - one of LiteLLM's types
        """Walk what can be said now."""
        data = _as_json(chunk)
        self._latest[data.get("type")] = chunk
        event = b"data: " + json.dumps(data).encode() + b"\n\n"
        said = self.events.feed(event)
        if said == event:
            yield chunk
        else:
            yield from self._objects(said)

    def close(self, rest: bytes) -> Iterator[Any]:
        """Walk what was held back."""
        if self._latest:
            yield from self._objects(rest)
        else:
            yield rest

    def _objects(self, said: bytes) -> Iterator[Any]:
        for event in self._splitter.feed(said):
            data = data_of(event)
            if isinstance(data, dict):
                yield _like(self._latest[data.get("type")], data)


def _as_json(answer: Any) -> dict[str, Any]:  # noqa: ANN401 - one of LiteLLM's types
    if isinstance(answer, dict):
        return answer
    dumped: dict[str, Any] = answer.model_dump(mode="json")
    return dumped


def _like(answer: Any, data: Any) -> Any:  # noqa: ANN401 - one of LiteLLM's types
    """Return data as an object of the type of an answer, with what LiteLLM keeps in it unseen."""
    if isinstance(answer, dict):
        return data
    made = type(answer)(**data)
    hidden = getattr(answer, "_hidden_params", None)
    if hidden is not None:
        made._hidden_params = hidden  # noqa: SLF001 - LiteLLM's own place for headers and costs
    return made
