"""The guard as a step of a chain, for chains with a stored history, and as a node or hook of a LangGraph graph."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Mapping, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from langchain_core.language_models import LanguageModelInput
from langchain_core.messages import BaseMessage, HumanMessage, RemoveMessage, SystemMessage, convert_to_messages
from langchain_core.prompt_values import PromptValue
from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda, RunnableSequence
from langchain_core.runnables.base import coerce_to_runnable
from langchain_core.tools import StructuredTool

from ctxguard.adapting.fields import are_same_objects, get
from ctxguard.adapting.misuse import NotAFunction, takes_stabilizer
from ctxguard.adapting.per_run import OnReport, PerRun, RunOptions
from ctxguard.adapting.request import Request
from ctxguard.adapting.tool_calls import RecallToolFactory
from ctxguard.draft import Ask, asynchronous, synchronous
from ctxguard.errors import AdapterError, ConfigError, HistoryError
from ctxguard.settings import NotMiddleware, extra
from ctxguard.stabilizer import Stabilizer
from ctxguard_langchain.messages import LangChainAdapter
from ctxguard_langchain.models import (
    bound_arguments,
    model_among,
    model_name,
    model_window,
    sent_settings,
    tool_schemas,
)
from ctxguard_langchain.restoring import RestorableMessages, restoring_step

if TYPE_CHECKING:
    from langchain_core.chat_history import BaseChatMessageHistory
    from langchain_core.runnables.history import RunnableWithMessageHistory

    from ctxguard.pii.mask.answers import OnNewValues


recall_tool = RecallToolFactory(lambda recall: StructuredTool.from_function(recall, parse_docstring=True))
"""Create the recall tool, for `bind_tools`, agents, and graphs.

