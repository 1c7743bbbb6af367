"""Strands: the sliding window and the automatic context manager, which reduce the messages of an agent in place."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

from strands import Agent
from strands.agent.conversation_manager import SlidingWindowConversationManager
from strands.hooks.events import AfterModelCallEvent, BeforeModelCallEvent, MessageAddedEvent
from strands.models.model import Model
from strands.types.exceptions import ContextWindowOverflowException

from ctxguard.harness.contestants import Course, GaveUpError, Message

from .translated import Call, Spelling, calls_of, edited

COMPRESS_AT = 0.7
"""Share of the window at which Strands compresses before a call, its default."""
_NUMBER = "number"


class Sliding:
    """Reduce once above 70% of the budget, as proactive compression does, and recover while it is exceeded.

    Results in a row are one message of the user's, as Bedrock has it.
    """

    def __init__(self, course: Course) -> None:
        self._course = course
        self._manager = SlidingWindowConversationManager(pin_first=1)
        self._state: list[Any] = []
        self._done = 0
        self._available = course.available_beside_system

    def send(self, end: int) -> object:
        """Return the messages of the agent, with the number of the call for its system prompts."""
        for number in range(self._done, end):
            self._append(number)
        self._done = end
        agent: Any = SimpleNamespace(messages=self._state)
        if self._tokens() > COMPRESS_AT * self._available:
            self._manager.reduce_context(agent)
        overflow = ContextWindowOverflowException("the budget is exceeded")
        try:
            while self._tokens() > self._available:
                self._manager.reduce_context(agent, e=overflow)
        except ContextWindowOverflowException as error:
            raise GaveUpError from error
        return end, list(self._state)

    def _append(self, number: int) -> None:
        message = self._course.messages[number]
        if message["role"] == "system":
            return
        block = {"content": list(_blocks(message)), _NUMBER: [number]}
        last = self._state[-1] if self._state else None
        if message["role"] == "tool" and last is not None and "toolResult" in last["content"][-1]:
            last["content"] += block["content"]
            last[_NUMBER].append(number)
            return
        self._state.append({"role": "assistant" if message["role"] == "assistant" else "user", **block})

    def _tokens(self) -> int:
        return self._course.count([m for message in self._state for m in self._chat(message)])

    def chat(self, sent: object) -> Sequence[Message]:
        """Return what was sent as Chat Completions messages, the system prompts first."""
        end, state = cast("tuple[int, list[Any]]", sent)
        system = [m for m in self._course.messages[:end] if m["role"] == "system"]
        return [*system, *(m for message in state for m in self._chat(message))]

    def _chat(self, message: Mapping[str, Any]) -> Iterator[Message]:
        for place, number in enumerate(message[_NUMBER]):
            own = self._course.messages[number]
            if own["role"] == "tool":
                yield edited(own, str(message["content"][place]["toolResult"]["content"][0].get("text", "")))
            else:
                yield own


def _blocks(message: Message) -> Iterator[dict[str, object]]:
    text = str(message["content"])
    if message["role"] == "tool":
        found = {"toolUseId": message["tool_call_id"], "status": "success", "content": [{"text": text}]}
        yield {"toolResult": found}
        return
    if text:
        yield {"text": text}
    for call in calls_of(message):
        yield {"toolUse": {"toolUseId": call.id, "name": call.name, "input": call.arguments}}


class Automatic:
    """`Agent(context_manager="auto")`: large results become previews, the oldest messages a summary above 85%.

    The agent is real; its hooks are told of each recorded message and model call, and of an overflow as a provider
    would report it. Nobody reads the originals back, since the sessions are recorded.
    """

    def __init__(self, course: Course) -> None:
        self._course = course
        self._spelling = Spelling(course.messages)
        self._done = 0
        self._loop = asyncio.new_event_loop()
        self._agent = Agent(
            model=_FixedModel(self._tokens, course), context_manager="auto", callback_handler=None, tools=[]
        )

    def send(self, end: int) -> object:
        """Return the messages of the agent, with the number of the call for its system prompts."""
        self._loop.run_until_complete(self._called(end))
        return end, list(self._agent.messages)

    async def _called(self, end: int) -> None:
        for message in _messages(self._course.messages[self._done : end]):
            self._agent.messages.append(message)
            await self._agent.hooks.invoke_callbacks_async(MessageAddedEvent(agent=self._agent, message=message))
        self._done = end
        while True:
            await self._agent.hooks.invoke_callbacks_async(BeforeModelCallEvent(agent=self._agent))
            fits = self._tokens(self._agent.messages) <= self._course.available_beside_system
            overflow = None if fits else ContextWindowOverflowException("the budget is exceeded")
            event = AfterModelCallEvent(agent=self._agent, exception=overflow)
            await self._agent.hooks.invoke_callbacks_async(event)
            if overflow is None:
                return
            if not event.retry:
                raise GaveUpError from overflow

    def _tokens(self, messages: Sequence[Any]) -> int:
        return self._course.count([m for message in messages for m in self._chat(message)])

    def chat(self, sent: object) -> Sequence[Message]:
        """Return what was sent as Chat Completions messages, the system prompts first."""
        end, state = cast("tuple[int, list[Any]]", sent)
        system = [m for m in self._course.messages[:end] if m["role"] == "system"]
        return [*system, *(m for message in state for m in self._chat(message))]

    def _chat(self, message: Mapping[str, Any]) -> Iterator[Message]:
        blocks = message["content"]
        texts = [block["text"] for block in blocks if "text" in block]
        calls = [block["toolUse"] for block in blocks if "toolUse" in block]
        results = [block["toolResult"] for block in blocks if "toolResult" in block]
        for result in results:
            yield self._spelling.result(
                result["toolUseId"], "\n".join(part.get("text", "") for part in result["content"])
            )
        if texts or calls or not results:
            made = [Call(call["toolUseId"], call["name"], call["input"]) for call in calls]
            yield self._spelling.message(message["role"], "\n".join(texts), made)

    def __del__(self) -> None:
        """Close the loop that ran the hooks."""
        self._loop.close()


class _FixedModel(Model):
    """A model with the budget as its window, which answers with the fixed summary of what it is given."""

    def __init__(self, count: Any, course: Course) -> None:
        self._count, self._course = count, course

    @property
    def context_window_limit(self) -> int:
        return self._course.available_beside_system

    async def count_tokens(self, messages: Any, *given: Any, **settings: Any) -> int:
        del given, settings
        return int(self._count(messages))

    async def stream(self, messages: Any, *given: Any, **settings: Any) -> AsyncIterator[Any]:
        del given, settings
        text = "\n".join(block["text"] for message in messages for block in message["content"] if "text" in block)
        yield {"messageStart": {"role": "assistant"}}
        yield {"contentBlockStart": {"start": {}}}
        yield {"contentBlockDelta": {"delta": {"text": self._course.summarize(text)}}}
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "end_turn"}}

    def update_config(self, **settings: Any) -> None:
        del settings

    def get_config(self) -> Any:
        return {}

    def structured_output(self, *given: Any, **settings: Any) -> Any:
        raise NotImplementedError


def _messages(messages: Sequence[Message]) -> Iterator[Any]:
    """Walk messages as an agent gets them: results in a row are one."""
    results: list[Any] = []
    for message in messages:
        if message["role"] == "tool":
            results += _blocks(message)
            continue
        if results:
            yield {"role": "user", "content": results}
            results = []
        if message["role"] != "system":
            yield {"role": "assistant" if message["role"] == "assistant" else "user", "content": list(_blocks(message))}
    if results:
        yield {"role": "user", "content": results}
