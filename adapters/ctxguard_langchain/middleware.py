"""The guard as middleware of `create_agent`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from ctxguard.settings import install_command

try:
    from langchain.agents.middleware import AgentMiddleware, ModelRequest
    from langchain.agents.structured_output import AutoStrategy, ProviderStrategy, ToolStrategy
except ImportError as error:
    raise ImportError(f"ContextGuardMiddleware needs langchain: {install_command('langchain')}") from error
from langchain_core import exceptions
from langchain_core.messages import BaseMessage, SystemMessage, ToolMessage

from ctxguard.adapting.adapter import (
    astabilize_native,
    astabilize_request,
    require_stabilizer,
    stabilize_native,
    stabilize_request,
    tighter_stabilizer,
)
from ctxguard.adapting.request import Request, require_clean_schemas
from ctxguard.adapting.tools import require_vault, tool_exchange, tool_output_stabilizer, unmask_arguments
from ctxguard.stages import BoundToolOutput
from ctxguard_langchain.hooks import replacing
from ctxguard_langchain.models import model_window, tool_schemas
from ctxguard_langchain.runnables import ADAPTER

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from langchain.agents.middleware.types import ModelResponse
    from langgraph.prebuilt.tool_node import ToolCallRequest
    from langgraph.types import Command

    from ctxguard.pii import SessionVault
    from ctxguard.report import Report
    from ctxguard.stabilizer import Stabilized, Stabilizer

    VaultChoice = SessionVault | Callable[[str | None], SessionVault]
    _Middleware = AgentMiddleware[Any, Any, Any]
else:  # in langchain 1.0 it takes two parameters
    _Middleware = AgentMiddleware

__all__ = ["FULL_OUTPUT", "ContextGuardMiddleware"]

_OVERFLOWS: tuple[type[Exception], ...] = tuple(filter(None, [getattr(exceptions, "ContextOverflowError", None)]))
"""What packages of providers raise where a prompt exceeds the model's window; old versions of the core have none."""
FULL_OUTPUT = "ctxguard_full_output"
"""Where the whole content of a bounded tool message stands, in its `response_metadata`; never sent to a model."""


