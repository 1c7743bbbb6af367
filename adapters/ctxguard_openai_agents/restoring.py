"""A model whose responses have masked values restored, whole or streamed.

The SDK's filter prepares an input and never sees the response, so a wrapped model restores the values in it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any, cast

from ctxguard.formats.responses import ResponsesAdapter
from ctxguard.wire.replies import Reply
from ctxguard.wire.streams import ReplyEvents
from ctxguard_openai_agents.models import ModelCall, Wrapped, WrappedModel, wrapped
from ctxguard_openai_agents.retries import prepared_for


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

    async def respond(self, call: ModelCall) -> Any:  # noqa: ANN401 - the SDK's own
        """Return the response to a call."""
        response = await call.response(self._model)
        reply = _reply(call)
        if reply is None:
            return response
        written = [_as_json(item) for item in response.output]
        shown = cast("list[Any]", reply.restore(written))
        pairs = zip(response.output, written, shown, strict=True)
        return replace(response, output=[item if now is was else _like(item, now) for item, was, now in pairs])

    async def stream(self, call: ModelCall) -> AsyncIterator[Any]:
        """Yield the events of the response to a call."""
        restored: ReplyEvents[Any] | None = None
        has_begun = False
        async with call.events(self._model) as events:
            async for event in events:
                if not has_begun:  # a second attempt may have prepared the input anew before the first event
                    has_begun = True
                    reply = _reply(call)
                    restored = None if reply is None else ReplyEvents(reply)
                if restored is None:
                    yield event
                    continue
                written = _as_json(event)
                for now, origin in restored.feed(written, event):
                    yield event if now is written else _like(origin, now)
        for now, origin in () if restored is None else restored.close():
            yield _like(origin, now)


def _reply(call: ModelCall) -> Reply | None:
    """Return what restores the response to a model call; None if there is nothing to restore."""
    sent = prepared_for(call)
    restorer = None if sent is None or not sent.restorers else sent.restorers[-1]
    if restorer is None:
        return None
    schema = call["output_schema"]
    return Reply.of(restorer, ResponsesAdapter(), wants_json=schema is not None and not schema.is_plain_text())


def _as_json(value: Any) -> dict[str, Any]:  # noqa: ANN401 - an object of OpenAI's SDK
    written: dict[str, Any] = value.model_dump(mode="json", exclude_unset=True, warnings=False)
    return written


def _like(origin: Any, data: Any) -> Any:  # noqa: ANN401 - an object of OpenAI's SDK
    """Return data as an object of the same type as `origin`, as the SDK itself reads responses."""
    return type(origin).construct(**data)
