"""A model that guards each request as it is sent."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, TypeVar

from pydantic_ai import RunContext
from pydantic_ai._run_context import get_current_run_context
from pydantic_ai.exceptions import ModelContextWindowExceededError
from pydantic_ai.messages import ModelResponse
from pydantic_ai.models import Model, ModelRequestContext, ModelRequestParameters, StreamedResponse
from pydantic_ai.models.wrapper import WrapperModel

from ctxguard_pydantic_ai.guard import ContextGuard
from ctxguard_pydantic_ai.restoring import RestoringModel

Answer = TypeVar("Answer")


class GuardedModel(WrapperModel):
    """A model whose requests are stabilized as they are sent, and whose responses have masked values restored.

    Args:
        wrapped: The model.
        guard: Stabilizes the requests. It is not changed, because runs may share it.
    """

    def __init__(self, wrapped: Model, guard: ContextGuard) -> None:
        super().__init__(wrapped)
        self._guard = guard

    async def request(self, messages: Any, settings: Any, parameters: ModelRequestParameters) -> ModelResponse:  # noqa: ANN401 - the framework's signature, here and below
        """Return the response to a stabilized request, with values restored."""
        return await self._sent(lambda model, *request: model.request(*request), None, messages, settings, parameters)

    @asynccontextmanager
    async def request_stream(
        self,
        messages: Any,  # noqa: ANN401
        settings: Any,  # noqa: ANN401
        parameters: ModelRequestParameters,
        run_context: Any = None,  # noqa: ANN401
    ) -> AsyncGenerator[StreamedResponse]:
        """Yield the streamed response to a stabilized request, with values restored."""
        async with AsyncExitStack() as stack:

            def open_stream(model: Model, messages: Any, settings: Any, parameters: Any) -> Awaitable[StreamedResponse]:  # noqa: ANN401
                return stack.enter_async_context(model.request_stream(messages, settings, parameters, run_context))

            yield await self._sent(open_stream, run_context, messages, settings, parameters)

    async def count_tokens(self, messages: Any, settings: Any, parameters: ModelRequestParameters) -> Any:  # noqa: ANN401
        """Return the model's own count of a stabilized request."""
        return await self._sent(
            lambda model, *request: model.count_tokens(*request), None, messages, settings, parameters
        )

    async def _sent(
        self,
        send: Callable[..., Awaitable[Answer]],
        ctx: RunContext[Any] | None,
        messages: Any,  # noqa: ANN401
        settings: Any,  # noqa: ANN401
        parameters: ModelRequestParameters,
    ) -> Answer:
        """Send a stabilized request, and once more with a smaller budget if it was too long."""
        context = ctx or get_current_run_context()
        recalled = await self._guard.with_recalled(context, messages)
        request = ModelRequestContext(
            model=self.wrapped, messages=recalled, model_settings=settings, model_request_parameters=parameters
        )

        async def attempt(*, overflowed: bool) -> Answer:
            sent, restorer = await self._guard.prepared(context, request, overflowed=overflowed)
            model = self.wrapped if restorer is None else RestoringModel(self.wrapped, restorer)
            return await send(model, sent.messages, sent.model_settings, sent.model_request_parameters)

        try:
            return await attempt(overflowed=False)
        except ModelContextWindowExceededError:
            return await attempt(overflowed=True)
