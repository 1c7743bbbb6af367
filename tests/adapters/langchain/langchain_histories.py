"""Conversations of other kinds as LangChain messages, and models that play a script."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from langchain_core.language_models import BaseChatModel
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from pydantic import Field

from ctxguard.artifacts import Artifact, Kind

needs_profiles = pytest.mark.skipif(
    "profile" not in BaseChatModel.model_fields, reason="this version of langchain-core has no model profiles"
)


class ScriptedChatModel(GenericFakeChatModel):
    """LangChain's own fake, with tools bound, and a record of what it was sent."""

    messages: Iterator[Any] = iter(())
    reply: Callable[[list[BaseMessage]], AIMessage] | None = None
    seen: list[list[BaseMessage]] = Field(default_factory=list)
    tools: list[Any] = Field(default_factory=list)

    def bind_tools(self, tools, **kwargs):
        return self.bind(tools=list(tools))

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        self.seen.append(list(messages))
        if self.reply is None:
            return super()._generate(messages, stop=stop, run_manager=run_manager, **kwargs)
        return ChatResult(generations=[ChatGeneration(message=self.reply(messages))])


def messages_of(history: Sequence[Artifact]) -> list[BaseMessage]:
    return [_message(artifact) for artifact in history]


def _message(artifact: Artifact) -> BaseMessage:
    extra = {"response_metadata": {"kept": True}}
    if artifact.kind is Kind.SYSTEM:
        return SystemMessage(artifact.text, **extra)
    if artifact.kind is Kind.TOOL:
        return ToolMessage(artifact.text, tool_call_id=artifact.answers or "", artifact={"raw": 1}, **extra)
    if artifact.kind is Kind.ASSISTANT:
        calls = [{"name": c.name, "args": json.loads(c.arguments), "id": c.id} for c in artifact.calls]
        return AIMessage(artifact.text, tool_calls=calls, **extra)
    return HumanMessage(artifact.text, **extra)