Call it as `recall_tool(store, max_tokens=2_000)`. The parameters are those of `ctxguard.content.recall_tool`.
"""


StabilizerChoice: TypeAlias = "Stabilizer | Callable[[str | None], Stabilizer]"
"""A stabilizer for all sessions, or a function that returns one for the id of a session."""

ADAPTER = LangChainAdapter()
_NOT_A_DICT: Final = (
    "in a chain, the guard goes between prompt and model; the hook of a graph is pre_model_hook(stabilizer)"
)
_BEFORE_THE_MODEL: Final = "the guard goes before the model: ContextGuard(stabilizer) | model"


class ContextGuard(NotAFunction, Runnable[LanguageModelInput, list[BaseMessage]]):
    """Stabilizes the messages right before the model: `prompt | ContextGuard(stabilizer) | model`.

    The input is messages, a prompt value, or a string; the output is messages. A stored history stays unchanged.
    Streaming, batches, async, and tracing work as for any Runnable; its name in traces is `ctxguard`.

    Args:
        stabilizer: The stabilizer, or a function that returns one for the id of a session. The id is `session_id`, or
            else `thread_id`, in `config["configurable"]`; None if both are missing. Without an id, values are redacted
            and nothing is stored in the vault. The function is called for each request.
        model: The chat model that follows, with its tools bound. Its window (for budgets such as `"80%"`), its tools,
            and what else is bound to it, such as an output schema, are used.
        tools: The tools of the request, which are counted. None means the tools bound to `model`.
        window: The model's context window in tokens. None means the window of `model`.
        keep_thinking: Whether to keep signed thinking that was produced before a cut, see `DropStaleThinking`.
        on_report: Function called with each report. `report.session` is the id of the session.
        restore: Whether to restore masked values in the answers of the model that follows, whole or streamed. Write
            `prompt | (ContextGuard(stabilizer, restore=True) | model)`, with the brackets, so that the guard knows the
            model.
        new_values: What to do with values that the model itself writes: `pass`, `report`, `mask`, or `refuse`, see
            `ctxguard.adapting.per_run.RunOptions`. It needs `restore`.

    Raises:
        ConfigError: If `stabilizer` is neither a stabilizer nor a function, `model` is not a chat model, or `on_report`
            is not a function; with `restore`, if no chat model follows.
    """

    wrap_tool_call = NotMiddleware()
    error_if_called = "this ContextGuard is a step of a chain of LangChain", "stabilizer"

    @takes_stabilizer("ContextGuard")
    def __init__(
        self,
        stabilizer: StabilizerChoice,
        *,
        model: object = None,
        tools: Sequence[Any] | None = None,
        window: int | None = None,
        keep_thinking: bool = False,
        on_report: OnReport | None = None,
        restore: bool = False,
        new_values: OnNewValues = "pass",
    ) -> None:
        self.name = "ctxguard"
        self.restore = restore
        self._has_model = False
        options = RunOptions(
            window=window,
            keep_thinking=keep_thinking,
            on_report=on_report,
            restore=restore,
            new_values=new_values,
        )
        self.per_run: PerRun[str | None] = PerRun(stabilizer, options=options)
        if model is not None and not isinstance(model, Runnable):
            raise ConfigError(
                f"model is the chat model itself, not {type(model).__name__}; by its name, give window=…",
                setting="model",
            )
        bound = bound_arguments(model)
        self.tools = tool_schemas((bound.get("tools") or ()) if tools is None else tools)
        self._schemas, self._settings = sent_settings(bound)
        self.model = model
        self.session_keys: tuple[str, ...] = ()

    def invoke(
        self,
        input: LanguageModelInput,  # noqa: A002 - LangChain's name
        config: RunnableConfig | None = None,
        **kwargs: Any,  # noqa: ANN401 - LangChain's signature
    ) -> list[BaseMessage]:
        """Return the stabilized messages.

        Raises:
            HistoryError: If the input contains no messages.
            BudgetExceededError: If the mandatory messages exceed the budget.
        """
        return self._call_with_config(self._guarded, input, config, **kwargs)  # type: ignore[arg-type]  # it looks at names

    async def ainvoke(
        self,
        input: LanguageModelInput,  # noqa: A002 - LangChain's name
        config: RunnableConfig | None = None,
        **kwargs: Any,  # noqa: ANN401 - LangChain's signature
    ) -> list[BaseMessage]:
        """Asynchronous version of `invoke`, for summarizers or stores that are asynchronous."""
        return await self._acall_with_config(self._aguarded, input, config, **kwargs)  # type: ignore[arg-type]  # the same

    def __or__(self, other: Any) -> RunnableSequence[Any, Any]:  # noqa: ANN401 - LangChain's signature
        """Return the chain of the guard and a model. Arguments of a call, such as `stop=`, reach the model."""
        return GuardedSequence(*self.followed_by(coerce_to_runnable(other)))

    def pipe(self, *others: Any, name: str | None = None) -> RunnableSequence[Any, Any]:  # noqa: ANN401 - the same
        """Return the chain of the guard and the steps that follow it."""
        return GuardedSequence(*self.followed_by(*map(coerce_to_runnable, others)), name=name)

    def followed_by(self, *steps: Runnable[Any, Any]) -> list[Runnable[Any, Any]]:
        """Return the guard and the steps that follow it; with `restore`, their first chat model restores its answers.

        Raises:
            ConfigError: If no step is a chat model, with `restore`.
        """
        if not self.restore:
            return [self, *steps]
        place = model_among(steps)
        if place is None:
            raise ConfigError(
                "with restore, a chat model follows the guard: ContextGuard(…) | model", setting="restore"
            )
        guard = copy(self)
        guard._has_model = True  # noqa: SLF001 - its own
        return [guard, *steps[:place], restoring_step(steps[place]), *steps[place + 1 :]]

    @synchronous
    def _guarded(
        self, given: LanguageModelInput, config: RunnableConfig, **arguments: object
    ) -> Generator[Ask, object, list[BaseMessage]]:
        if arguments:
            raise ConfigError(
                f"the guard does not accept {', '.join(arguments)}, and cannot pass them on to the next step; write "
                "ContextGuard(stabilizer) | model, whose calls do, or model.bind(…)",
                setting=next(iter(arguments)),
            )
        if self.restore and not self._has_model:
            message = "with restore, the guard must know the model: write prompt | (ContextGuard(…) | model)"
            raise ConfigError(message, setting="restore")
        session = _session(config, self.session_keys)
        done, restorer = yield from self.per_run.of_session(session).flow(
            ADAPTER,
            Request(as_messages(given), tools=self.tools, schemas=self._schemas, settings=self._settings),
            session=session,
            model=model_name(self.model),
            known=model_window(self.model),
            is_editable=False,  # the tools are bound to the model after this step
        )
        stabilized = RestorableMessages(done.messages)
        stabilized.restorer = restorer
        return stabilized if self.restore else list(done.messages)

    _aguarded = asynchronous(_guarded)


_OF_THE_CHAIN: Final = ("input", "inputs", "config", "return_exceptions")
"""The arguments of a call that are a chain's own. All others are its model's."""


def _handing_on(method: str) -> Any:  # noqa: ANN401 - a method, which has LangChain's signature
    """Return a method of a chain that hands the arguments of a call on to the chain's model."""

    def call(self: GuardedSequence, *given: Any, **named: Any) -> Any:  # noqa: ANN401
        own = {name: named.pop(name) for name in _OF_THE_CHAIN if name in named}
        return getattr(self.with_arguments(named), method)(*given, **own)

    return call


