"""Retry a model call once with a smaller budget if the provider reports that the input was too long.

The SDK's filter runs before a model call and does not see errors. A wrapped model sees the error, and asks the filter
that prepared the input to prepare it again with a smaller budget.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final

from agents.run import ModelInputData

from ctxguard.adapting.restoring import Restorer
from ctxguard.errors import BudgetExceededError
from ctxguard.wire.limits import smaller_budget
from ctxguard_openai_agents.models import ModelCall, Wrapped, WrappedModel, wrapped


@dataclass(frozen=True, slots=True)
class PreparedInput:
    """The prepared input for one model call.

    Attributes:
        data: The input.
        again: Function that prepares the input again with a smaller budget.
        restorers: What restores the response: one for each time that the input was prepared, the latest last; None if
            nothing has to be restored.
    """

    data: ModelInputData
    again: Callable[[], Awaitable[ModelInputData]]
    restorers: Sequence[Restorer | None] = ()

    def is_for(self, call: ModelCall) -> bool:
        """Return whether a model call sends this input, which is not the case in a nested agent without a filter."""
        known = set(map(id, self.data.input))  # the SDK removes duplicate items
        is_same = self.data.instructions == call.instructions and isinstance(call.input, list)
        return is_same and known >= set(map(id, call.input))


_LATEST: Final[ContextVar[PreparedInput | None]] = ContextVar("ctxguard_latest_model_input", default=None)


def remember(sent: PreparedInput) -> None:
    """Store the prepared input for the next model call in this task."""
    _LATEST.set(sent)


def prepared_for(call: ModelCall) -> PreparedInput | None:
    """Return the prepared input that a model call sends; None if the input of the call was not prepared."""
    sent = _LATEST.get()
    return None if sent is None or not sent.is_for(call) else sent


def with_overflow_retry(model: Wrapped) -> Wrapped:
    """Return a model, or a provider of models, that retries a call once if its input was too long.

    The run's `call_model_input_filter` prepares the input again with 60% of the budget. The smaller budget then
    applies to the rest of the conversation.

    Args:
        model: A model for `Agent(model=…)`, or a provider such as `MultiProvider()` for `RunConfig(model_provider=…)`.

    Raises:
        ConfigError: If `model` is neither a model nor a provider.
    """
    return wrapped(model, _Retrying, "with_overflow_retry")


class _Retrying(WrappedModel):
    """A model that retries a call once if its input was too long."""

    async def respond(self, call: ModelCall) -> Any:  # noqa: ANN401 - the SDK's own
        """Return the response to a call, or to its second attempt."""
        try:
            return await call.response(self._model)
        except Exception as error:
            smaller = await _smaller(error, call)
            if smaller is None:
                raise
        return await smaller.response(self._model)

    async def stream(self, call: ModelCall) -> AsyncIterator[Any]:
        """Yield the model's events. The call is not retried once an event has arrived."""
        has_begun = False
        try:
            async with call.events(self._model) as events:
                async for event in events:
                    has_begun = True
                    yield event
        except Exception as error:
            smaller = None if has_begun else await _smaller(error, call)
            if smaller is None:
                raise
        else:
            return
        async with smaller.events(self._model) as events:
            async for event in events:
                yield event


async def _smaller(error: Exception, call: ModelCall) -> ModelCall | None:
    """Return the call with a smaller input if an error says that its input was too long, else None."""
    sent = prepared_for(call)
    if sent is None or not _says_too_long(error):
        return None
    try:
        return call.sending(await sent.again())
    except BudgetExceededError:  # the provider's error is more informative
        return None


def _says_too_long(error: Exception) -> bool:
    text = f"{getattr(error, 'code', '')} {error}".encode()
    status = getattr(error, "status_code", None)
    return smaller_budget(status if isinstance(status, int) else 400, text, tokens=1, budget=1) is not None
