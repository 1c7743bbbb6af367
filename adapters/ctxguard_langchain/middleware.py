"""The guard as middleware of `create_agent`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self, cast

from ctxguard.settings import NotAHook, install_command, whole_number

try:
    from langchain.agents.middleware import AgentMiddleware, ModelRequest
    from langchain.agents.structured_output import AutoStrategy, ProviderStrategy, ToolStrategy
except ImportError as error:
    raise ImportError(f"ContextGuardMiddleware needs langchain: {install_command('langchain')}") from error
from langchain_core import exceptions
from langchain_core.messages import BaseMessage, SystemMessage, ToolMessage
from langgraph.config import get_config
from langgraph.runtime import get_runtime

from ctxguard.adapting.adapter import request_flow
from ctxguard.adapting.per_run import ForRun, OnReport, PerRun, tell, valid_listener
from ctxguard.adapting.request import Request, plain_settings, require_clean_schemas
from ctxguard.adapting.tools import tool_exchange, tool_output_stabilizer, unmask_arguments
from ctxguard.draft import Ask, adrive, drive
from ctxguard_langchain.hooks import replacing
from ctxguard_langchain.models import model_window, tool_schemas
from ctxguard_langchain.order import OrderWatch
from ctxguard_langchain.runnables import ADAPTER

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence

    from langchain.agents.middleware.types import ModelResponse
    from langgraph.prebuilt.tool_node import ToolCallRequest
    from langgraph.runtime import Runtime
    from langgraph.types import Command

    from ctxguard.artifacts import Artifact
    from ctxguard.pii import SessionVault
    from ctxguard.report import Report
    from ctxguard.stabilizer import Stabilized, Stabilizer

    _Middleware = AgentMiddleware[Any, Any, Any]
else:  # in langchain 1.0 it takes two parameters
    _Middleware = AgentMiddleware

_OVERFLOWS: tuple[type[Exception], ...] = tuple(filter(None, [getattr(exceptions, "ContextOverflowError", None)]))
"""What packages of providers raise where a prompt exceeds the model's window; old versions of the core have none."""
FULL_OUTPUT = "ctxguard_full_output"
"""Where the whole content of a bounded tool message stands, in its `response_metadata`; never sent to a model."""