class GuardedSequence(RunnableSequence[Any, Any]):
    """A chain that begins with the guard: arguments of a call reach the model behind it, as if it were called itself.

    A `RunnableSequence` gives them to its first step.
    """

    def __init__(self, *steps: Any, name: str | None = None) -> None:  # noqa: ANN401 - whatever LangChain takes as a step
        super().__init__(*steps, name=name)

    invoke = _handing_on("invoke")
    ainvoke = _handing_on("ainvoke")
    batch = _handing_on("batch")
    abatch = _handing_on("abatch")
    transform = _handing_on("transform")  # `stream` and `astream` call these two
    atransform = _handing_on("atransform")

    def with_arguments(self, arguments: Mapping[str, Any]) -> RunnableSequence[Any, Any]:
        """Return a plain chain whose model has these arguments; without a model, the step behind the guard has them."""
        place = model_among(self.steps) or 1
        steps = [step.bind(**arguments) if arguments and n == place else step for n, step in enumerate(self.steps)]
        return RunnableSequence(*steps, name=self.name)

    def __or__(self, other: Any) -> RunnableSequence[Any, Any]:  # noqa: ANN401 - LangChain's signature
        """Return this chain with one more step, or with the steps of another one."""
        return self.pipe(other)

    def pipe(self, *others: Any, name: str | None = None) -> RunnableSequence[Any, Any]:  # noqa: ANN401 - the same
        """Return this chain with more steps."""
        return GuardedSequence(*self.steps, *map(coerce_to_runnable, others), name=name or self.name)


def _session(config: RunnableConfig, keys: Sequence[str]) -> str | None:
    """Return the name of a session: the values under its keys, as JSON if there are several; None if one is missing."""
    configurable = config.get("configurable") or {}
    if not keys:
        session = configurable.get("session_id", configurable.get("thread_id"))
        return None if session is None else str(session)
    values = [configurable.get(key) for key in keys]
    if None in values:
        return None
    return str(values[0]) if len(values) == 1 else json.dumps(values, default=str)


def as_messages(given: object) -> list[BaseMessage]:
    """Convert any input of a chat model to messages. Messages stay the same objects."""
    if isinstance(given, PromptValue):
        return given.to_messages()
    if isinstance(given, str):
        return [HumanMessage(given)]
    if isinstance(given, (dict, BaseMessage)) or not isinstance(given, Sequence):
        place = _NOT_A_DICT if isinstance(given, dict) else _BEFORE_THE_MODEL
        raise HistoryError(f"expected messages, a prompt value or a string, got {type(given).__name__}; {place}")
    try:
        return convert_to_messages(given)
    except (NotImplementedError, ValueError) as error:
        raise HistoryError(f"not all items are messages: {str(error).splitlines()[0]}") from error


def with_message_history(
    chain: Runnable[Any, Any],
    get_session_history: Callable[..., BaseChatMessageHistory],
    stabilizer: StabilizerChoice,
    *,
    keep_thinking: bool = False,
    on_report: OnReport | None = None,
    restore: bool = False,
    new_values: OnNewValues = "pass",
    **settings: Any,  # noqa: ANN401 - those of RunnableWithMessageHistory
) -> RunnableWithMessageHistory:
    """Return a chain with a stored history: the store keeps the original messages, and the model sees stabilized ones.

    The guard is inserted right before the first chat model in the chain, so that it counts the system prompt and the
    new question, and knows the model's window and tools.

    Args:
        chain: A chat model, or a sequence with a chat model as a step.
        get_session_history: See `RunnableWithMessageHistory`.
        stabilizer: See `ContextGuard`.
        keep_thinking: See `ContextGuard`.
        on_report: See `ContextGuard`.
        restore: See `ContextGuard`. The stored history then has the values in the answers, too.
        new_values: See `ContextGuard`.
        **settings: The settings of `RunnableWithMessageHistory` (`input_messages_key`, `history_messages_key`, …). If
            `history_factory_config` names the session by other keys than `session_id`, the id that the function
            `stabilizer` gets is the value of the key, or a JSON list of the values of several keys, in order.

    Raises:
        AdapterError: If no step of the chain is a chat model.
        ConfigError: If `stabilizer` is neither a stabilizer nor a function.
    """
    from langchain_core.runnables.history import RunnableWithMessageHistory

    def guard(model: object) -> ContextGuard:
        made = ContextGuard(
            stabilizer,
            model=model,
            keep_thinking=keep_thinking,
            on_report=on_report,
            restore=restore,
            new_values=new_values,
        )
        made.session_keys = tuple(field.id for field in settings.get("history_factory_config") or ())
        return made

    guarded = _guarded_chain(chain, guard)
    return RunnableWithMessageHistory(guarded, get_session_history, **settings)


