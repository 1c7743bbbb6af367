"""A model whose responses have masked values restored, whole or streamed.

The SDK's filter prepares an input and never sees the response, so a wrapped model restores the values in it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import replace
from typing import Any, cast

from ctxguard.formats.responses import ResponsesAdapter
from ctxguard.wire.replies import Reply
from ctxguard.wire.streams import ReplyEvents
from ctxguard_openai_agents.retries import Wrapped, WrappedModel, prepared_for, wrapped

_OUTPUT_SCHEMA = 2
"""The position of `output_schema` among the arguments of a model call after its input."""


def with_restored_values(model: Wrapped) -> Wrapped:
    """Return a model, or a provider of models, whose responses have masked values restored.

    The run's `call_model_input_filter` says what was masked. Texts, structured output, and the arguments of calls have
    the values before the SDK reads them, and so do all events, the final output, and the items of the session.
    Placeholders stay in reasoning, in links to hosts that no user named, and in the arguments of tools that get no
    values.

    Args:
        model: A model for `Agent(model=…)`, or a provider such as `MultiProvider()` for `RunConfig(model_provider=…)`.
            Both may be wrapped by `with_overflow_retry`.

    Raises:
        ConfigError: If `model` is neither a model nor a provider.
    """
    return wrapped(model, _Restoring, "with_restored_values")


class _Restoring(WrappedModel):
    """A model whose responses have masked values restored."""

    async def get_response(
        self,
        system_instructions: str | None,
        input: Any,  # noqa: A002, ANN401 - the SDK's signature
        *args: Any,  # noqa: ANN401
        **settings: Any,  # noqa: ANN401
    ) -> Any:  # noqa: ANN401
        """Return the model's response."""
        response = await self._model.get_response(system_instructions, input, *args, **settings)
        reply = _reply(system_instructions, input, args, settings)
        if reply is None:
            return response
        written = [_as_json(item) for item in response.output]
        shown = cast("list[Any]", reply.restore(written))
        pairs = zip(response.output, written, shown, strict=True)
        return replace(response, output=[item if now is was else _like(item, now) for item, was, now in pairs])

    async def stream_response(
        self,
        system_instructions: str | None,
        input: Any,  # noqa: A002, ANN401 - the SDK's signature
        *args: Any,  # noqa: ANN401
        **settings: Any,  # noqa: ANN401
    ) -> AsyncIterator[Any]:
        """Yield the model's events."""
        restored: ReplyEvents[Any] | None = None
        has_begun = False
        events = self._model.stream_response(system_instructions, input, *args, **settings)
        async with aclosing(cast("Any", events)) as running:
            async for event in running:
                if not has_begun:  # a second attempt may have prepared the input anew before the first event
                    has_begun = True
                    reply = _reply(system_instructions, input, args, settings)
                    restored = None if reply is None else ReplyEvents(reply)
                if restored is None:
                    yield event
                    continue
                written = _as_json(event)
                for now, origin in restored.feed(written, event):
                    yield event if now is written else _like(origin, now)
        for now, origin in () if restored is None else restored.close():
            yield _like(origin, now)


def _reply(
    instructions: str | None,
    given: object,
    args: tuple[Any, ...],
    settings: dict[str, Any],
) -> Reply | None:
    """Return what restores the response to a model call; None if there is nothing to restore."""
    sent = prepared_for(instructions, given)
    restorer = None if sent is None or not sent.restorers else sent.restorers[-1]
    if restorer is None:
        return None
    schema = settings.get("output_schema", args[_OUTPUT_SCHEMA] if len(args) > _OUTPUT_SCHEMA else None)
    return Reply.of(restorer, ResponsesAdapter(), wants_json=schema is not None and not schema.is_plain_text())


def _as_json(value: Any) -> dict[str, Any]:  # noqa: ANN401 - an object of OpenAI's SDK
    written: dict[str, Any] = value.model_dump(mode="json", exclude_unset=True, warnings=False)
    return written


def _like(origin: Any, data: Any) -> Any:  # noqa: ANN401 - an object of OpenAI's SDK
    """Return data as an object of the same type as `origin`, as the SDK itself reads responses."""
    return type(origin).construct(**data)
