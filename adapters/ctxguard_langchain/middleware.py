"""The guard as middleware for `create_agent`."""

from __future__ import annotations

from abc import ABCMeta
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from ctxguard.settings import extra

with extra("langchain", "ContextGuardMiddleware needs langchain"):
    from langchain.agents.middleware import AgentMiddleware, ModelRequest
    from langchain.agents.structured_output import AutoStrategy, ProviderStrategy, ToolStrategy
from langchain_core import exceptions
from langchain_core.messages import BaseMessage, SystemMessage, ToolMessage
from langgraph.config import get_config
from langgraph.runtime import get_runtime

from ctxguard.adapting.misuse import NotAFunction, takes_stabilizer
from ctxguard.adapting.per_run import ForRun, OnReport, PerRun, RunOptions
from ctxguard.adapting.request import Request, plain_settings
from ctxguard.adapting.restoring import Restorer
from ctxguard.draft import Ask, asynchronous, synchronous
from ctxguard.settings import NotMiddleware
from ctxguard_langchain.models import model_name, model_window, tool_schemas
from ctxguard_langchain.order import OrderWatch
from ctxguard_langchain.restoring import restoring_model
from ctxguard_langchain.runnables import ADAPTER, replacing

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel
    from langgraph.prebuilt.tool_node import ToolCallRequest
    from langgraph.runtime import Runtime

    from ctxguard.pii import SessionVault
    from ctxguard.pii.mask.answers import OnNewValues
    from ctxguard.stabilizer import Stabilizer

    _Middleware = AgentMiddleware[Any, Any, Any]
else:  # in langchain 1.0, the class has two type parameters
    _Middleware = AgentMiddleware

_OVERFLOWS: tuple[type[Exception], ...] = tuple(filter(None, [getattr(exceptions, "ContextOverflowError", None)]))
"""The exception of provider packages for a prompt that exceeds the model's window; none in old versions."""
FULL_OUTPUT = "ctxguard_full_output"
"""Key of `response_metadata` for the complete content of a shortened tool message. It is never sent to a model."""


class _Class(ABCMeta):
    """The type of `ContextGuardMiddleware`, which says what to write if the class is given in place of an instance."""

    wrap_tool_call = NotMiddleware(
        "middleware contains the class ContextGuardMiddleware; write "
        "middleware=[ContextGuardMiddleware(Stabilizer(budget=8_000))]"
    )


class ContextGuardMiddleware(NotAFunction, _Middleware, metaclass=_Class):
    """Stabilizes each model call of an agent: `create_agent(model, tools, middleware=[ContextGuardMiddleware(…)])`.

    Only the request changes: the model sees the stabilized messages, and the state of the graph keeps the originals.
    The system message and the descriptions of tools are masked, too. Names and parameters of tools and the schema of
    structured output cannot be changed, so a rule that matches in them ends the call with `CheckFailedError`. All of
    these are counted.

    The guard sees changes by middleware before it in the list, but not by middleware after it, so put it last. If
    LangChain reveals middleware after the guard, a warning names it.

    Tool outputs are shortened in what the model sees. With `max_result_tokens`, large outputs are shortened in the
    state, too.

    Args:
        stabilizer: The stabilizer, or a function that returns one for the run's `Runtime`.
        persist: Whether to permanently replace the messages in the state before each model call. The state then loses
            evicted messages and complete tool outputs; a `store` in the stabilizer's stages keeps the outputs.
        window: The model's context window in tokens; needed if the budget is a share of the window. None means the
            window in the model's profile.
        keep_thinking: Whether to keep signed thinking that was produced before a cut, see `DropStaleThinking`.
        max_result_tokens: Number of tokens above which a tool output is masked and shortened in the state when the tool
            returns, so that a checkpointer stores less. Its complete, unmasked content is kept in the
            `response_metadata` of the message under `ctxguard_full_output`, unless `persist` is set. None means that
            the state is not shortened. Messages inside a tool's `Command` are not changed.
        on_report: Function called with the report on each model call, and on each tool output that is shortened when
            the tool returns (then `report.tool` is the name of the tool). `report.session` is the thread id.
        vault: The vault of a session, or a function that returns one for the run's `Runtime`. The stabilizer's
            `MaskPII` stage stores values in it, and the arguments of a tool are restored right before the tool runs.
            The state keeps the placeholders as the model wrote them.
        restore: Whether to restore masked values in the model's answers as they arrive: in texts, tool calls, and
            structured output, whole or streamed, and so in all events, and in the state. Placeholders stay in
            reasoning, in links to hosts that no user named, and in the arguments of tools that get no values.
        new_values: What to do with values that the model itself writes: `pass`, `report`, `mask`, or `refuse`, see
            `ctxguard.adapting.per_run.RunOptions`. It needs `restore`.

    Raises:
        ConfigError: If `stabilizer` or `vault` has another type, `on_report` is not a function, or `max_result_tokens`
            is not a whole number of at least 1.
    """

    error_if_called = "ContextGuardMiddleware is for create_agent(middleware=[…])", "middleware"

    @takes_stabilizer("ContextGuardMiddleware")
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
        restore: bool = False,
        new_values: OnNewValues = "pass",
    ) -> None:
        super().__init__()
        if persist and type(self) is ContextGuardMiddleware:
            self.__class__ = _PersistingMiddleware  # it has a `before_model` hook, which adds a step to the graph
        self.tools = []
        options = RunOptions(
            window=window,
            keep_thinking=keep_thinking,
            max_result_tokens=max_result_tokens,
            on_report=on_report,
            restore=restore,
            new_values=new_values,
        )
        self.per_run: PerRun[Runtime[Any]] = PerRun(stabilizer, vault, options)
        self.persist = persist
        self._order = OrderWatch()

    @property
    def name(self) -> str:
        """The name of the middleware in graphs."""
        return "ContextGuardMiddleware"

    @synchronous
    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], object]
    ) -> Generator[Ask, object, Any]:
        """Send the stabilized messages; if they exceed the model's window, retry once with a smaller budget.

        The smaller budget then applies to the rest of the conversation.

        Raises:
            BudgetExceededError: If the mandatory messages exceed the budget.
        """
        self._order.look(handler, self.name)
        run = self.per_run.of(request.runtime)
        try:
            return (yield Ask(handler, ((yield from _stabilize(run, request)),)))
        except _OVERFLOWS:
            return (yield Ask(handler, ((yield from _stabilize(run, request, overflowed=True)),)))

    awrap_model_call = asynchronous(wrap_model_call)  # type: ignore[arg-type]  # the base class says what is awaited
    """Asynchronous version of `wrap_model_call`."""

    @synchronous
    def wrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], object]
    ) -> Generator[Ask, object, Any]:
        """Restore masked values in the arguments of a tool and in a recalled text, and shorten a large output.

        An output is large if it has more than `max_result_tokens` tokens.
        """
        # the runtime in `request` has another type than the run's
        run = self.per_run.of(cast("Any", get_runtime() if self.per_run.depends_on_run else None))
        call = request.tool_call
        given = request.override(tool_call={**call, "args": run.unmasked(call["args"], call["name"])})
        output = yield Ask(handler, (given,))
        if not isinstance(output, ToolMessage):
            return output
        content = yield from run.recalled(output.content, call["name"], call["args"])
        output = output if content is output.content else output.model_copy(update={"content": content})
        if not run.bounds_outputs:
            return output
        artifact = yield from run.bounded(ADAPTER.read([output])[0], call["name"], session=_thread())
        if artifact is None:
            return output
        (bounded,) = ADAPTER.write([output], [artifact])
        kept = {} if self.persist else {FULL_OUTPUT: output.content}
        metadata = {**output.response_metadata, **kept}
        return output.model_copy(update={"content": bounded.content, "response_metadata": metadata})

    awrap_tool_call = asynchronous(wrap_tool_call)  # type: ignore[arg-type]  # the same
    """Asynchronous version of `wrap_tool_call`."""


