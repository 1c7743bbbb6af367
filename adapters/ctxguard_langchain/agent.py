"""A wrapper that manages the context of any streaming agent."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from ctxguard.errors import ConfigError
from ctxguard.stabilizer import Stabilizer
from ctxguard_langchain.runnables import ContextGuard

_NODES = ("agent", "model", "tools")
"""Nodes that add messages. The model node is `agent` in `create_react_agent` and `model` in `create_agent`."""


class _StreamingAgent(Protocol):
    def astream(self, input: Any, /, *args: Any, **kwargs: Any) -> AsyncIterator[Any]: ...  # noqa: A002, ANN401


@runtime_checkable
class _ContextManager(Protocol):
    async def process_messages(self, messages: list[Any], /) -> list[Any]: ...


class ContextManagedAgent:
    """Wraps an agent: passes managed messages to the agent, and keeps the original messages.

    Args:
        agent: An object with a method `astream({"messages": …})`.
        context_manager: A `ContextManager` (any object with an async `process_messages(messages)`), or a `Stabilizer`.

    Attributes:
        original_messages: A list of the last call's input messages, followed by the messages in its `agent` (or
            `model`) and `tools` chunks.

    Raises:
        ConfigError: If `context_manager` is neither a `ContextManager` nor a `Stabilizer`.
    """

    def __init__(self, agent: _StreamingAgent, context_manager: _ContextManager | Stabilizer) -> None:
        if isinstance(context_manager, type) or not isinstance(context_manager, (Stabilizer, _ContextManager)):
            raise ConfigError(
                f"expected a ContextManager or a Stabilizer, got {type(context_manager).__name__}; "
                "write Stabilizer(budget=…) or ContextManager()",
                setting="context_manager",
            )
        self.agent = agent
        self.context_manager = context_manager
        self.original_messages: list[Any] = []

    async def astream(self, messages: Mapping[str, Any], *args: Any, **kwargs: Any) -> AsyncIterator[Any]:  # noqa: ANN401 - the agent's own types
        """Stream the agent's chunks.

        Args:
            messages: The input of the agent. Keys other than `messages` are passed on unchanged.
            *args: Passed on to the agent.
            **kwargs: Passed on to the agent (`config`, `stream_mode`, …).
        """
        self.original_messages = list(messages.get("messages", []))
        managed = await self._managed(list(self.original_messages))
        async for chunk in self.agent.astream({**messages, "messages": managed}, *args, **kwargs):
            self.original_messages.extend(_new_messages(chunk))
            yield chunk

    async def _managed(self, messages: list[Any]) -> Sequence[Any]:
        if isinstance(self.context_manager, Stabilizer):
            return await ContextGuard(self.context_manager).ainvoke(messages)
        return await self.context_manager.process_messages(messages)


def _new_messages(chunk: object) -> Iterator[Any]:
    """Yield the messages in a chunk of updates. With several stream modes, a chunk is a pair of a mode and data."""
    data = chunk[1] if isinstance(chunk, tuple) and len(chunk) == 2 and chunk[0] == "updates" else chunk
    if isinstance(data, Mapping):
        for node in _NODES:
            update = data.get(node)
            if isinstance(update, Mapping):
                yield from update.get("messages", [])
