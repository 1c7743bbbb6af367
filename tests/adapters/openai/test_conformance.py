"""The OpenAI adapter passes the suite that every adapter passes."""

from __future__ import annotations

from builders import chat_call
from openai.types.chat import ChatCompletionMessageParam

from ctxguard.artifacts import Kind
from ctxguard.testing import AdapterConformance
from ctxguard_openai import OpenAIAdapter


class TestOpenAIAdapter(AdapterConformance):
    adapter = OpenAIAdapter()
    classes = (ChatCompletionMessageParam,)

    def native(self, history):
        return [_message(artifact) for artifact in history]

    def unknown(self):
        return {"role": "narrator", "content": "Meanwhile.", "x-trace": 7}


def _message(artifact):
    message = {"role": str(artifact.kind), "content": artifact.text, "x-unknown": {"kept": True}}
    if artifact.calls:
        message["content"] = artifact.text or None
        message["tool_calls"] = [chat_call(c.id, c.name, c.arguments) for c in artifact.calls]
    if artifact.kind is Kind.TOOL:
        message["tool_call_id"] = artifact.answers
    return message