def _guarded_chain(chain: Runnable[Any, Any], guard: Callable[..., ContextGuard]) -> RunnableSequence[Any, Any]:
    steps = chain.steps if isinstance(chain, RunnableSequence) else [chain]
    place = model_among(steps)
    if place is None:
        raise AdapterError(
            "no step of the chain is a chat model; put ContextGuard(stabilizer) before the model yourself and use "
            "RunnableWithMessageHistory"
        )
    guarded = [*steps[:place], *guard(model=steps[place]).followed_by(*steps[place:])]
    return GuardedSequence(*guarded, name=chain.name) if place == 0 else RunnableSequence(*guarded, name=chain.name)


@takes_stabilizer("pre_model_hook")
def pre_model_hook(
    stabilizer: StabilizerChoice,
    *,
    prompt: SystemMessage | str | None = None,
    persist: bool = False,
    model: object = None,
    tools: Sequence[Any] | None = None,
    window: int | None = None,
    keep_thinking: bool = False,
    on_report: OnReport | None = None,
) -> Runnable[Any, dict[str, Any]]:
    """Return a hook for graphs with messages in their state: `create_react_agent(…, pre_model_hook=…)`, or a node.

    The hook writes the stabilized messages to `llm_input_messages`, which the model node reads; the state keeps the
    originals. With `persist`, it permanently replaces `messages` in the state instead, which requires langgraph.

    `prompt` is a system prompt that is sent before the messages. Pass it here and not to `create_react_agent`, which
    adds it after the hook, where it is neither masked nor counted. With `persist`, put the prompt among the messages,
    since the hook would add it to the state in each call. All other settings are those of `ContextGuard`.

    Raises:
        ConfigError: If `stabilizer` is neither a stabilizer nor a function, `model` is not a chat model, or `prompt` is
            neither a string nor a system message, or is given with `persist`.
        HistoryError: (when called) If the state has no messages.
    """
    if prompt is not None and (persist or not isinstance(prompt, (str, SystemMessage))):
        raise ConfigError("prompt is a text or a SystemMessage; with persist, put it into the state", setting="prompt")
    before = [] if prompt is None else [SystemMessage(prompt) if isinstance(prompt, str) else prompt]
    guard = ContextGuard(
        stabilizer, model=model, tools=tools, window=window, keep_thinking=keep_thinking, on_report=on_report
    )

    def update(messages: list[BaseMessage], stabilized: list[BaseMessage]) -> dict[str, Any]:
        return replacing(messages, stabilized) if persist else {"llm_input_messages": stabilized}

    def hook(state: Any, config: RunnableConfig) -> dict[str, Any]:  # noqa: ANN401 - the graph's own type
        messages = [*before, *_messages(state)]
        return update(messages, guard.invoke(messages, config))

    async def ahook(state: Any, config: RunnableConfig) -> dict[str, Any]:  # noqa: ANN401 - the graph's own type
        messages = [*before, *_messages(state)]
        return update(messages, await guard.ainvoke(messages, config))

    return _GraphHook(hook, afunc=ahook, name="pre_model_hook")


class _GraphHook(RunnableLambda[Any, dict[str, Any]]):
    """The hook of a graph, which is not middleware of an agent."""

    wrap_tool_call = NotMiddleware()


def _messages(state: Any) -> list[BaseMessage]:  # noqa: ANN401 - a dict, or a model with attributes
    messages = cast("list[BaseMessage] | None", get(state, "messages"))
    if messages is None:
        raise HistoryError("the state has no 'messages'; a graph with the hook needs them, as in MessagesState")
    return messages


def replacing(messages: Sequence[BaseMessage], stabilized: Sequence[BaseMessage]) -> dict[str, Any]:
    """Return the state update that replaces the messages in the state. It contains no messages if none changed."""
    with extra("langgraph", "a hook of a graph needs LangGraph"):
        from langgraph.graph.message import REMOVE_ALL_MESSAGES

    if are_same_objects(stabilized, messages):
        return {"messages": []}
    return {"messages": [RemoveMessage(id=REMOVE_ALL_MESSAGES), *stabilized]}
