"""The LangChain adapter passes the suite that every adapter passes."""

from __future__ import annotations

from typing import ClassVar

from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.messages.content import ContentBlock
from langchain_histories import messages_of

from ctxguard.testing import AdapterConformance
from ctxguard_langchain import LangChainAdapter


class NarratorMessage(BaseMessage):
    type: str = "narrator"


class TestLangChainAdapter(AdapterConformance):
    adapter = LangChainAdapter()
    classes = (
        HumanMessage,
        AIMessage,
        AIMessageChunk,
        ToolMessage,
        SystemMessage,
        FunctionMessage,
        ChatMessage,
        ContentBlock,
    )
    unsearched: ClassVar = {
        "*Message*.response_metadata*": "what the provider said of an answer; no package sends it back",
        "ToolMessage.artifact": "kept for the application; no package sends it",
    }

    def holding(self, item):
        return [item if isinstance(item, BaseMessage) else AIMessage(content=[item])]

    def native(self, history):
        return messages_of(history)

    def unknown(self):
        return NarratorMessage(content="Meanwhile.", additional_kwargs={"x": 7})