class ContextGuardMiddleware(_Middleware):
    """Stabilize each model call of an agent: `create_agent(model, tools, middleware=[ContextGuardMiddleware(…)])`.

    Request-only: the model sees the stabilized messages, the graph's state keeps the originals. The system message and
    the descriptions of tools are masked too; names and parameters of tools and the schema of structured output cannot
    be changed, so a rule that matches in them ends the call with `CheckFailedError`. All of these are counted.

    A tool output above the most that the chain's `BoundToolOutput` would show of it is masked and bounded as soon as
    the tool returns, so that every later call sees the same text; its whole content stays in the message's
    `response_metadata`. Messages inside a tool's `Command` are bounded with the model call.

    Args:
        stabilizer: does the work.
        persist: rewrite the messages of the graph's state before each model call, for good. What was cut is gone from
            the state, whole tool outputs too; a `store` in the chain's stages keeps those.
        window: the model's context window in tokens; None means that of the model's profile. Where the budget is a
            share of the window, tool outputs are bounded early only if it is given here.
        keep_thinking: keep signed thinking from before a cut, see `DropStaleThinking`.
        on_report: called with the report of each model call.
        vault: gives the values back in the arguments of a tool, right before it runs; the state keeps the placeholders
            that the model wrote. The chain's `MaskPII` has to mask into the same vault. A function gives the vault of
            a session by its thread id (None without one).

    Raises:
        ConfigError: `stabilizer` is none, or `vault` is neither a session's nor a function.
    """

    def __new__(cls, *_: object, persist: bool = False, **__: object) -> Self:
        """Choose the class: a `before_model` hook is a step of the graph, so only what needs it has one."""
        chosen: type[Any] = _PersistingMiddleware if persist and cls is ContextGuardMiddleware else cls
        made: Self = super().__new__(chosen)
        return made

    def __init__(
        self,
        stabilizer: Stabilizer,
        *,
        persist: bool = False,
        window: int | None = None,
        keep_thinking: bool = False,
        on_report: Callable[[Report], None] | None = None,
        vault: VaultChoice | None = None,
    ) -> None:
        super().__init__()
        self.tools = []
        self.stabilizer = require_stabilizer(stabilizer)
        self.persist = persist
        self.window = window
        self.keep_thinking = keep_thinking
        self.on_report = on_report
        self.vault = vault if vault is None or _is_function(vault) else require_vault(vault)
        self._outputs = tool_output_stabilizer(stabilizer)

    @property
    def name(self) -> str:
        """What graphs call it."""
        return "ContextGuardMiddleware"

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ModelResponse[Any]:
        """Send the model the stabilized messages; once more with a tighter budget where it says that they overflow.

        Raises:
            BudgetExceededError: what must stay does not fit.
        """
        try:
            return handler(self._stabilized(self.stabilizer, request))
        except _OVERFLOWS:
            tighter = tighter_stabilizer(self.stabilizer, self._window(request))
            return handler(self._stabilized(tighter, request))

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]
    ) -> ModelResponse[Any]:
        """Do what `wrap_model_call` does in async runs."""
        try:
            return await handler(await self._astabilized(self.stabilizer, request))
        except _OVERFLOWS:
            tighter = tighter_stabilizer(self.stabilizer, self._window(request))
            return await handler(await self._astabilized(tighter, request))

    def _stabilized(self, stabilizer: Stabilizer, request: ModelRequest[Any]) -> ModelRequest[Any]:
        sent, report = stabilize_request(
            stabilizer, ADAPTER, _sent(request), window=self._window(request), keep_thinking=self.keep_thinking
        )
        return self._overridden(request, sent, report)

    async def _astabilized(self, stabilizer: Stabilizer, request: ModelRequest[Any]) -> ModelRequest[Any]:
        sent, report = await astabilize_request(
            stabilizer, ADAPTER, _sent(request), window=self._window(request), keep_thinking=self.keep_thinking
        )
        return self._overridden(request, sent, report)

    def wrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], ToolMessage | Command[Any]]
    ) -> ToolMessage | Command[Any]:
        """Bound the output of a tool when it is first seen."""
        output = handler(self._unmasked(request))
        if not isinstance(output, ToolMessage) or not self._bounds_outputs():
            return output
        result = self._outputs.stabilize(
            tool_exchange(ADAPTER.read([output])[0], request.tool_call["name"]), window=self.window
        )
        return self._bounded(output, result)

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[ToolMessage | Command[Any]]]
    ) -> ToolMessage | Command[Any]:
        """Do what `wrap_tool_call` does in async runs."""
        output = await handler(self._unmasked(request))
        if not isinstance(output, ToolMessage) or not self._bounds_outputs():
            return output
        result = await self._outputs.astabilize(
            tool_exchange(ADAPTER.read([output])[0], request.tool_call["name"]), window=self.window
        )
        return self._bounded(output, result)

    def _unmasked(self, request: ToolCallRequest) -> ToolCallRequest:
        if self.vault is None:
            return request
        vault = require_vault(self.vault(_thread(request)) if callable(self.vault) else self.vault)
        call = request.tool_call
        return request.override(tool_call={**call, "args": unmask_arguments(call["args"], vault)})

    def _window(self, request: ModelRequest[Any]) -> int | None:
        if self.window is not None or isinstance(self.stabilizer.budget, int):
            return self.window
        return model_window(request.model)

    def _bounds_outputs(self) -> bool:
        known = isinstance(self.stabilizer.budget, int) or self.window is not None
        return known and any(isinstance(stage, BoundToolOutput) for stage in self._outputs.stages)

    def _overridden(
        self, request: ModelRequest[Any], sent: Request[Sequence[BaseMessage]], report: Report
    ) -> ModelRequest[Any]:
        if self.on_report is not None:
            self.on_report(report)
        require_clean_schemas(report)
        prompt = _prompt(request)
        rest: list[Any] = list(sent.messages)
        if prompt:
            prompt = [rest.pop(0)] if rest and isinstance(rest[0], SystemMessage) else []
        return request.override(messages=rest, **_prompt_fields(request, prompt), **_tool_fields(request, sent.tools))

    def _bounded(self, output: ToolMessage, result: Stabilized) -> ToolMessage:
        """Return a tool message as the stages made it, if they bounded it."""
        decision = result.report.decisions[-1]
        if not any(step.action == "bounded" for step in decision.steps):
            return output
        (bounded,) = ADAPTER.write([output], result.artifacts[-1:])
        kept = {} if self.persist else {FULL_OUTPUT: output.content}
        metadata = {**output.response_metadata, **kept}
        return output.model_copy(update={"content": bounded.content, "response_metadata": metadata})


