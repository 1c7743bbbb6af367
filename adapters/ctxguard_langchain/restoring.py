"""A chat model whose answers have masked values restored, whole or streamed. Reasoning stays unchanged."""

from __future__ import annotations

from collections.abc import AsyncIterator, Hashable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar, cast

from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable, RunnableLambda

from ctxguard.adapting.restoring import AnyRestorer, Restorer, StreamRestorer, WholeRestorer
from ctxguard_langchain.clients import copied, with_models

Model = TypeVar("Model", bound="Runnable[Any, Any]")
_ARGUMENTS: Final = ("input", "args", "arguments", "partial_json")
"""Keys of the arguments in a block of content that is a tool call, or a piece of one."""
_CALLS: Final = frozenset({"tool_use", "input_json_delta", "function_call", "tool_call", "tool_call_chunk"})
"""Types of blocks that are tool calls, or pieces of them."""
_TYPES: Final = {"text": "text", "json": "input_json_delta"}
"""The types of blocks that continue a text, and the arguments of a call."""


def restoring_model(model: Model, restorer: Restorer | None) -> Model:
    """Return a copy of a chat model, or of what contains one, whose answers have masked values restored.

    Answers are not cached: a cache would show the values of one user to another one whose masked prompt is equal.

    Args:
        model: The model.
        restorer: Restores the values. None returns the model unchanged.
    """
    return model if restorer is None else with_models(model, lambda one: _restoring_copy(one, restorer))


def _restoring_copy(model: Any, restorer: Restorer) -> object:  # noqa: ANN401 - any chat model, here and below
    # The model's own methods get no `run_manager`: with one, some show a token to callbacks before it is restored.
    def generate(*given: Any, run_manager: Any = None, **settings: Any) -> ChatResult:  # noqa: ANN401, ARG001
        return _Answer(restorer).whole(model._generate(*given, **settings))  # noqa: SLF001 - LangChain's own protocol

    async def agenerate(*given: Any, run_manager: Any = None, **settings: Any) -> ChatResult:  # noqa: ANN401, ARG001
        return _Answer(restorer).whole(await model._agenerate(*given, **settings))  # noqa: SLF001

    def stream(*given: Any, run_manager: Any = None, **settings: Any) -> Iterator[ChatGenerationChunk]:  # noqa: ANN401, ARG001
        shown = _Answer(restorer)
        for chunk in model._stream(*given, **settings):  # noqa: SLF001
            yield from shown.feed(chunk)
        yield from shown.close()

    async def astream(*given: Any, run_manager: Any = None, **settings: Any) -> AsyncIterator[ChatGenerationChunk]:  # noqa: ANN401, ARG001
        shown = _Answer(restorer)
        async for chunk in model._astream(*given, **settings):  # noqa: SLF001
            for one in shown.feed(chunk):
                yield one
        for one in shown.close():
            yield one

    changes: dict[str, Any] = {"_generate": generate, "_agenerate": agenerate, "_stream": stream, "_astream": astream}
    # without their own events, models are streamed by `_stream`
    events = dict.fromkeys(("_stream_chat_model_events", "_astream_chat_model_events"))
    return copied(model, {**changes, **events, "cache": False})