class _PersistingMiddleware(ContextGuardMiddleware):
    """The middleware with `persist`, which also replaces the messages in the state."""

    @synchronous
    def before_model(self, state: Mapping[str, Any], runtime: Runtime[Any]) -> Generator[Ask, object, dict[str, Any]]:
        """Replace the messages in the state with the stabilized ones."""
        run, request = self.per_run.of(runtime), Request(state["messages"])
        # without `on_report`, because the following model call sends the same messages and reports on them
        quiet = replace(run, options=replace(run.options, on_report=None))
        done, _ = yield from quiet.flow(ADAPTER, request, is_editable=False)
        return replacing(request.messages, done.messages)

    abefore_model = asynchronous(before_model)  # type: ignore[arg-type]  # the base class takes its own type of state


def _stabilize(
    run: ForRun, request: ModelRequest[Any], *, overflowed: bool = False
) -> Generator[Ask, object, ModelRequest[Any]]:
    sent, restorer = yield from run.flow(
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
    if run.options.restore and restorer is not None:
        changes["model"] = _restoring(request, restorer)
    return request.override(messages=cast("Any", rest), **changes)


def _restoring(request: ModelRequest[Any], restorer: Restorer) -> BaseChatModel:
    """Return the model of a request with restored answers. Structured output gets the values, too."""
    form, schemas = request.response_format, _output_schemas(request)
    wants_json = form is not None and not isinstance(form, ToolStrategy)
    outputs = [str(schema["name"]) for schema in schemas]
    return restoring_model(request.model, replace(restorer, wants_json=wants_json, outputs=outputs))


def _sent(request: ModelRequest[Any]) -> Request[Sequence[BaseMessage]]:
    """Return everything that would be sent to the model."""
    messages = [*_prompt(request), *request.messages]
    settings = plain_settings(getattr(request, "model_settings", None))
    return Request(messages, tools=tool_schemas(request.tools), schemas=_output_schemas(request), settings=settings)


def _prompt(request: ModelRequest[Any]) -> list[BaseMessage]:
    """Return the system message of a request as a list, which is empty if there is none.

    In langchain 1.0, the system message of a request is a string.
    """
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
    """Return the `tools` of the new request; an empty dict if no tool changed.

    A masked tool is sent as a schema. The graph finds the tool itself by name.
    """
    given = tool_schemas(request.tools)
    if list(schemas) == given:
        return {}
    pairs = zip(request.tools, given, schemas, strict=True)
    return {"tools": [tool if was == now else now for tool, was, now in pairs]}


def _output_schemas(request: ModelRequest[Any]) -> list[Mapping[str, object]]:
    """Return the schemas for structured output that are sent with the request."""
    form = request.response_format
    if form is None:
        return []
    schema = form.schema if isinstance(form, (AutoStrategy, ProviderStrategy, ToolStrategy)) else form
    return [
        {"name": spec.name, "description": spec.description, "parameters": spec.json_schema}
        for spec in ToolStrategy(schema).schema_specs
    ]


def _thread() -> str | None:
    """Return the id of the graph's current thread, or None outside of a graph."""
    try:
        configurable = get_config().get("configurable") or {}
    except RuntimeError:  # called outside of a graph
        return None
    return configurable.get("thread_id")
