"""A wrapper that manages the context of any streaming agent."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from ctxguard.errors import ConfigError
from ctxguard.stabilizer import Stabilizer
from ctxguard_langchain.runnables import ContextGuard

_NODES = ("agent", "model", "tools")
"""Nodes that add messages: the model node is `agent` in `create_react_agent` and `model` in `create_agent`."""


class _StreamingAgent(Protocol):
    def astream(self, input: Any, /, *args: Any, **kwargs: Any) -> AsyncIterator[Any]: ...  # noqa: A002, ANN401


@runtime_checkable
class _ContextManager(Protocol):
    async def process_messages(self, messages: list[Any], /) -> list[Any]: ...


class ContextManagedAgent:
    """Wrap an agent so that it receives managed messages, and keep the original messages.

    Args:
        agent: anything with `astream({"messages": …})`.
        context_manager: a `ContextManager` (any object with an async `process_messages(messages)`), or a `Stabilizer`.

    Attributes:
        original_messages: a new list of the input messages of the last call, and of the messages in its `agent` (or
            `model`) and `tools` chunks.

    Raises:
        ConfigError: `context_manager` is neither of the two.
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
            messages: the agent's input; its other keys are passed on unchanged.
            *args: passed on to the agent.
            **kwargs: passed on to the agent (`config`, `stream_mode`, …).
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
    """Yield the messages in a chunk of updates; with several stream modes, a chunk is a mode and its data."""
    data = chunk[1] if isinstance(chunk, tuple) and len(chunk) == 2 and chunk[0] == "updates" else chunk
    if isinstance(data, Mapping):
        for node in _NODES:
            update = data.get(node)
            if isinstance(update, Mapping):
                yield from update.get("messages", [])
