"""Summarizers from a model name, a PydanticAI agent or model, a LangChain runnable, or an OpenAI client."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any, cast

from ctxguard.errors import ConfigError, SummarizerError
from ctxguard.settings import extra, install_command


def model_summarizer(name: str) -> Callable[[str], Awaitable[str]]:
    """Return a summarizer of a model, through PydanticAI if it is installed, else through LangChain.

    The model is created at the first request, so no key is needed before.

    Args:
        name: provider and model, such as `openai:gpt-5-mini`.

    Raises:
        ConfigError: the name has no provider.
        ImportError: neither framework is installed.
    """
    if not re.fullmatch(r"[\w-]+:\S+", name):
        raise ConfigError(
            f"a model is named provider:model, such as 'openai:gpt-5-mini', not {name!r}", setting="model"
        )
    framework = next((known for known in ("pydantic_ai", "langchain") if find_spec(known)), None)
    if framework is None:
        raise ImportError(f"a model name needs PydanticAI; {install_command('pydantic-ai')}")
    made: list[Callable[[str], Awaitable[str]]] = []

    async def summarize(prompt: str) -> str:
        if not made:
            made.append(pydantic_ai_summarizer(name) if framework == "pydantic_ai" else _langchain_model(name))
        return await made[0](prompt)

    return summarize


def _langchain_model(name: str) -> Callable[[str], Awaitable[str]]:
    return langchain_summarizer(import_module("langchain.chat_models").init_chat_model(name))


def pydantic_ai_summarizer(agent_or_model: object) -> Callable[[str], Awaitable[str]]:
    """Return a summarizer of a PydanticAI agent, or of a model or the name of one.

    Args:
        agent_or_model: an `Agent` is run as it is; anything else becomes the model of a plain one.

    Raises:
        ImportError: PydanticAI is not installed and no agent was given.
    """
    agent = agent_or_model if hasattr(agent_or_model, "run") else _plain_agent(agent_or_model)

    async def summarize(prompt: str) -> str:
        result = await cast("Any", agent).run(prompt)
        return str(getattr(result, "output", result))

    return summarize


def _plain_agent(model: object) -> object:
    with extra("pydantic-ai", "a model needs PydanticAI"):
        package = import_module("pydantic_ai")
    agent: object = package.Agent(model)
    return agent


def langchain_summarizer(runnable: object) -> Callable[[str], Awaitable[str]]:
    """Return a summarizer of a LangChain runnable that takes a text: a chat model, or a chain that ends in one."""
    if not hasattr(runnable, "ainvoke"):
        raise SummarizerError(f"expected a runnable with ainvoke(), got {type(runnable).__name__}")

    async def summarize(prompt: str) -> str:
        return _text_of(await cast("Any", runnable).ainvoke(prompt))

    return summarize


def _text_of(message: object) -> str:
    """Return the text of a message: its `text`, or its content if that is a text."""
    for field in ("text", "content"):
        value = getattr(message, field, None)
        if isinstance(value, str):
            return str(value)
    return str(message)


def openai_summarizer(client: object, model: str) -> Callable[[str], str | Awaitable[str]]:
    """Return a summarizer of an OpenAI client: sync of an `OpenAI`, async of an `AsyncOpenAI`.

    Args:
        client: anything with `chat.completions.create`.
        model: name of the model.
    """
    try:
        create = client.chat.completions.create  # type: ignore[attr-defined]  # the client's own shape
    except AttributeError:
        raise SummarizerError(f"expected a client with chat.completions, got {type(client).__name__}") from None

    def summarize(prompt: str) -> str | Awaitable[str]:
        reply = create(model=model, messages=[{"role": "user", "content": prompt}])
        return _awaited(reply) if isinstance(reply, Awaitable) else _choice(reply)

    return summarize


async def _awaited(reply: Awaitable[object]) -> str:
    return _choice(await reply)


def _choice(reply: object) -> str:
    return str(reply.choices[0].message.content or "")  # type: ignore[attr-defined]  # the reply's own shape
