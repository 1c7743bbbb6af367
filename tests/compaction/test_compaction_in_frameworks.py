"""HistoryCompactor through PydanticAI and LangChain: 200 turns, nothing lost, nothing paid twice."""

from __future__ import annotations

import asyncio

import pytest

from ctxguard.compaction import (
    CompactionConfig,
    HistoryCompactor,
    langchain_summarizer,
    openai_summarizer,
    pydantic_ai_summarizer,
)
from ctxguard.compaction.history import SUMMARY
from ctxguard.errors import SummarizerError

SMALL = CompactionConfig(max_tokens=600, target_tokens=250)
TURNS = 200


class Summarizer:
    def __init__(self):
        self.prompts = []

    async def __call__(self, prompt):
        self.prompts.append(prompt)
        return f"Up to request {len(self.prompts)} all went well."


@pytest.mark.slow
def test_pydantic_ai_compacts_over_200_turns():
    pydantic_ai = pytest.importorskip("pydantic_ai", reason="PydanticAI is not installed")
    from pydantic_ai.messages import ModelResponse, TextPart
    from pydantic_ai.models.function import FunctionModel

    seen = []

    def answer(messages, info):
        text = str(messages)
        seen.append((len(messages), SUMMARY in text))
        return ModelResponse(parts=[TextPart(f"Answer {len(seen)} about the plan for the move.")])

    summarizer = Summarizer()
    processor = HistoryCompactor(SMALL, summarizer=summarizer).create_history_processor()
    capabilities = pytest.importorskip("pydantic_ai.capabilities", reason="this PydanticAI has no capabilities")
    agent = pydantic_ai.Agent(FunctionModel(answer), capabilities=[capabilities.ProcessHistory(processor)])

    async def converse():
        history = []
        for turn in range(TURNS):
            result = await agent.run(f"Question {turn}: what comes next in the plan?", message_history=history)
            history = result.all_messages()
        return history

    asyncio.run(converse())
    assert len(seen) == TURNS
    assert seen[-1][1]
    assert max(count for count, _ in seen) < 60
    assert len(summarizer.prompts) == len(set(summarizer.prompts)) > 5


def test_langchain_compacts_over_200_turns():
    pytest.importorskip("langchain_core", reason="LangChain is not installed")
    from langchain_core.messages import AIMessage, HumanMessage

    from ctxguard_langchain import ContextGuard

    summarizer = Summarizer()
    guard = ContextGuard(HistoryCompactor(SMALL, summarizer=summarizer).as_stabilizer())

    async def converse():
        history, last = [], []
        for turn in range(TURNS):
            history.append(HumanMessage(f"Question {turn}: what comes next in the plan?"))
            last = await guard.ainvoke(history)
            assert last[-1] is history[-1] or last[-1].content == history[-1].content
            assert len(last) < 60
            history.append(AIMessage(f"Answer {turn} about the plan for the move."))
        return history, last

    history, last = asyncio.run(converse())
    assert len(history) == 2 * TURNS
    assert any(str(m.content).startswith(f"[{SUMMARY}") for m in last)
    assert len(summarizer.prompts) == len(set(summarizer.prompts)) > 5


def test_a_pydantic_ai_agent_or_model_summarises():
    pydantic_ai = pytest.importorskip("pydantic_ai", reason="PydanticAI is not installed")
    from pydantic_ai.models.test import TestModel

    model = TestModel(custom_output_text="From the model.")
    assert asyncio.run(pydantic_ai_summarizer(model)("x")) == "From the model."
    assert asyncio.run(pydantic_ai_summarizer(pydantic_ai.Agent(model))("x")) == "From the model."


def test_a_langchain_runnable_summarises():
    pytest.importorskip("langchain_core", reason="LangChain is not installed")
    from langchain_core.language_models.fake_chat_models import FakeListChatModel
    from langchain_core.output_parsers import StrOutputParser

    model = FakeListChatModel(responses=["From the chain."])
    assert asyncio.run(langchain_summarizer(model)("x")) == "From the chain."
    assert asyncio.run(langchain_summarizer(model | StrOutputParser())("x")) == "From the chain."
    with pytest.raises(SummarizerError, match="ainvoke"):
        langchain_summarizer(object())


def test_an_openai_client_summarises_over_the_wire():
    openai = pytest.importorskip("openai", reason="the OpenAI SDK is not installed")
    httpx = pytest.importorskip("httpx")

    def reply(request):
        assert b"the prompt" in request.content
        choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "From the client."}}
        body = {"id": "x", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice]}
        return httpx.Response(200, json=body)

    transport = httpx.MockTransport(reply)
    with openai.OpenAI(api_key="none", http_client=httpx.Client(transport=transport)) as client:
        assert openai_summarizer(client, "m")("the prompt") == "From the client."

    async def ask():
        async with openai.AsyncOpenAI(api_key="none", http_client=httpx.AsyncClient(transport=transport)) as client:
            return await openai_summarizer(client, "m")("the prompt")

    assert asyncio.run(ask()) == "From the client."
    with pytest.raises(SummarizerError, match=r"chat\.completions"):
        openai_summarizer(object(), "m")