class _Answer:
    """Restores masked values in one answer of a chat model.

    Args:
        restorer: Restores the values.
    """

    def __init__(self, restorer: Restorer) -> None:
        self._restorer = restorer
        self._stream = StreamRestorer(restorer)
        self._latest = AIMessageChunk(content="")

    def whole(self, result: ChatResult) -> ChatResult:
        """Return a whole answer, or several, with values restored."""
        made = [
            type(one)(message=self._whole_message(one.message), generation_info=one.generation_info)
            for one in result.generations
        ]
        return result.model_copy(update={"generations": made})

    def feed(self, chunk: ChatGenerationChunk) -> Iterator[ChatGenerationChunk]:
        """Yield the chunks to show now."""
        message = chunk.message
        if not isinstance(message, AIMessageChunk):
            yield chunk
            return
        self._latest = message
        shown = _content(message.content, self._stream)
        calls = [_call(one, ("call", _place(one)), self._stream) for one in message.tool_call_chunks]
        if getattr(message, "chunk_position", None) == "last":
            yield from self.close()
        fields = {name: value for name, value in vars(message).items() if name in type(message).model_fields}
        changes = {"content": shown, "tool_call_chunks": calls, "tool_calls": [], "invalid_tool_calls": []}
        yield ChatGenerationChunk(message=type(message)(**{**fields, **changes}), generation_info=chunk.generation_info)

    def close(self) -> Iterator[ChatGenerationChunk]:
        """Yield the chunks for what is still held back."""
        for key in self._stream.open:
            kind, index = key if isinstance(key, tuple) else ("", None)
            if text := self._stream.close(key):
                yield ChatGenerationChunk(message=self._rest(str(kind), index, text))

    def _rest(self, kind: str, index: Any, text: str) -> AIMessageChunk:  # noqa: ANN401 - a number or an id
        name, empty = self._latest.id, "" if isinstance(self._latest.content, str) else []
        if kind == "call":
            call = tool_call_chunk(args=text, index=index)
            return AIMessageChunk(content=cast("Any", empty), id=name, tool_call_chunks=[call])
        if kind == "text" and index == "":
            return AIMessageChunk(content=text, id=name)
        piece = {"text": text} if kind == "text" else {"partial_json": text}
        place = {} if index is None else {"index": index}
        return AIMessageChunk(content=[{"type": _TYPES[kind], **piece, **place}], id=name)

    def _whole_message(self, message: Any) -> Any:  # noqa: ANN401
        if not isinstance(message, AIMessage):
            return message
        restored = WholeRestorer(self._restorer)
        content, calls = _content(message.content, restored), [_call(one, None, restored) for one in message.tool_calls]
        return message.model_copy(update={"content": content, "tool_calls": calls})


def _content(content: Any, restored: AnyRestorer) -> Any:  # noqa: ANN401 - a text, or a list of texts and blocks
    """Return the content of a message, or of a piece of one, with values restored."""
    if isinstance(content, str):
        return restored.text(("text", ""), content)
    return [_block(block, restored) for block in content]


def _block(block: Any, restored: AnyRestorer) -> Any:  # noqa: ANN401 - a text, or a dict of any kind
    if isinstance(block, str):
        return restored.text(("text", ""), block)
    if block.get("type") in ("text", "text_delta") and isinstance(block.get("text"), str):
        return {**block, "text": restored.text(("text", block.get("index")), block["text"])}
    return _call(block, ("json", block.get("index")), restored) if block.get("type") in _CALLS else block


def _place(call: Mapping[str, Any]) -> Hashable:
    return call.get("id") if call.get("index") is None else call["index"]


def _call(call: Mapping[str, Any], key: Hashable, restored: AnyRestorer) -> dict[str, Any]:
    """Return a tool call, or a piece of one, with values restored."""
    shown, name = dict(call), call.get("name") or ""
    for field in _ARGUMENTS:
        if field in call:
            shown[field], name = restored.call(key, name, call[field]), ""
    return shown


class RestorableMessages(list[Any]):
    """Stabilized messages, with what restores the answer to them.

    Attributes:
        restorer: Restores the answer. None if there is nothing to restore.
    """

    restorer: Restorer | None = None


def restoring_step(model: Runnable[Any, Any]) -> Runnable[Any, Any]:
    """Return the step of a chain that calls a model with the messages of the guard before it, and restores answers."""

    def choose(messages: Sequence[Any], **arguments: Any) -> Runnable[Any, Any]:  # noqa: ANN401 - LangChain's signature
        chosen = restoring_model(model, getattr(messages, "restorer", None))
        return chosen.bind(**arguments) if arguments else chosen

    return RunnableLambda(choose, name="restore")
