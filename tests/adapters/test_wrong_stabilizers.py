"""Whatever takes a stabilizer refuses anything else when it is made, not at the first request."""

from __future__ import annotations

import importlib
import warnings

import pytest

from ctxguard import Stabilizer
from ctxguard.compat.context_manager import ContextManager
from ctxguard.errors import ConfigError


def door(package, name):
    """Return what makes a guard, or skip where its framework is not installed."""
    framework, extra = _FRAMEWORKS[package]
    pytest.importorskip(framework, reason=f"{framework} is not installed (extra {extra})")
    return getattr(importlib.import_module(package), name)


_FRAMEWORKS = {  # modules within, because folders of tests have the names of frameworks
    "ctxguard_langchain": ("langchain.agents", "langchain"),
    "ctxguard_pydantic_ai": ("pydantic_ai.messages", "pydantic-ai"),
    "ctxguard_openai_agents": ("agents", "openai-agents"),
    "ctxguard_strands": ("strands", "strands"),
    "ctxguard_adk": ("google.adk", "adk"),
    "ctxguard_crewai": ("crewai", "crewai"),
}


def langchain_guard(given):
    return door("ctxguard_langchain", "ContextGuard")(given)


def langchain_hook(given):
    return door("ctxguard_langchain", "pre_model_hook")(given)


def langchain_history(given):
    guarded = door("ctxguard_langchain", "with_message_history")
    from langchain_core.chat_history import InMemoryChatMessageHistory
    from langchain_core.language_models.fake_chat_models import FakeListChatModel

    model = FakeListChatModel(responses=["hi"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # LangChain deprecates what it is built on
        return guarded(model, lambda session_id: InMemoryChatMessageHistory(), given)


def langchain_middleware(given):
    return door("ctxguard_langchain", "ContextGuardMiddleware")(given)


def langchain_persisting(given):
    return door("ctxguard_langchain", "ContextGuardMiddleware")(given, persist=True)


def managed_agent(given):
    return door("ctxguard_langchain", "ContextManagedAgent")(Agent(), given)


def pydantic_ai_guard(given):
    return door("ctxguard_pydantic_ai", "ContextGuard")(given)


def pydantic_ai_processor(given):
    return door("ctxguard_pydantic_ai", "history_processor")(given)


def agents_filter(given):
    return door("ctxguard_openai_agents", "call_model_input_filter")(given)


def strands_guard(given):
    return door("ctxguard_strands", "ContextGuard")(given)


def adk_guard(given):
    return door("ctxguard_adk", "ContextGuard")(given)


def crewai_guard(given):
    guarded = door("ctxguard_crewai", "guarded_llm")
    from crewai_agents.scripted_crew import ScriptedLLM

    return guarded(ScriptedLLM("done"), given)


class Agent:
    async def astream(self, given):
        yield given


OF_SESSIONS = [langchain_guard, langchain_hook, langchain_history]
DOORS = [
    *OF_SESSIONS,
    *(langchain_middleware, langchain_persisting, managed_agent),
    *(pydantic_ai_guard, pydantic_ai_processor, agents_filter),
    *(strands_guard, adk_guard, crewai_guard),
]


@pytest.mark.parametrize("make", DOORS)
@pytest.mark.parametrize("given", [None, 4_000, "80%", {"budget": 4_000}, Stabilizer, object()])
def test_what_is_no_stabilizer_is_refused_at_once(make, given):
    with pytest.raises(ConfigError, match=r"expected a .*Stabilizer.*, got .*write Stabilizer\(budget=…\)") as caught:
        make(given)
    assert caught.value.setting in ("stabilizer", "context_manager")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("make", [door for door in DOORS if door is not managed_agent])
@pytest.mark.parametrize("guard", [langchain_guard, pydantic_ai_guard, strands_guard])
def test_a_guard_in_place_of_the_stabilizer_is_refused_at_once(make, guard):
    """A guard of PydanticAI can be called, so it must not be taken for a function that gives a stabilizer."""
    with pytest.raises(ConfigError, match=r"already contains a stabilizer; pass the Stabilizer itself"):
        make(guard(Stabilizer(4_000)))


@pytest.mark.parametrize("make", DOORS)
def test_a_stabilizer_is_taken(make):
    assert make(Stabilizer(4_000)) is not None


@pytest.mark.parametrize("make", DOORS)
def test_a_stabilizer_of_a_class_of_your_own_is_taken_wherever_the_class_is_defined(make):
    own = type("Own", (Stabilizer,), {"__module__": "ctxguard_own.stabilizers"})
    assert make(own(4_000)) is not None


@pytest.mark.parametrize("make", OF_SESSIONS)
def test_a_function_that_gives_one_is_taken_where_sessions_have_their_own(make):
    assert make(lambda session: Stabilizer(4_000)) is not None


def test_a_context_manager_is_not_to_be_handed_over_as_a_class():
    with pytest.raises(ConfigError, match="expected a ContextManager or a Stabilizer"):
        managed_agent(ContextManager)
    assert managed_agent(ContextManager()) is not None