class ContextGuardMiddleware(_Middleware, NotAHook):
    """Stabilize each model call of an agent: `create_agent(model, tools, middleware=[ContextGuardMiddleware(…)])`.

    Request-only: the model sees the stabilized messages, the graph's state keeps the originals. The system message and
    the descriptions of tools are masked too; names and parameters of tools and the schema of structured output cannot
    be changed, so a rule that matches in them ends the call with `CheckFailedError`. All of these are counted.

    It sees what the middleware before it in the list made of a request, and nothing of what middleware behind it adds:
    put it last. Where LangChain shows what is behind it, it warns by name.

    Tool outputs are bounded in what the model sees; with `max_result_tokens`, large ones are bounded in the state, too.

    Args:
        stabilizer: does the work; or a function from the run's `Runtime` to the stabilizer of that run.
        persist: rewrite the messages of the graph's state before each model call, for good. What was cut is gone from
            the state, whole tool outputs too; a `store` in the chain's stages keeps those.
        window: the model's context window in tokens; None means that of the model's profile. Where the budget is a
            share of the window, it says of what.
        keep_thinking: keep signed thinking from before a cut, see `DropStaleThinking`.
        max_result_tokens: tokens above which a tool output is masked and bounded as the tool returns, in the state, so
            that a checkpointer stores less; its whole content, unmasked, stays in the message's `response_metadata`
            under `ctxguard_full_output` unless `persist` is set. None means never. Messages inside a tool's `Command`
            are left alone.
        on_report: called with the report of each model call, and of each tool output that is bounded when the tool
            returns (`report.tool` is the name of the tool, then); `report.session` is the thread id.
        vault: where placeholders live: the chain's `MaskPII` masks into it, and a tool gets the values back in its
            arguments right before it runs. The state keeps the placeholders that the model wrote. Either the vault of
            a session, or a function from the run's `Runtime` to the vault of that run.

    Raises:
        ConfigError: `stabilizer` or `vault` is neither such an object nor a function, `on_report` is not a function, or
            `max_result_tokens` is not a number of tokens.
    """

    def __new__(cls, *_: object, persist: bool = False, **__: object) -> Self:
        """Choose the class: a `before_model` hook is a step of the graph, so only what needs it has one."""
        chosen: type[Any] = _PersistingMiddleware if persist and cls is ContextGuardMiddleware else cls
        made: Self = super().__new__(chosen)
        return made

    def __init__(
        self,
        stabilizer: Stabilizer | Callable[[Runtime[Any]], Stabilizer],
        *,
        persist: bool = False,
        window: int | None = None,
        keep_thinking: bool = False,
        max_result_tokens: int | None = None,
        on_report: OnReport | None = None,
        vault: SessionVault | Callable[[Runtime[Any]], SessionVault] | None = None,
    ) -> None:
        super().__init__()
        self.tools = []
        self.per_run: PerRun[Runtime[Any]] = PerRun(stabilizer, vault)
        self.persist = persist
        self.window = window
        self.keep_thinking = keep_thinking
        if max_result_tokens is not None:
            whole_number(max_result_tokens, "max_result_tokens", unit="tokens", least=1)
        self.max_result_tokens = max_result_tokens
        self.on_report = valid_listener(on_report)
        self._order = OrderWatch()

    @property
    def name(self) -> str:
        """What graphs call it."""
        return "ContextGuardMiddleware"

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ModelResponse[Any]:
        """Send the model the stabilized messages; once more, and fewer, where it says that they overflow.

        The smaller budget then holds for all that follows in the conversation.

        Raises:
            BudgetExceededError: what must stay does not fit.
        """
        self._order.look(handler, self.name)
        stabilizer = self.per_run.of(request.runtime).stabilizer
        try:
            return handler(drive(self._stabilized(stabilizer, request)))
        except _OVERFLOWS:
            return handler(drive(self._stabilized(stabilizer, request, overflowed=True)))

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]
    ) -> ModelResponse[Any]:
        """Do what `wrap_model_call` does in async runs."""
        self._order.look(handler, self.name)
        stabilizer = self.per_run.of(request.runtime).stabilizer
        try:
            return await handler(await adrive(self._stabilized(stabilizer, request)))
        except _OVERFLOWS:
            return await handler(await adrive(self._stabilized(stabilizer, request, overflowed=True)))

    def _stabilized(
        self, stabilizer: Stabilizer, request: ModelRequest[Any], *, overflowed: bool = False
    ) -> Generator[Ask, object, ModelRequest[Any]]:
        sent, report = yield from request_flow(
            stabilizer,
            ADAPTER,
            _sent(request),
            window=self._window(stabilizer, request),
            keep_thinking=self.keep_thinking,
            overflowed=overflowed,
        )
        return self._overridden(request, sent, report)

    def wrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], ToolMessage | Command[Any]]
    ) -> ToolMessage | Command[Any]:
        """Give a tool the values that its arguments' placeholders stand for; bound its output where that is wanted."""
        run = self._run_of_tool()
        output = handler(_unmasked(request, run))
        if not isinstance(output, ToolMessage) or (alone := self._for_large(output, run.stabilizer)) is None:
            return output
        return self._bounded(output, alone.stabilize(_exchange(output, request)), request.tool_call["name"])

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[ToolMessage | Command[Any]]]
    ) -> ToolMessage | Command[Any]:
        """Do what `wrap_tool_call` does in async runs."""
        run = self._run_of_tool()
        output = await handler(_unmasked(request, run))
        if not isinstance(output, ToolMessage) or (alone := self._for_large(output, run.stabilizer)) is None:
            return output
        return self._bounded(output, await alone.astabilize(_exchange(output, request)), request.tool_call["name"])

    def _run_of_tool(self) -> ForRun:
        """Return what the run uses; a tool's own runtime is of another type than the run's, which is asked for."""
        return self.per_run.of(cast("Any", get_runtime() if self.per_run.depends_on_run else None))

    def _window(self, stabilizer: Stabilizer, request: ModelRequest[Any]) -> int | None:
        if self.window is not None or isinstance(stabilizer.budget, int):
            return self.window
        return model_window(request.model)

    def _for_large(self, output: ToolMessage, stabilizer: Stabilizer) -> Stabilizer | None:
        """Return what bounds a tool's output that is larger than the state is to hold; None where it is not."""
        limit = self.max_result_tokens
        if limit is None or stabilizer.mode == "observe":
            return None
        (artifact,) = ADAPTER.read([output])
        if stabilizer.counter.artifact(artifact) <= limit:
            return None
        return tool_output_stabilizer(stabilizer, max_tokens=limit)

    def _overridden(
        self, request: ModelRequest[Any], sent: Request[Sequence[BaseMessage]], report: Report
    ) -> ModelRequest[Any]:
        tell(self.on_report, report, _thread())
        require_clean_schemas(report)
        prompt = _prompt(request)
        rest: list[Any] = list(sent.messages)
        if prompt:
            prompt = [rest.pop(0)] if rest and isinstance(rest[0], SystemMessage) else []
        return request.override(messages=rest, **_prompt_fields(request, prompt), **_tool_fields(request, sent.tools))

    def _bounded(self, output: ToolMessage, result: Stabilized, tool: str) -> ToolMessage:
        """Return a tool message as the stages made it, if they bounded it."""
        decision = result.report.decisions[-1]
        if not any(step.action == "bounded" for step in decision.steps):
            return output
        tell(self.on_report, result.report, _thread(), tool=tool)
        (bounded,) = ADAPTER.write([output], result.artifacts[-1:])
        kept = {} if self.persist else {FULL_OUTPUT: output.content}
        metadata = {**output.response_metadata, **kept}
        return output.model_copy(update={"content": bounded.content, "response_metadata": metadata})


