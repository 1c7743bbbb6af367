"""A guarded client of the official SDKs: one call, the same connections, sync and async."""

from __future__ import annotations

import json

import pytest
from wire_server import WireProvider, provider_at

import ctxguard_anthropic
import ctxguard_openai
from ctxguard import Stabilizer
from ctxguard.errors import ConfigError

openai = pytest.importorskip("openai", reason="openai is not installed")
anthropic = pytest.importorskip("anthropic", reason="anthropic is not installed")

MAIL = "ann@example.com"
MESSAGES = [{"role": "user", "content": f"Find {MAIL}."}]


@pytest.fixture
def provider():
    return WireProvider(steps=0)


@pytest.fixture
def address(provider):
    with provider_at(provider) as address:
        yield address


def test_openai(provider, address):
    with openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0) as plain:
        client = ctxguard_openai.guarded(plain, Stabilizer(4_000))
        said = client.chat.completions.create(model="m", messages=MESSAGES).choices[0].message.content
        client.close()
        assert said == f"All done, {MAIL}."
        assert MAIL not in json.dumps(provider.bodies)
        plain.chat.completions.create(model="m", messages=MESSAGES)
        assert MAIL in json.dumps(provider.bodies)


async def test_async_openai(provider, address):
    async with openai.AsyncOpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0) as plain:
        client = ctxguard_openai.guarded(plain, Stabilizer(4_000))
        answer = await client.responses.create(model="m", input=MESSAGES)
        assert answer.output_text == f"All done, {MAIL}."
        text = ""
        async for chunk in await client.chat.completions.create(model="m", messages=MESSAGES, stream=True):
            text += chunk.choices[0].delta.content or ""
    assert text == f"All done, {MAIL}."
    assert MAIL not in json.dumps(provider.bodies)


def test_anthropic(provider, address):
    with anthropic.Anthropic(base_url=address, api_key="none", max_retries=0) as plain:
        client = ctxguard_anthropic.guarded(plain, Stabilizer(4_000))
        message = client.messages.create(model="m", max_tokens=9, messages=MESSAGES)
    assert message.content[-1].text == f"All done, {MAIL}."
    assert MAIL not in json.dumps(provider.bodies)


def test_a_refused_request_is_an_error_of_the_sdk_at_once(provider, address):
    with openai.OpenAI(base_url=f"{address}/v1", api_key="none") as plain:
        client = ctxguard_openai.guarded(plain, Stabilizer(40))
        with pytest.raises(openai.BadRequestError, match="the mandatory messages need") as caught:
            client.chat.completions.create(model="m", messages=[{"role": "user", "content": "word " * 200}])
    assert caught.value.code == "context_length_exceeded"
    assert provider.bodies == []


def test_an_older_httpx_is_served_alike(provider, address):
    httpx = pytest.importorskip("httpx")
    from ctxguard.wire import Transport

    with httpx.Client(transport=Transport(Stabilizer(4_000)), base_url=address) as client:
        answer = client.post("/v1/chat/completions", json={"model": "m", "messages": MESSAGES})
    assert answer.json()["choices"][0]["message"]["content"] == f"All done, {MAIL}."


async def test_pydantic_ai(provider, address):
    models = pytest.importorskip("pydantic_ai.models.openai")
    providers = pytest.importorskip("pydantic_ai.providers.openai")
    from pydantic_ai import Agent

    from ctxguard.wire import AsyncTransport

    library = __import__(openai.DefaultHttpxClient.__mro__[1].__module__.partition(".")[0])
    async with library.AsyncClient(transport=AsyncTransport(Stabilizer(4_000))) as http:
        client = openai.AsyncOpenAI(base_url=f"{address}/v1", api_key="none", http_client=http)
        agent = Agent(models.OpenAIChatModel("m", provider=providers.OpenAIProvider(openai_client=client)))
        result = await agent.run(f"Find {MAIL}.")
    assert result.output == f"All done, {MAIL}."
    assert MAIL not in json.dumps(provider.bodies)


@pytest.mark.parametrize("guard", [4_000, None])
def test_a_stabilizer_is_wanted(guard):
    with openai.OpenAI(api_key="none") as plain, pytest.raises(ConfigError, match="expected a Stabilizer"):
        ctxguard_openai.guarded(plain, guard)
