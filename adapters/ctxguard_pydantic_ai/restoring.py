"""A model whose responses have masked values restored, whole or streamed. Thinking and native tools stay unchanged."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from operator import attrgetter
from typing import Any, Final

from pydantic_ai.messages import (
    FinalResultEvent,
    ModelResponse,
    PartDeltaEvent,
    PartEndEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ToolCallPartDelta,
)
from pydantic_ai.models import Model, ModelRequestParameters, StreamedResponse
from pydantic_ai.models.wrapper import WrapperModel

from ctxguard.adapting.restoring import AnyRestorer, Restorer, StreamRestorer, WholeRestorer
from ctxguard_pydantic_ai.adapter import is_fixed

_JSON_MODES: Final = ("native", "prompted")
"""Modes of structured output in which the text of a response is JSON."""


class RestoringModel(WrapperModel):
    """A model whose responses have masked values restored. Requests are passed on unchanged.

    Args:
        wrapped: The model.
        restorer: Restores the values in the response to the next request.
    """

    def __init__(self, wrapped: Model, restorer: Restorer) -> None:
        super().__init__(wrapped)
        self.restorer = restorer

    async def request(self, messages: Any, settings: Any, parameters: ModelRequestParameters) -> ModelResponse:  # noqa: ANN401 - the framework's signature, here and below
        """Return the model's response with values restored."""
        response = await self.wrapped.request(messages, settings, parameters)
        return _Parts(self.restorer, parameters).whole(response)

    @asynccontextmanager
    async def request_stream(
        self,
        messages: Any,  # noqa: ANN401
        settings: Any,  # noqa: ANN401
        parameters: ModelRequestParameters,
        run_context: Any = None,  # noqa: ANN401
    ) -> AsyncGenerator[StreamedResponse]:
        """Yield the model's streamed response with values restored."""
        async with self.wrapped.request_stream(messages, settings, parameters, run_context) as response:
            yield _RestoringStream(response, _Parts(self.restorer, parameters))


class _Parts:
    """Restores values in the parts of one response.

    Args:
        restorer: Restores the values.
        parameters: The parameters of the request, with the tools for structured output. Their arguments are data for
            the program, so they get values whatever tools are denied them.
    """

    def __init__(self, restorer: Restorer, parameters: ModelRequestParameters) -> None:
        wants_json, outputs = parameters.output_mode in _JSON_MODES, {tool.name for tool in parameters.output_tools}
        self._restorer = replace(restorer, wants_json=wants_json, outputs=outputs)
        self._stream = StreamRestorer(self._restorer)
        self._calls: set[int] = set()

    def whole(self, response: ModelResponse) -> ModelResponse:
        """Return a response with values restored."""
        restored = WholeRestorer(self._restorer)
        return replace(response, parts=[_part(part, number, restored) for number, part in enumerate(response.parts)])

    def feed(self, event: Any) -> Iterator[Any]:  # noqa: ANN401 - events differ between versions, here and below
        """Yield the events to show now."""
        if isinstance(event, PartStartEvent):
            self._stream.close(event.index)  # a part that is started again is replaced
            self._calls.discard(event.index)
            if _is_call(event.part):
                self._calls.add(event.index)
            yield replace(event, part=_part(event.part, event.index, self._stream))
        elif isinstance(event, PartDeltaEvent):
            yield replace(event, delta=self._continued(event.index, event.delta))
        elif isinstance(event, PartEndEvent):
            # The arguments of calls in parallel may go on after the next part has begun.
            yield from self._rest([event.index] if isinstance(event.part, TextPart) else [])
        elif not isinstance(event, FinalResultEvent):
            yield event

    def close(self) -> Iterator[Any]:
        """Yield the events for what is still held back, once the stream has ended."""
        yield from self._rest(self._stream.open)

    def _continued(self, index: int, delta: Any) -> Any:  # noqa: ANN401
        if isinstance(delta, TextPartDelta):
            return replace(delta, content_delta=self._stream.text(index, delta.content_delta))
        if not isinstance(delta, ToolCallPartDelta) or index not in self._calls:
            return delta
        return replace(delta, args_delta=self._stream.call(index, delta.tool_name_delta or "", delta.args_delta))

    def _rest(self, indices: Iterable[Any]) -> Iterator[Any]:
        for index in indices:
            if text := self._stream.close(index):
                delta = ToolCallPartDelta(args_delta=text) if index in self._calls else TextPartDelta(text)
                yield PartDeltaEvent(index=index, delta=delta)


def _part(part: Any, index: int, restored: AnyRestorer) -> Any:  # noqa: ANN401
    """Return a part of a response, or the beginning of one, with values restored."""
    if type(part) is TextPart:
        return replace(part, content=restored.text(index, part.content))
    return replace(part, args=restored.call(index, part.tool_name, part.args)) if _is_call(part) else part


def _is_call(part: Any) -> bool:  # noqa: ANN401
    return part.part_kind == "tool-call" and not is_fixed(part)


class _RestoringStream(StreamedResponse):
    """A streamed response with values restored. The events of ends and final results are created anew."""

    usage = property(attrgetter("_wrapped.usage"))
    model_name = property(attrgetter("_wrapped.model_name"))
    provider_name = property(attrgetter("_wrapped.provider_name"))
    provider_url = property(attrgetter("_wrapped.provider_url"))
    timestamp = property(attrgetter("_wrapped.timestamp"))

    def __init__(self, wrapped: StreamedResponse, parts: _Parts) -> None:
        super().__init__(wrapped.model_request_parameters)
        self._wrapped = wrapped
        self._restored = parts

    async def _get_event_iterator(self) -> AsyncIterator[Any]:
        async for event in self._wrapped:
            for shown in self._restored.feed(event):
                self._parts_manager.apply_event(shown)
                yield shown
        for shown in self._restored.close():
            self._parts_manager.apply_event(shown)
            yield shown

    def get(self) -> ModelResponse:
        """Return the response as received so far."""
        return replace(self._wrapped.get(), parts=self._parts_manager.get_parts())

    async def cancel(self) -> None:
        """Cancel the wrapped response."""
        await self._wrapped.cancel()
        self._cancelled = self._wrapped.cancelled

    async def close_stream(self) -> None:
        """Close the wrapped response."""
        await self._wrapped.close_stream()