class _PersistingMiddleware(ContextGuardMiddleware):
    """Rewrite the state too."""

    def before_model(self, state: Mapping[str, Any], runtime: object) -> dict[str, Any]:
        """Put the stabilized messages in the place of the state's."""
        del runtime
        messages, _ = stabilize_native(
            self.stabilizer, ADAPTER, state["messages"], window=self.window, keep_thinking=self.keep_thinking
        )
        return replacing(state["messages"], list(messages))

    async def abefore_model(self, state: Mapping[str, Any], runtime: object) -> dict[str, Any]:
        """Do what `before_model` does in async runs."""
        del runtime
        messages, _ = await astabilize_native(
            self.stabilizer, ADAPTER, state["messages"], window=self.window, keep_thinking=self.keep_thinking
        )
        return replacing(state["messages"], list(messages))


def _is_function(vault: object) -> bool:
    return callable(vault) and not isinstance(vault, type)


def _sent(request: ModelRequest[Any]) -> Request[Sequence[BaseMessage]]:
    """Return what the model would be sent."""
    messages = [*_prompt(request), *request.messages]
    return Request(messages, tools=tool_schemas(request.tools), schemas=_output_schemas(request))


def _prompt(request: ModelRequest[Any]) -> list[BaseMessage]:
    """Return the system message of a request, if it has one; langchain 1.0 holds it as a text."""
    given = request.system_message if hasattr(request, "system_message") else request.system_prompt
    if not given:
        return []
    return [SystemMessage(given) if isinstance(given, str) else given]


def _prompt_fields(request: ModelRequest[Any], prompt: Sequence[BaseMessage]) -> dict[str, Any]:
    message = prompt[0] if prompt else None
    if hasattr(request, "system_message"):
        return {"system_message": message}
    return {"system_prompt": message and message.content}


def _tool_fields(request: ModelRequest[Any], schemas: Sequence[Mapping[str, object]]) -> dict[str, Any]:
    """Return the tools whose descriptions were masked as schemas; the graph finds the tool itself by its name."""
    given = tool_schemas(request.tools)
    if list(schemas) == given:
        return {}
    pairs = zip(request.tools, given, schemas, strict=True)
    return {"tools": [tool if was == now else now for tool, was, now in pairs]}


def _output_schemas(request: ModelRequest[Any]) -> list[Mapping[str, object]]:
    """Return the schemas of structured output that are sent along."""
    form = request.response_format
    if form is None:
        return []
    schema = form.schema if isinstance(form, (AutoStrategy, ProviderStrategy, ToolStrategy)) else form
    return [
        {"name": spec.name, "description": spec.description, "parameters": spec.json_schema}
        for spec in ToolStrategy(schema).schema_specs
    ]


def _thread(request: ToolCallRequest) -> str | None:
    config = getattr(request.runtime, "config", None) or {}
    thread = (config.get("configurable") or {}).get("thread_id")
    return None if thread is None else str(thread)
