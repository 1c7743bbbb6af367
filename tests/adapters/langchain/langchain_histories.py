"""Conversations of other kinds as LangChain messages, and models that play a script."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from langchain_core.language_models import BaseChatModel
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
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
        if self.reply is not None:
            self.messages = iter([self.reply(messages)])
        return super()._generate(messages, stop=stop, run_manager=run_manager, **kwargs)


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


def messages_of_dicts(session: Sequence[dict[str, Any]]) -> list[BaseMessage]:
    """Carry a recorded session of OpenAI dicts over without loss of what the model reads."""
    return [_recorded(message) for message in session]


def _recorded(message: dict[str, Any]) -> BaseMessage:
    content, name = message.get("content") or "", message.get("name")
    match message["role"]:
        case "system" | "developer":
            return SystemMessage(content, name=name)
        case "user":
            return HumanMessage(content, name=name)
        case "tool":
            return ToolMessage(content, tool_call_id=message.get("tool_call_id") or "", name=name)
    valid, invalid = [], []
    for call in message.get("tool_calls") or ():
        _sort_call(call, valid, invalid)
    spoken = {key: message[key] for key in ("reasoning_content", "refusal") if message.get(key)}
    return AIMessage(content, name=name, tool_calls=valid, invalid_tool_calls=invalid, additional_kwargs=spoken)


def _sort_call(call: dict[str, Any], valid: list[Any], invalid: list[Any]) -> None:
    name, text = call["function"]["name"], call["function"]["arguments"]
    try:
        args = json.loads(text)
    except ValueError:
        args = None
    if isinstance(args, dict):
        valid.append({"name": name, "args": args, "id": call.get("id")})
    else:
        invalid.append({"name": name, "args": text, "id": call.get("id"), "error": None})


def as_langchain_sends(session: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Spell a session of dicts as LangChain would: arguments as its OpenAI converter, an empty id is none."""
    return [_spelled(message) for message in session]


def _spelled(message: dict[str, Any]) -> dict[str, Any]:
    if message.get("tool_call_id") == "":
        return {**message, "tool_call_id": None}
    if message.get("tool_calls"):
        return {**message, "tool_calls": [_spelled_call(call) for call in message["tool_calls"]]}
    return message


def _spelled_call(call: dict[str, Any]) -> dict[str, Any]:
    function = call["function"]
    try:
        args = json.loads(function["arguments"])
    except ValueError:
        args = None
    text = json.dumps(args, ensure_ascii=False) if isinstance(args, dict) else function["arguments"]
    return {**call, "id": call.get("id") or None, "function": {**function, "arguments": text}}
