"""A model that filters its own input, for agents that run in a durable engine: Temporal, or DBOS.

These engines run the code of a workflow again after a crash, and record the results of its steps. The filter of a
`RunConfig` is code of the workflow. A model is called in a step, so a filter in the model is run there.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from agents import Agent, ItemHelpers, Model
from agents.run import CallModelData, ModelInputData

from ctxguard_openai_agents.filters import Filter
from ctxguard_openai_agents.models import ModelCall, Wrapped, WrappedModel, wrapped


def with_input_filter(model: Wrapped, input_filter: Filter) -> Wrapped:
    """Return a model, or a provider of models, that filters each input right before it is sent.

    Use it in place of `RunConfig(call_model_input_filter=…)` in a durable engine, so that stores and vaults are used in
    the step that calls the model, and not in code of the workflow. The run's context is not known there: functions of
    it, for a vault or a stabilizer, get a `RunContextWrapper` of None.

    Args:
        model: A model for `Agent(model=…)`, or a provider such as `MultiProvider()`. Wrap it by `with_overflow_retry`
            and `with_restored_values` first.
        input_filter: The filter from `call_model_input_filter`.

    Raises:
        ConfigError: If `model` is neither a model nor a provider.
    """
    return wrapped(model, lambda one: _Filtering(one, input_filter), "with_input_filter")


class _Filtering(WrappedModel):
    """A model whose input is filtered."""

    def __init__(self, model: Model, input_filter: Filter) -> None:
        super().__init__(model)
        self._filter = input_filter

    async def respond(self, call: ModelCall) -> Any:  # noqa: ANN401 - the SDK's own
        """Return the model's response to the filtered input."""
        return await (await self._filtered(call)).response(self._model)

    async def stream(self, call: ModelCall) -> AsyncIterator[Any]:
        """Yield the model's events for the filtered input."""
        async with (await self._filtered(call)).events(self._model) as events:
            async for event in events:
                yield event

    async def _filtered(self, call: ModelCall) -> ModelCall:
        agent: Agent[Any] = Agent(
            name="agent",
            model=self._model,
            tools=call["tools"] or [],
            handoffs=call["handoffs"] or [],
            output_type=call["output_schema"],
        )
        data = ModelInputData(input=ItemHelpers.input_to_new_input_list(call.input), instructions=call.instructions)
        return call.sending(await self._filter(CallModelData(model_data=data, agent=agent, context=None)))
