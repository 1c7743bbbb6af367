"""The guard as a step of a chain, and for chains with a stored history."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import BaseMessage, HumanMessage, convert_to_messages
from langchain_core.prompt_values import PromptValue
from langchain_core.runnables import Runnable, RunnableConfig, RunnableSequence

from ctxguard.adapting.per_run import OnReport, PerRun, RunOptions
from ctxguard.adapting.request import Request
from ctxguard.draft import Ask, asynchronous, synchronous
from ctxguard.errors import AdapterError, ConfigError, HistoryError
from ctxguard.stabilizer import Stabilizer
from ctxguard_langchain.messages import LangChainAdapter
from ctxguard_langchain.models import bound_tools, layers, model_name, model_window, tool_schemas

if TYPE_CHECKING:
    from langchain_core.chat_history import BaseChatMessageHistory
    from langchain_core.runnables.history import RunnableWithMessageHistory

StabilizerChoice: TypeAlias = "Stabilizer | Callable[[str | None], Stabilizer]"
"""A stabilizer for all sessions, or a function from the id of a session to its stabilizer."""

ADAPTER = LangChainAdapter()


class NotMiddleware:
    """A hook of agent middleware that says what to use instead as soon as `create_agent` looks for it."""

    def __get__(self, guard: object, kind: type) -> NoReturn:
        raise ConfigError(
            f"{kind.__name__} is not agent middleware; use middleware=[ContextGuardMiddleware(stabilizer)]",
            setting="middleware",
        )


class ContextGuard(Runnable[LanguageModelInput, list[BaseMessage]]):
    """Stabilize the messages right before the model: `prompt | ContextGuard(stabilizer) | model`.

    It takes messages, a prompt value, or a string, and returns messages. A stored history stays unchanged. Streaming,
    batches, async, and tracing work as for any Runnable; traces call it `ctxguard`.

    Args:
        stabilizer: the stabilizer; or a function from the session's id (`session_id`, else `thread_id`, of
            `config["configurable"]`; None without one) to a stabilizer, called with each request.
        model: the chat model that follows, with its tools bound: its window (for budgets such as `"80%"`) and tools
            are taken from it.
        tools: tools of the request, which are counted; None means those bound to `model`.
        window: the model's context window in tokens; None means that of `model`.
        keep_thinking: keep signed thinking from before a cut, see `DropStaleThinking`.
        on_report: called with each report; `report.session` is the id of the session.

    Raises:
        ConfigError: `stabilizer` is neither a stabilizer nor a function, `model` is not a chat model, or `on_report` is
            not a function.
    """

    wrap_tool_call = NotMiddleware()

    def __init__(
        self,
        stabilizer: StabilizerChoice,
        *,
        model: object = None,
        tools: Sequence[Any] | None = None,
        window: int | None = None,
        keep_thinking: bool = False,
        on_report: OnReport | None = None,
    ) -> None:
        self.name = "ctxguard"
        options = RunOptions(window=window, keep_thinking=keep_thinking, on_report=on_report)
        self.per_run: PerRun[str | None] = PerRun(stabilizer, options=options)
        if model is not None and not isinstance(model, Runnable):
            raise ConfigError(
                f"model is the chat model itself, not {type(model).__name__}; by its name, give window=…",
                setting="model",
            )
        self.tools = bound_tools(model) if tools is None else tool_schemas(tools)
        self.model = model

    def invoke(
        self,
        input: LanguageModelInput,  # noqa: A002 - LangChain's name
        config: RunnableConfig | None = None,
        **kwargs: Any,  # noqa: ANN401 - LangChain's signature
    ) -> list[BaseMessage]:
        """Return the stabilized messages.

        Raises:
            HistoryError: the input contains no messages.
            BudgetExceededError: the mandatory messages exceed the budget.
        """
        return self._call_with_config(self._guarded, input, config, **kwargs)  # type: ignore[arg-type]  # it looks at names

    async def ainvoke(
        self,
        input: LanguageModelInput,  # noqa: A002 - LangChain's name
        config: RunnableConfig | None = None,
        **kwargs: Any,  # noqa: ANN401 - LangChain's signature
    ) -> list[BaseMessage]:
        """Do the same as `invoke`, with async summarizers or stores."""
        return await self._acall_with_config(self._aguarded, input, config, **kwargs)  # type: ignore[arg-type]  # the same

    @synchronous
    def _guarded(self, given: LanguageModelInput, config: RunnableConfig) -> Generator[Ask, object, list[BaseMessage]]:
        session = _session(config)
        done = yield from self.per_run.of(session).flow(
            ADAPTER,
            Request(as_messages(given), tools=self.tools),
            session=session,
            model=model_name(self.model),
            known=model_window(self.model),
            is_editable=False,  # the tools are bound to the model behind this step
        )
        return list(done.messages)

    _aguarded = asynchronous(_guarded)


def _session(config: RunnableConfig) -> str | None:
    configurable = config.get("configurable") or {}
    session = configurable.get("session_id", configurable.get("thread_id"))
    return None if session is None else str(session)


def as_messages(given: object) -> list[BaseMessage]:
    """Return any input of a chat model as messages; messages stay the same objects."""
    if isinstance(given, PromptValue):
        return given.to_messages()
    if isinstance(given, str):
        return [HumanMessage(given)]
    if isinstance(given, (dict, BaseMessage)) or not isinstance(given, Sequence):
        raise HistoryError(f"expected messages, a prompt value or a string, got {type(given).__name__}")
    try:
        return convert_to_messages(given)
    except (NotImplementedError, ValueError) as error:
        raise HistoryError(f"not all of it are messages: {str(error).splitlines()[0]}") from error


def with_message_history(
    chain: Runnable[Any, Any],
    get_session_history: Callable[..., BaseChatMessageHistory],
    stabilizer: StabilizerChoice,
    *,
    keep_thinking: bool = False,
    on_report: OnReport | None = None,
    **settings: Any,  # noqa: ANN401 - those of RunnableWithMessageHistory
) -> RunnableWithMessageHistory:
    """Return a chain with a stored history: the store keeps the original messages, the model sees stabilized ones.

    The guard is inserted right before the first chat model of the chain, so that it counts the system prompt and the
    new question, and knows the model's window and tools.

    Args:
        chain: a chat model, or a sequence with one as a step.
        get_session_history: see `RunnableWithMessageHistory`.
        stabilizer: see `ContextGuard`.
        keep_thinking: see `ContextGuard`.
        on_report: see `ContextGuard`.
        **settings: of `RunnableWithMessageHistory` (`input_messages_key`, `history_messages_key`, …).

    Raises:
        AdapterError: no step of the chain is a chat model.
        ConfigError: `stabilizer` is neither a stabilizer nor a function.
    """
    from langchain_core.runnables.history import RunnableWithMessageHistory

    guard = partial(ContextGuard, stabilizer, keep_thinking=keep_thinking, on_report=on_report)
    guarded = _guarded_chain(chain, guard)
    return RunnableWithMessageHistory(guarded, get_session_history, **settings)


def _guarded_chain(chain: Runnable[Any, Any], guard: Callable[..., ContextGuard]) -> Runnable[Any, Any]:
    steps = chain.steps if isinstance(chain, RunnableSequence) else [chain]
    has_model = [any(isinstance(layer, BaseChatModel) for layer in layers(step)) for step in steps]
    if True not in has_model:
        raise AdapterError(
            "no step of the chain is a chat model; put ContextGuard(stabilizer) before the model yourself and use "
            "RunnableWithMessageHistory"
        )
    place = has_model.index(True)
    return RunnableSequence(*steps[:place], guard(model=steps[place]), *steps[place:], name=chain.name)
