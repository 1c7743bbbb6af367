"""Settings that frameworks pass on to the model, and keys that they do not know, are searched and counted."""

from __future__ import annotations

import asyncio

import pytest

pytest.importorskip("langchain", reason="langchain is not installed (extra langchain)")
pytest.importorskip("pydantic_ai", reason="PydanticAI is not installed (extra pydantic-ai)")

from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage
from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel

from ctxguard import Stabilizer
from ctxguard.adapting.adapter import stabilize_native
from ctxguard.errors import BudgetExceededError, CheckFailedError
from ctxguard_langchain import ContextGuardMiddleware, LangChainAdapter
from ctxguard_pydantic_ai import ContextGuard

MAIL = "jane.doe@corp-mail.net"
LONG = "all the documents of the case " * 400


class Sets(AgentMiddleware):
    def __init__(self, settings):
        super().__init__()
        self.settings = settings

    def wrap_model_call(self, request, handler):
        return handler(request.override(model_settings=self.settings))


def langchain(settings):
    model = GenericFakeChatModel(messages=iter([AIMessage("hi")]))
    agent = create_agent(model, middleware=[Sets(settings), ContextGuardMiddleware(Stabilizer(1_000))])
    agent.invoke({"messages": [("user", "hello")]})


def pydantic_ai(settings):
    agent = Agent(TestModel(), capabilities=[ContextGuard(Stabilizer(1_000))])
    asyncio.run(agent.run("hello", model_settings=settings))


@pytest.mark.parametrize("run", [langchain, pydantic_ai])
def test_settings(run):
    run({"temperature": 0.5, "extra_body": {"user": "u1"}})
    with pytest.raises(CheckFailedError, match="EMAIL"):
        run({"extra_body": {"user": MAIL}})
    with pytest.raises(BudgetExceededError):
        run({"extra_body": {"documents": [LONG]}})


@pytest.mark.parametrize("kind", [AIMessage, HumanMessage])
def test_unknown_keys_of_langchain(kind):
    def sent(extras):
        message = kind("hello", additional_kwargs=extras)
        return stabilize_native(Stabilizer(9_000), LangChainAdapter(), [HumanMessage("hi"), message])

    assert sent({"lc_source": MAIL, "__own__": MAIL})[1].ok
    for key in ("note", "ticket_id"):  # a text may be masked, an id may not
        messages, report = sent({key: MAIL})
        assert MAIL not in str(messages[1].additional_kwargs) or not report.ok
    assert sent({"documents": LONG})[1].tokens_after > sent({})[1].tokens_after + 1_500
