"""The guard as a node or hook of a LangGraph graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from langchain_core.messages import BaseMessage, RemoveMessage
from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda

from ctxguard.adapting.editing import are_same_objects
from ctxguard.adapting.fields import get
from ctxguard.adapting.per_run import OnReport
from ctxguard.errors import HistoryError
from ctxguard_langchain.runnables import ContextGuard, StabilizerChoice


def pre_model_hook(
    stabilizer: StabilizerChoice,
    *,
    persist: bool = False,
    model: object = None,
    tools: Sequence[Any] | None = None,
    window: int | None = None,
    keep_thinking: bool = False,
    on_report: OnReport | None = None,
) -> Runnable[Any, dict[str, Any]]:
    """Return a hook for graphs with messages in their state: `create_react_agent(…, pre_model_hook=…)`, or a node.

    It writes the stabilized messages to `llm_input_messages`, which the model node reads; the state keeps the
    originals. A system prompt that is added after the hook is neither masked nor counted: leave headroom for it. With
    `persist`, it permanently replaces `messages` of the state instead, which needs langgraph. All other settings are
    those of `ContextGuard`.

    Raises:
        ConfigError: `stabilizer` is neither a stabilizer nor a function, or `model` is not a chat model.
        HistoryError: (when called) the state has no messages.
    """
    guard = ContextGuard(
        stabilizer, model=model, tools=tools, window=window, keep_thinking=keep_thinking, on_report=on_report
    )

    def update(messages: list[BaseMessage], stabilized: list[BaseMessage]) -> dict[str, Any]:
        return replacing(messages, stabilized) if persist else {"llm_input_messages": stabilized}

    def hook(state: Any, config: RunnableConfig) -> dict[str, Any]:  # noqa: ANN401 - the graph's own type
        messages = _messages(state)
        return update(messages, guard.invoke(messages, config))

    async def ahook(state: Any, config: RunnableConfig) -> dict[str, Any]:  # noqa: ANN401 - the graph's own type
        messages = _messages(state)
        return update(messages, await guard.ainvoke(messages, config))

    return RunnableLambda(hook, afunc=ahook, name="pre_model_hook")


def _messages(state: Any) -> list[BaseMessage]:  # noqa: ANN401 - a dict, or a model with attributes
    messages = cast("list[BaseMessage] | None", get(state, "messages"))
    if messages is None:
        raise HistoryError("the state has no 'messages'; a graph with the hook needs them, as MessagesState has")
    return messages


def replacing(messages: Sequence[BaseMessage], stabilized: Sequence[BaseMessage]) -> dict[str, Any]:
    """Return the update that replaces the messages of the state; it is empty if none changed."""
    from langgraph.graph.message import REMOVE_ALL_MESSAGES

    if are_same_objects(stabilized, messages):
        return {"messages": []}
    return {"messages": [RemoveMessage(id=REMOVE_ALL_MESSAGES), *stabilized]}
