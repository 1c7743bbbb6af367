"""Retry a model call once with a smaller budget if the provider reports that the input was too long.

The SDK's filter runs before a model call and does not see errors. A wrapped model sees the error, and asks the filter
that prepared the input to prepare it again with a smaller budget.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final, TypeVar, cast

from agents import Model, ModelProvider
from agents.run import ModelInputData

from ctxguard.adapting.restoring import Restorer
from ctxguard.errors import BudgetExceededError, ConfigError
from ctxguard.wire.limits import smaller_budget

Wrapped = TypeVar("Wrapped", bound=Model | ModelProvider)


@dataclass(frozen=True, slots=True)
class PreparedInput:
    """The prepared input for one model call.

    Attributes:
        data: The input.
        again: Function that prepares the input again with a smaller budget.
        restorers: What restores the response, the latest last. None if nothing does.
    """

    data: ModelInputData
    again: Callable[[], Awaitable[ModelInputData]]
    restorers: Sequence[Restorer | None] = ()

    def is_for(self, instructions: str | None, given: object) -> bool:
        """Return whether a model call sends this input, which is not the case in a nested agent without a filter."""
        known = set(map(id, self.data.input))  # the SDK removes duplicate items
        return self.data.instructions == instructions and isinstance(given, list) and known >= set(map(id, given))


_LATEST: Final[ContextVar[PreparedInput | None]] = ContextVar("ctxguard_latest_model_input", default=None)


def remember(sent: PreparedInput) -> None:
    """Store the prepared input for the next model call in this task."""
    _LATEST.set(sent)


def prepared_for(instructions: str | None, given: object) -> PreparedInput | None:
    """Return the prepared input that a model call sends; None if the input of the call was not prepared."""
    sent = _LATEST.get()
    return None if sent is None or not sent.is_for(instructions, given) else sent


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


def wrapped(model: Wrapped, wrap: Callable[[Model], Model], name: str) -> Wrapped:
    """Return a wrapped model, or a provider of wrapped models.

    Args:
        model: The model, or the provider.
        wrap: Function that wraps a model.
        name: The name of the function that the application called, for the error.

    Raises:
        ConfigError: If `model` is neither a model nor a provider.
    """
    if isinstance(model, ModelProvider):
        return cast("Wrapped", _Provider(model, wrap))
    if isinstance(model, Model):
        return cast("Wrapped", wrap(model))
    raise ConfigError(
        f"expected a Model or a ModelProvider, got {type(model).__name__}; for the name of a model, write "
        f"RunConfig(model_provider={name}(MultiProvider()))",
        setting="model",
    )


class _Provider(ModelProvider):
    """A provider whose models are wrapped."""

    def __init__(self, provider: ModelProvider, wrap: Callable[[Model], Model]) -> None:
        self._provider = provider
        self._wrap = wrap

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - the provider's own
        return getattr(self._provider, name)

    def get_model(self, model_name: str | None) -> Model:
        """Return the model with the given name."""
        return self._wrap(self._provider.get_model(model_name))

    async def aclose(self) -> None:
        """Close the provider."""
        await self._provider.aclose()


class WrappedModel(Model):
    """A model around another one, to which everything is delegated except responses."""

    def __init__(self, model: Model) -> None:
        self._model = model

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - the model's own
        return getattr(self._model, name)

    async def close(self) -> None:
        """Close the model."""
        await self._model.close()

    def get_retry_advice(self, request: Any) -> Any:  # noqa: ANN401 - the SDK's signature, newer than the oldest version
        """Return the advice of the wrapped model."""
        return self._model.get_retry_advice(request)


class _Retrying(WrappedModel):
    """A model that retries a call once if its input was too long."""

    async def get_response(
        self,
        system_instructions: str | None,
        input: Any,  # noqa: A002, ANN401 - the SDK's signature
        *args: Any,  # noqa: ANN401
        **settings: Any,  # noqa: ANN401
    ) -> Any:  # noqa: ANN401
        """Return the model's response."""
        try:
            return await self._model.get_response(system_instructions, input, *args, **settings)
        except Exception as error:
            smaller = await _smaller(error, system_instructions, input)
            if smaller is None:
                raise
        return await self._model.get_response(smaller.instructions, smaller.input, *args, **settings)

    async def stream_response(
        self,
        system_instructions: str | None,
        input: Any,  # noqa: A002, ANN401 - the SDK's signature
        *args: Any,  # noqa: ANN401
        **settings: Any,  # noqa: ANN401
    ) -> AsyncIterator[Any]:
        """Yield the model's events. The call is not retried once an event has arrived."""
        events = self._model.stream_response(system_instructions, input, *args, **settings)
        has_begun = False
        try:
            async with aclosing(cast("Any", events)) as running:
                async for event in running:
                    has_begun = True
                    yield event
        except Exception as error:
            smaller = None if has_begun else await _smaller(error, system_instructions, input)
            if smaller is None:
                raise
        else:
            return
        events = self._model.stream_response(smaller.instructions, smaller.input, *args, **settings)
        async with aclosing(cast("Any", events)) as running:
            async for event in running:
                yield event


async def _smaller(error: Exception, instructions: str | None, given: object) -> ModelInputData | None:
    """Return a smaller input if an error says that the given one was too long, else None."""
    sent = prepared_for(instructions, given)
    if sent is None or not _says_too_long(error):
        return None
    try:
        return await sent.again()
    except BudgetExceededError:  # the provider's error is more informative
        return None


def _says_too_long(error: Exception) -> bool:
    text = f"{getattr(error, 'code', '')} {error}".encode()
    status = getattr(error, "status_code", None)
    return smaller_budget(status if isinstance(status, int) else 400, text, tokens=1, budget=1) is not None
