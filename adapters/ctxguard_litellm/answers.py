"""Unmask the answers of LiteLLM's proxy: objects, dicts, and streams of objects or bytes."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator
from typing import TYPE_CHECKING, Any

from ctxguard.wire.streams import EventStream, ReplyEvents

if TYPE_CHECKING:
    from ctxguard.wire.guard import Prepared
    from ctxguard.wire.replies import Reply


def restored_answer(answer: Any, reply: Reply) -> Any:  # noqa: ANN401 - one of LiteLLM's types
    """Return an unmasked answer; the same object if it contains no placeholders."""
    raw = _as_json(answer)
    restored = reply.restored(raw)
    reply.learn(raw)
    return answer if restored is raw else _like(answer, restored)


async def restored_stream(chunks: AsyncIterable[Any], prepared: Prepared) -> AsyncIterator[Any]:
    """Yield the unmasked chunks of a streamed answer: objects, dicts, or pieces of its bytes."""
    if prepared.reply is None:
        async for chunk in chunks:
            yield chunk
        return
    bytewise = EventStream(prepared.reply)
    events: ReplyEvents[Any] = ReplyEvents(prepared.reply)
    async for chunk in chunks:
        if isinstance(chunk, (bytes, str)):
            if piece := bytewise.feed(chunk.encode() if isinstance(chunk, str) else chunk):
                yield piece.decode() if isinstance(chunk, str) else piece
        else:
            data = _as_json(chunk)
            for now, origin in events.feed(data, chunk):
                yield chunk if now is data else _like(origin, now)
    for now, origin in events.close():
        yield _like(origin, now)
    if rest := bytewise.close():
        yield rest


def _as_json(answer: Any) -> dict[str, Any]:  # noqa: ANN401 - one of LiteLLM's types
    if isinstance(answer, dict):
        return answer
    dumped: dict[str, Any] = answer.model_dump(mode="json")
    return dumped


def _like(answer: Any, data: Any) -> Any:  # noqa: ANN401 - one of LiteLLM's types
    """Return data as an object of an answer's type, with LiteLLM's hidden parameters."""
    if isinstance(answer, dict):
        return data
    made = type(answer)(**data)
    hidden = getattr(answer, "_hidden_params", None)
    if hidden is not None:
        made._hidden_params = hidden  # noqa: SLF001 - LiteLLM's own place for headers and costs
    return made
