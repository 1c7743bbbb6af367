"""`ctxguard_langchain.guarded`: a chat model that sends guarded, whatever is built around it."""

from __future__ import annotations

import json

import pytest
from tiers import crossed
from wire_server import WireProvider, provider_at

from ctxguard import Stabilizer
from ctxguard.errors import ConfigError
from ctxguard.wire import Guard

pytest.importorskip("langchain_core", reason="langchain-core is not installed (extra langchain)")
pytest.importorskip("langchain_openai", reason="langchain-openai is not installed")
pytest.importorskip("langchain_anthropic", reason="langchain-anthropic is not installed")

from langchain_anthropic import ChatAnthropic
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

from ctxguard_langchain import guarded

MAIL = "ann@example.com"
QUESTION = f"Find {MAIL}."


@tool
def look_up(query: str) -> str:
    """Look an order up."""
    return query


@pytest.fixture
def provider():
    return WireProvider(steps=0)


@pytest.fixture
def address(provider):
    with provider_at(provider) as address:
        yield address


def chat(address, **settings):
    return ChatOpenAI(model="gpt-4o", base_url=f"{address}/v1", api_key="none", max_retries=0, **settings)


def responses(address):
    return chat(address, use_responses_api=True)


def messages(address):
    return ChatAnthropic(model="claude-m", base_url=address, api_key="none", max_retries=0, max_tokens=9)


AROUND = {
    "alone": lambda model: model,
    "tools": lambda model: model.bind_tools([look_up]),
    "retries": lambda model: model.with_retry(),
    "fallbacks": lambda model: model.with_fallbacks([model]),
    "a chain": lambda model: ChatPromptTemplate.from_messages([("user", "{question}")]) | model,
    "settings": lambda model: model.bind(stop=["x"]).with_config(tags=["t"]),
}


@pytest.mark.parametrize(("around", "make"), crossed(2, AROUND, [chat, responses, messages]))
def test_whatever_is_built_around_a_model(provider, address, make, around):
    plain = AROUND[around](make(address))
    model = guarded(plain, Stabilizer(4_000))
    assert type(model) is type(plain)
    given = {"question": QUESTION} if around == "a chain" else QUESTION
    assert (model | StrOutputParser()).invoke(given) == f"All done, {MAIL}."
    assert "".join((model | StrOutputParser()).stream(given)) == f"All done, {MAIL}."
    assert len(provider.bodies) == 2
    assert MAIL not in json.dumps(provider.bodies)
    plain.invoke(given)
    assert MAIL in json.dumps(provider.bodies), "the model that was given stays as it is"


@pytest.mark.parametrize("make", [chat, responses, messages])
async def test_async(provider, address, make):
    model = guarded(make(address), Stabilizer(4_000)) | StrOutputParser()
    assert await model.ainvoke(QUESTION) == f"All done, {MAIL}."
    assert "".join([piece async for piece in model.astream(QUESTION)]) == f"All done, {MAIL}."
    assert MAIL not in json.dumps(provider.bodies)


def test_models_share_a_guard(provider, address):
    guard = Guard(Stabilizer(4_000))
    for make in (chat, messages):
        guarded(make(address), guard).invoke(QUESTION)
    assert "ctxguard_requests_total" in guard.metrics.text()
    assert MAIL not in json.dumps(provider.bodies)


@pytest.mark.parametrize(
    "given", [FakeListChatModel(responses=["x"]), FakeListChatModel(responses=["x"]).bind(stop=[])]
)
def test_a_model_without_such_a_client_is_refused_by_name(given):
    with pytest.raises(ConfigError, match="FakeListChatModel has no client of OpenAI's or Anthropic's SDK"):
        guarded(given, Stabilizer(4_000))


@pytest.mark.parametrize("given", ["gpt-4o", StrOutputParser()])
def test_what_is_no_model_is_refused(given):
    with pytest.raises(ConfigError, match=r"expected a chat model, got (str|StrOutputParser)"):
        guarded(given, Stabilizer(4_000))
