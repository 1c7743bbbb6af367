"""A model of ADK's that plays a script offline, whole or as the pieces of a stream, and a runner for it."""

from __future__ import annotations

import asyncio
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.agents.run_config import RunConfig, StreamingMode
from google.adk.apps import App
from google.adk.models import BaseLlm, LlmResponse
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.genai import types


class ScriptedLlm(BaseLlm):
    """Answers call n with the n-th answer, or the last one: a text, or a list of texts and (name, args) pairs.

    A function among the answers gets the request and returns the answer. A stream cuts texts at `at` into two pieces,
    or at 0 into single characters, and ends with a response that repeats them, as Gemini's does.
    """

    model: str = "gemini-3-pro-preview"
    answers: list[Any]
    at: int = 0
    seen: list[str]
    requests: list[Any]

    def __init__(self, *answers, **settings):
        super().__init__(answers=list(answers), seen=[], requests=[], **settings)

    async def generate_content_async(self, llm_request, stream=False):
        self.requests.append(llm_request.model_copy(deep=False))
        config = llm_request.config.model_dump(mode="json", exclude_none=True, exclude={"response_schema"})
        self.seen.append(
            str([one.model_dump(mode="json", exclude_none=True) for one in llm_request.contents]) + str(config)
        )
        answer = self.answers[min(len(self.seen), len(self.answers)) - 1]
        answer = answer(llm_request) if callable(answer) else answer
        parts = [_part(one) for one in ([answer] if isinstance(answer, str) else answer)]
        pieces = [piece for part in parts for piece in self.pieces(part)] if stream else []
        for number, piece in enumerate(pieces, 1):
            await asyncio.sleep(0)
            reason = types.FinishReason.STOP if number == len(pieces) else None
            yield LlmResponse(content=types.Content(role="model", parts=[piece]), partial=True, finish_reason=reason)
        content = types.Content(role="model", parts=parts)
        yield LlmResponse(content=content, partial=False, finish_reason=types.FinishReason.STOP)

    def pieces(self, part):
        if not part.text:
            return [part]
        texts = [part.text[: self.at], part.text[self.at :]] if self.at else list(part.text)
        return [types.Part(text=text) for text in texts]


def _part(one):
    if isinstance(one, str):
        return types.Part(text=one)
    return types.Part(function_call=types.FunctionCall(name=one[0], args=one[1]))


class Chat:
    """A conversation of one user with an agent."""

    def __init__(self, agent, guard, user="ada", **settings):
        agent = LlmAgent(name="clerk", model=agent, **settings) if isinstance(agent, BaseLlm) else agent
        self.sessions = InMemorySessionService()
        app = App(name="shop", root_agent=agent, plugins=[guard])
        self.runner = Runner(app=app, session_service=self.sessions)
        self.user = user

    async def ask(self, text, *, streams=False):
        """Return the events of one turn."""
        name = {"app_name": "shop", "user_id": self.user, "session_id": f"of-{self.user}"}
        if await self.sessions.get_session(**name) is None:
            await self.sessions.create_session(**name)
        message = types.Content(role="user", parts=[types.Part(text=text)])
        mode = RunConfig(streaming_mode=StreamingMode.SSE if streams else StreamingMode.NONE)
        run = self.runner.run_async(
            user_id=self.user, session_id=name["session_id"], new_message=message, run_config=mode
        )
        events = [event async for event in run]
        self.session = await self.sessions.get_session(**name)
        return events


def text_of(events, *, partial=False):
    """Return the text of the last event, or of all pieces of a stream."""
    said = [event for event in events if bool(event.partial) is partial and event.content]
    said = said if partial else said[-1:]
    return "".join(part.text or "" for event in said for part in event.content.parts)


def calls_of(events):
    """Return the arguments of all calls in whole events."""
    return [call.args for event in events if not event.partial for call in event.get_function_calls()]
