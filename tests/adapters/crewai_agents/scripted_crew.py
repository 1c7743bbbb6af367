"""An LLM of CrewAI's that plays a script offline, with and without native calls, and agents for it."""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any

from crewai import Agent, BaseLLM, Crew, Task
from crewai.events.types.llm_events import LLMCallType
from crewai.llms.base_llm import llm_call_context


class ScriptedLLM(BaseLLM):
    """Answers call n with the n-th answer, or the last one: a text, or a list of (name, arguments as JSON) pairs.

    A function among the answers gets the messages and returns the answer. A stream cuts texts at `at` into two pieces,
    or at 0 into single characters.
    """

    answers: list[Any]
    at: int = 0
    native: bool = True
    streams: bool = False
    seen: list[Any]

    def __init__(self, *answers, **settings):
        super().__init__(**{"model": "scripted", **settings}, answers=list(answers), seen=[])

    def supports_function_calling(self):
        return self.native

    def get_context_window_size(self):
        return 100_000

    def call(self, messages, tools=None, callbacks=None, available_functions=None, **settings):
        return self._answer(messages, tools, available_functions, settings)

    async def acall(self, messages, tools=None, callbacks=None, available_functions=None, **settings):
        return self._answer(messages, tools, available_functions, settings)

    def _answer(self, messages, tools, available_functions, settings):
        self.seen.append(copy.deepcopy({"messages": messages, "tools": tools}))
        answer = self.answers[min(len(self.seen), len(self.answers)) - 1]
        answer = answer(messages) if callable(answer) else answer
        if isinstance(answer, Exception):
            raise answer
        of = {key: settings.get(key) for key in ("from_task", "from_agent")}
        with llm_call_context():
            if isinstance(answer, str):
                for piece in self._pieces(answer) if self.streams else ():
                    self._emit_stream_chunk_event(piece, call_type=LLMCallType.LLM_CALL, **of)
                self._emit_call_completed_event(answer, LLMCallType.LLM_CALL, messages=messages, **of)
                if output := settings.get("response_model"):
                    return self._validate_structured_output(answer, output)
                return answer
            if available_functions:
                import json

                ((name, arguments),) = answer
                return self._handle_tool_execution(name, json.loads(arguments), available_functions, **of)
            calls = [called(f"c{len(self.seen)}_{n}", *one) for n, one in enumerate(answer)]
            self._emit_call_completed_event(calls, LLMCallType.TOOL_CALL, messages=messages, **of)
            return calls

    def _pieces(self, text):
        return [text[: self.at], text[self.at :]] if self.at else list(text)


def called(identity, name, arguments):
    return SimpleNamespace(id=identity, type="function", function=SimpleNamespace(name=name, arguments=arguments))


def agent_of(llm, tools=(), **settings):
    words = {"role": "clerk", "goal": "Answer.", "backstory": "Brief."}
    return Agent(**{**words, **settings}, llm=llm, tools=list(tools), max_iter=40, verbose=False)


def crew_of(llm, asked, tools=(), *, task=None, **settings):
    agent = agent_of(llm, tools, **settings)
    work = Task(description=asked, expected_output="The answer.", agent=agent, **(task or {}))
    return Crew(agents=[agent], tasks=[work], verbose=False)
