"""OpenHands: the condenser of its default agent, which summarizes the events between the first and the latest."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # on import, it would fetch a list of prices
os.environ.setdefault("OPENHANDS_SUPPRESS_BANNER", "1")
os.environ.setdefault("ALLOW_SHORT_CONTEXT_WINDOWS", "true")  # otherwise it refuses windows below 16,384 tokens

from litellm.types.utils import ModelResponse
from openhands.sdk import LLM
from openhands.sdk.context.condenser.llm_summarizing_condenser import default_condenser
from openhands.sdk.context.view import View
from openhands.sdk.event import ActionEvent, Condensation, MessageEvent, ObservationEvent, SystemPromptEvent
from openhands.sdk.event.base import LLMConvertibleEvent
from openhands.sdk.llm import LLMResponse, MessageToolCall, TextContent
from openhands.sdk.llm import Message as TheirMessage
from openhands.sdk.llm.utils.metrics import MetricsSnapshot
from openhands.sdk.tool import Observation
from pydantic import PrivateAttr

from ctxguard.harness.contestants import Course, Message

from .translated import Call, Spelling, calls_of


class Condensed:
    """Condense the log of events before each call, as long as the condenser asks for it."""

    def __init__(self, course: Course) -> None:
        self._course = course
        self._spelling = Spelling(course.messages)
        self._events: list[Any] = []
        self._done = 0
        self._llm = _FixedLLM(model="gpt-4o", usage_id="agent", max_input_tokens=course.available)
        self._llm.play(course, self.chat)
        self._condenser = default_condenser(self._llm)

    def send(self, end: int) -> object:
        """Return the messages of the condensed view."""
        for number in range(self._done, end):
            self._events += _events(number, self._course.messages[number])
        self._done = end
        while True:
            made = self._condenser.condense(View.from_events(self._events), agent_llm=self._llm)
            if not isinstance(made, Condensation):
                return LLMConvertibleEvent.events_to_messages(made.events)
            self._events.append(made)

    def chat(self, sent: object) -> Sequence[Message]:
        """Return what was sent as Chat Completions messages."""
        return [self._chat(message) for message in sent]  # type: ignore[attr-defined]

    def _chat(self, message: TheirMessage) -> Message:
        text = "\n".join(part.text for part in message.content if isinstance(part, TextContent))
        if message.role == "tool":
            return self._spelling.result(str(message.tool_call_id), text)
        made = {"role": message.role, "content": "", "tool_calls": [_dumped(call) for call in message.tool_calls or ()]}
        return self._spelling.message(message.role, text, list(calls_of(made)))


class _FixedLLM(LLM):
    """A model with the budget as its window and the bench's counter, which answers with the fixed summary."""

    _course: Any = PrivateAttr(default=None)
    _chat: Any = PrivateAttr(default=None)

    def play(self, course: Course, chat: Callable[[object], Sequence[Message]]) -> None:
        """Say how to count, and to summarize."""
        self._course, self._chat = course, chat

    def get_token_count(self, messages: list[TheirMessage], *given: Any, **settings: Any) -> int:
        del given, settings
        return self._course.count(self._chat(messages))

    def generate(self, messages: list[TheirMessage], *given: Any, **settings: Any) -> LLMResponse:
        del given, settings
        asked = [part.text for message in messages for part in message.content if isinstance(part, TextContent)]
        text = self._course.summarize("\n".join(asked[1:]))
        answer = TheirMessage(role="assistant", content=[TextContent(text=text)])
        return LLMResponse(message=answer, metrics=MetricsSnapshot(), raw_response=ModelResponse())


class _Result(Observation):
    """What a recorded tool returned."""


def _dumped(call: MessageToolCall) -> dict[str, object]:
    return {"id": call.id, "function": {"name": call.name, "arguments": call.arguments}}


def _events(number: int, message: Message) -> Iterator[Any]:
    text = TextContent(text=str(message["content"]))
    role: Any = message["role"]
    if role == "system":
        yield SystemPromptEvent(system_prompt=text, tools=[])
    elif role == "tool":
        call_id = str(message["tool_call_id"])
        result = _Result(content=[text])
        yield ObservationEvent(
            tool_name="tool", tool_call_id=call_id, observation=result, action_id=f"action-{call_id}"
        )
    elif message.get("tool_calls"):
        yield from _actions(number, text, list(calls_of(message)))
    else:
        source: Any = "agent" if role == "assistant" else "user"
        yield MessageEvent(source=source, llm_message=TheirMessage(role=role, content=[text]))


def _actions(number: int, text: TextContent, calls: list[Call]) -> Iterator[ActionEvent]:
    for place, call in enumerate(calls):
        made = MessageToolCall(id=call.id, name=call.name, arguments=json.dumps(call.arguments), origin="completion")
        yield ActionEvent(
            thought=[text] if not place else [],
            tool_name=call.name,
            tool_call_id=call.id,
            tool_call=made,
            llm_response_id=f"response-{number}",
        )
