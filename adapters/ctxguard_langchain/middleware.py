"""The guard as middleware of `create_agent`."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, Self, cast

from ctxguard.settings import extra

with extra("langchain", "ContextGuardMiddleware needs langchain"):
    from langchain.agents.middleware import AgentMiddleware, ModelRequest
    from langchain.agents.structured_output import AutoStrategy, ProviderStrategy, ToolStrategy
from langchain_core import exceptions
from langchain_core.messages import BaseMessage, SystemMessage, ToolMessage
from langgraph.config import get_config
from langgraph.runtime import get_runtime

from ctxguard.adapting.adapter import request_flow
from ctxguard.adapting.per_run import ForRun, OnReport, PerRun, RunOptions
from ctxguard.adapting.request import Request, plain_settings
from ctxguard.adapting.tools import unmask_arguments
from ctxguard.draft import Ask, asynchronous, synchronous
from ctxguard.errors import ConfigError
from ctxguard_langchain.order import OrderWatch
from ctxguard_langchain.runnables import ADAPTER, model_name, model_window, replacing, tool_schemas

if TYPE_CHECKING:
    from langgraph.prebuilt.tool_node import ToolCallRequest
    from langgraph.runtime import Runtime

    from ctxguard.pii import SessionVault
    from ctxguard.stabilizer import Stabilizer

    _Middleware = AgentMiddleware[Any, Any, Any]
else:  # in langchain 1.0 it takes two parameters
    _Middleware = AgentMiddleware

_OVERFLOWS: tuple[type[Exception], ...] = tuple(filter(None, [getattr(exceptions, "ContextOverflowError", None)]))
"""The error of providers' packages for a prompt that exceeds the model's window; old versions of the core lack it."""
FULL_OUTPUT = "ctxguard_full_output"
"""Key of `response_metadata` for the complete content of a bounded tool message; it is never sent to a model."""


class ContextGuardMiddleware(_Middleware):
    """Stabilize each model call of an agent: `create_agent(model, tools, middleware=[ContextGuardMiddleware(…)])`.

    Request-only: the model sees the stabilized messages, the graph's state keeps the originals. The system message and
    the descriptions of tools are masked too; names and parameters of tools and the schema of structured output cannot
    be changed, so a rule that matches in them ends the call with `CheckFailedError`. All of these are counted.

    It sees the changes of middleware before it in the list, but not of middleware after it: put it last. If LangChain
    reveals middleware after it, it warns by name.

    Tool outputs are bounded in what the model sees; with `max_result_tokens`, large ones are bounded in the state, too.

    Args:
        stabilizer: the stabilizer; or a function from the run's `Runtime` to the stabilizer of that run.
        persist: permanently replace the messages of the graph's state before each model call. The state loses evicted
            messages and complete tool outputs; a `store` in the chain's stages keeps the outputs.
        window: the model's context window in tokens, for budgets that are a share of it; None means that of the
            model's profile.
        keep_thinking: keep signed thinking from before a cut, see `DropStaleThinking`.
        max_result_tokens: tokens above which a tool output is masked and bounded as the tool returns, in the state, so
            that a checkpointer stores less; its whole content, unmasked, stays in the message's `response_metadata`
            under `ctxguard_full_output` unless `persist` is set. None means never. Messages inside a tool's `Command`
            are left alone.
        on_report: called with the report of each model call, and of each tool output that is bounded when the tool
            returns (`report.tool` is the name of the tool, then); `report.session` is the thread id.
        vault: stores the values behind placeholders: the chain's `MaskPII` masks into it, and the arguments of a tool
            are unmasked right before it runs. The state keeps the placeholders that the model wrote. Either the vault
            of a session, or a function from the run's `Runtime` to the vault of that run.

    Raises:
        ConfigError: `stabilizer` or `vault` is neither such an object nor a function, `on_report` is not a function, or
            `max_result_tokens` is not a number of tokens.
    """

    def __new__(cls, *_: object, persist: bool = False, **__: object) -> Self:
        """Choose the class: a `before_model` hook adds a step to the graph, so only `persist` has one."""
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
        options = RunOptions(
            window=window, keep_thinking=keep_thinking, max_result_tokens=max_result_tokens, on_report=on_report
        )
        self.per_run: PerRun[Runtime[Any]] = PerRun(stabilizer, vault, options)
        self.persist = persist
        self._order = OrderWatch()

    def __call__(self, *_: object, **__: object) -> NoReturn:
        """Say what to write where a step of a chain or a hook is expected.

        Raises:
            ConfigError: Always.
        """
        told = "ContextGuardMiddleware is for create_agent(middleware=[…]); in a chain, write ContextGuard(stabilizer)"
        raise ConfigError(f"{told}, as the hook of a graph pre_model_hook(stabilizer)", setting="middleware")

    @property
    def name(self) -> str:
        """Its name in graphs."""
        return "ContextGuardMiddleware"

    @synchronous
    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], object]
    ) -> Generator[Ask, object, Any]:
        """Send the stabilized messages; if they overflow the model's window, retry once with a smaller budget.

        The smaller budget then applies to the rest of the conversation.

        Raises:
            BudgetExceededError: the mandatory messages exceed the budget.
        """
        self._order.look(handler, self.name)
        run = self.per_run.of(request.runtime)
        try:
            return (yield Ask(handler, ((yield from _stabilized(run, request)),)))
        except _OVERFLOWS:
            return (yield Ask(handler, ((yield from _stabilized(run, request, overflowed=True)),)))

    awrap_model_call = asynchronous(wrap_model_call)  # type: ignore[arg-type]  # the base class says what is awaited
    """Do the same as `wrap_model_call` in async runs."""

    @synchronous
    def wrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], object]
    ) -> Generator[Ask, object, Any]:
        """Unmask the arguments of a tool; bound its output if it exceeds `max_result_tokens`."""
        # a tool's own runtime is of another type than the run's
        run = self.per_run.of(cast("Any", get_runtime() if self.per_run.depends_on_run else None))
        output = yield Ask(handler, (_unmasked(request, run),))
        if not isinstance(output, ToolMessage) or not run.bounds_outputs:
            return output
        artifact = yield from run.bounded(ADAPTER.read([output])[0], request.tool_call["name"], session=_thread())
        if artifact is None:
            return output
        (bounded,) = ADAPTER.write([output], [artifact])
        kept = {} if self.persist else {FULL_OUTPUT: output.content}
        metadata = {**output.response_metadata, **kept}
        return output.model_copy(update={"content": bounded.content, "response_metadata": metadata})

    awrap_tool_call = asynchronous(wrap_tool_call)  # type: ignore[arg-type]  # the same
    """Do the same as `wrap_tool_call` in async runs."""


class _PersistingMiddleware(ContextGuardMiddleware):
    """The middleware that also replaces the messages of the state."""

    @synchronous
    def before_model(self, state: Mapping[str, Any], runtime: Runtime[Any]) -> Generator[Ask, object, dict[str, Any]]:
        """Replace the messages of the state with the stabilized ones."""
        run, request = self.per_run.of(runtime), Request(state["messages"])
        # without a report: the model call that follows sends the same messages, and reports on them
        done, _ = yield from request_flow(
            run.stabilizer,
            ADAPTER,
            request,
            window=run.options.window,
            keep_thinking=run.options.keep_thinking,
            is_editable=False,
        )
        return replacing(request.messages, list(done.messages))

    abefore_model = asynchronous(before_model)  # type: ignore[arg-type]  # the base class takes its own type of state


def _unmasked(request: ToolCallRequest, run: ForRun) -> ToolCallRequest:
    if run.vault is None:
        return request
    call = request.tool_call
    return request.override(tool_call={**call, "args": unmask_arguments(call["args"], run.vault, tool=call["name"])})


def _stabilized(
    run: ForRun, request: ModelRequest[Any], *, overflowed: bool = False
) -> Generator[Ask, object, ModelRequest[Any]]:
    sent = yield from run.flow(
        ADAPTER,
        _sent(request),
        session=_thread(),
        model=model_name(request.model),
        known=model_window(request.model),
        overflowed=overflowed,
    )
    prompt, rest = _prompt(request), list(sent.messages)
    if prompt:
        prompt = [rest.pop(0)] if rest and isinstance(rest[0], SystemMessage) else []
    changes = {**_prompt_fields(request, prompt), **_tool_fields(request, sent.tools)}
    return request.override(messages=cast("Any", rest), **changes)


def _sent(request: ModelRequest[Any]) -> Request[Sequence[BaseMessage]]:
    """Return everything that the model would be sent."""
    messages = [*_prompt(request), *request.messages]
    settings = plain_settings(getattr(request, "model_settings", None))
    return Request(messages, tools=tool_schemas(request.tools), schemas=_output_schemas(request), settings=settings)


def _prompt(request: ModelRequest[Any]) -> list[BaseMessage]:
    """Return the system message of a request, if it has one; in langchain 1.0 it is a text."""
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
    """Return masked tools as schemas; the graph finds the tools themselves by name."""
    given = tool_schemas(request.tools)
    if list(schemas) == given:
        return {}
    pairs = zip(request.tools, given, schemas, strict=True)
    return {"tools": [tool if was == now else now for tool, was, now in pairs]}


def _output_schemas(request: ModelRequest[Any]) -> list[Mapping[str, object]]:
    """Return the schemas of structured output that are sent with the request."""
    form = request.response_format
    if form is None:
        return []
    schema = form.schema if isinstance(form, (AutoStrategy, ProviderStrategy, ToolStrategy)) else form
    return [
        {"name": spec.name, "description": spec.description, "parameters": spec.json_schema}
        for spec in ToolStrategy(schema).schema_specs
    ]


def _thread() -> str | None:
    """Return the id of the graph's current thread."""
    try:
        configurable = get_config().get("configurable") or {}
    except RuntimeError:  # called outside of a graph
        return None
    return configurable.get("thread_id")