class _PersistingMiddleware(ContextGuardMiddleware):
    """Rewrite the state too."""

    def before_model(self, state: Mapping[str, Any], runtime: Runtime[Any]) -> dict[str, Any]:
        """Put the stabilized messages in the place of the state's."""
        return drive(self._replacing(state, runtime))

    async def abefore_model(self, state: Mapping[str, Any], runtime: Runtime[Any]) -> dict[str, Any]:
        """Do what `before_model` does in async runs."""
        return await adrive(self._replacing(state, runtime))

    def _replacing(self, state: Mapping[str, Any], runtime: Runtime[Any]) -> Generator[Ask, object, dict[str, Any]]:
        stabilizer, request = self.per_run.of(runtime).stabilizer, Request(state["messages"])
        done, _ = yield from request_flow(
            stabilizer, ADAPTER, request, window=self.window, keep_thinking=self.keep_thinking, is_editable=False
        )
        return replacing(request.messages, list(done.messages))


def _unmasked(request: ToolCallRequest, run: ForRun) -> ToolCallRequest:
    if run.vault is None:
        return request
    call = request.tool_call
    return request.override(tool_call={**call, "args": unmask_arguments(call["args"], run.vault)})


def _exchange(output: ToolMessage, request: ToolCallRequest) -> list[Artifact]:
    return tool_exchange(ADAPTER.read([output])[0], request.tool_call["name"])


def _sent(request: ModelRequest[Any]) -> Request[Sequence[BaseMessage]]:
    """Return what the model would be sent."""
    messages = [*_prompt(request), *request.messages]
    settings = plain_settings(getattr(request, "model_settings", None))
    return Request(messages, tools=tool_schemas(request.tools), schemas=_output_schemas(request), settings=settings)


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


def _thread() -> str | None:
    """Return the id of the thread that the graph runs for."""
    try:
        configurable = get_config().get("configurable") or {}
    except RuntimeError:  # called outside of a graph
        return None
    return configurable.get("thread_id")
