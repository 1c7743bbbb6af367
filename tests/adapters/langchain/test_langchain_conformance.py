"""The LangChain adapter passes the suite that every adapter passes."""

from __future__ import annotations

from langchain_core.messages import BaseMessage
from langchain_histories import messages_of

from ctxguard.testing import AdapterConformance
from ctxguard_langchain import LangChainAdapter


class NarratorMessage(BaseMessage):
    type: str = "narrator"


class TestLangChainAdapter(AdapterConformance):
    adapter = LangChainAdapter()

    def native(self, history):
        return messages_of(history)

    def unknown(self):
        return NarratorMessage(content="Meanwhile.", additional_kwargs={"x": 7})
