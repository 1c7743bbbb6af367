"""Models around other models, and providers of them, for what has to happen where the SDK calls a model."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar, cast

from agents import Model, ModelProvider
from agents.run import ModelInputData

from ctxguard.errors import ConfigError

Wrapped = TypeVar("Wrapped", bound=Model | ModelProvider)

_NAMES: Final = ("model_settings", "tools", "output_schema", "handoffs")
"""The arguments of a model call after its input, in order."""


@dataclass(frozen=True, slots=True)
class ModelCall:
    """One call of a model.

    Attributes:
        instructions: The system prompt.
        input: The input: a list of items, or a text.
        args: The arguments after the input.
        settings: The arguments that are passed by name.
    """

    instructions: str | None
    input: Any
    args: tuple[Any, ...]
    settings: Mapping[str, Any]

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 - the SDK's own
        """Return an argument after the input, or None if it is not passed."""
        return {**dict(zip(_NAMES, self.args, strict=False)), **self.settings}.get(name)

    def sending(self, data: ModelInputData) -> ModelCall:
        """Return the same call with another input."""
        return replace(self, instructions=data.instructions, input=data.input)

    async def response(self, model: Model) -> Any:  # noqa: ANN401 - the SDK's own
        """Return the response of a model."""
        return await model.get_response(self.instructions, self.input, *self.args, **self.settings)

    def events(self, model: Model) -> aclosing[Any]:
        """Return a context manager with the streamed events of a model, which closes the stream when it is left."""
        return aclosing(cast("Any", model.stream_response(self.instructions, self.input, *self.args, **self.settings)))


class WrappedModel(Model):
    """A model around another one, to which everything is delegated except responses."""

    def __init__(self, model: Model) -> None:
        self._model = model

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - the model's own
        return getattr(self._model, name)

    @abstractmethod
    async def respond(self, call: ModelCall) -> Any:  # noqa: ANN401 - the SDK's own
        """Return the response to a call."""

    @abstractmethod
    def stream(self, call: ModelCall) -> AsyncIterator[Any]:
        """Yield the events of the response to a call."""

    async def get_response(
        self,
        system_instructions: str | None,
        input: Any,  # noqa: A002, ANN401 - the SDK's signature
        *args: Any,  # noqa: ANN401
        **settings: Any,  # noqa: ANN401
    ) -> Any:  # noqa: ANN401
        """Return the model's response."""
        return await self.respond(ModelCall(system_instructions, input, args, settings))

    def stream_response(
        self,
        system_instructions: str | None,
        input: Any,  # noqa: A002, ANN401 - the SDK's signature
        *args: Any,  # noqa: ANN401
        **settings: Any,  # noqa: ANN401
    ) -> AsyncIterator[Any]:
        """Yield the model's events."""
        return self.stream(ModelCall(system_instructions, input, args, settings))

    async def close(self) -> None:
        """Close the model."""
        await self._model.close()

    def get_retry_advice(self, request: Any) -> Any:  # noqa: ANN401 - the SDK's signature, newer than the oldest version
        """Return the advice of the wrapped model."""
        return self._model.get_retry_advice(request)


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
