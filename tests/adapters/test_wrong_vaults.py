"""Whatever takes a vault refuses anything but one session's when it is made, not when a tool is called."""

from __future__ import annotations

import importlib

import pytest

pytest.importorskip("cryptography", reason="cryptography is not installed (extra vault)")

from ctxguard import Stabilizer
from ctxguard.errors import ConfigError
from ctxguard.pii import Masker, Vault, new_key
from ctxguard.stores import MemoryStore


def door(package, name):
    """Return what takes a vault, or skip where its framework is not installed."""
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


def langchain_middleware(vault, **settings):
    return door("ctxguard_langchain", "ContextGuardMiddleware")(Stabilizer(4_000), vault=vault, **settings)


def pydantic_ai_guard(vault, **settings):
    return door("ctxguard_pydantic_ai", "ContextGuard")(Stabilizer(4_000), vault=vault, **settings)


def agents_tools(vault):
    return door("ctxguard_openai_agents", "with_vault")([], vault)


def strands_guard(vault, **settings):
    return door("ctxguard_strands", "ContextGuard")(Stabilizer(4_000), vault=vault, **settings)


def adk_guard(vault, **settings):
    return door("ctxguard_adk", "ContextGuard")(Stabilizer(4_000), vault=vault, **settings)


def crewai_guard(vault, **settings):
    guarded = door("ctxguard_crewai", "guarded_llm")
    from crewai_agents.scripted_crew import ScriptedLLM

    return guarded(ScriptedLLM("done"), Stabilizer(4_000), vault=vault, **settings)


DOORS = [
    langchain_middleware,
    pydantic_ai_guard,
    agents_tools,
    strands_guard,
    adk_guard,
    crewai_guard,
    lambda vault: Masker(vault=vault),
]


def needs_the_hook_of_pydantic_ai():
    capabilities = pytest.importorskip("pydantic_ai.capabilities", reason="PydanticAI is not installed")
    if not hasattr(capabilities.AbstractCapability, "get_wrapper_model"):
        pytest.skip("this PydanticAI has no hook to restore responses")


def all_sessions():
    return Vault(MemoryStore(), key=new_key())


@pytest.mark.parametrize("take", DOORS)
@pytest.mark.parametrize("given", [all_sessions(), "v.db", [], Vault], ids=["Vault", "text", "list", "class"])
def test_what_is_no_vault_of_a_session_is_refused_at_once(take, given):
    with pytest.raises(ConfigError, match=r"vault is one session's, not \w+; get it by Vault.session") as caught:
        take(given)
    assert caught.value.setting == "vault"
    assert "async" not in str(caught.value)


def test_a_function_that_gives_a_vault_late_is_told_so():
    async def vault_of():
        return all_sessions().session("one")

    given = vault_of()
    with pytest.raises(ConfigError, match=r"not coroutine; .*must not be async"):
        Masker(vault=given)
    given.close()


@pytest.mark.parametrize("take", DOORS)
def test_the_vault_of_a_session_is_taken(take):
    assert take(all_sessions().session("one")) is not None


@pytest.mark.parametrize("take", [langchain_middleware, pydantic_ai_guard, strands_guard, adk_guard, crewai_guard])
def test_restoring_needs_values_that_have_placeholders(take):
    if take is pydantic_ai_guard:
        needs_the_hook_of_pydantic_ai()
    with pytest.raises(ConfigError, match=r"restore=True has nothing to restore.*; give the guard vault=") as caught:
        take(None, restore=True)
    assert caught.value.setting == "restore"
    assert take(all_sessions().session("one"), restore=True) is not None


def test_a_durable_guard_needs_no_vault_and_takes_no_switch():
    guard = door("ctxguard_pydantic_ai", "DurableContextGuard")
    needs_the_hook_of_pydantic_ai()
    assert guard(Stabilizer(4_000)) is not None
    with pytest.raises(ConfigError, match="DurableContextGuard has no setting 'restore'"):
        guard(Stabilizer(4_000), restore=True)


def test_a_function_that_chooses_a_vault_is_written_with_the_name_of_the_session():
    with pytest.raises(ConfigError, match=r"not dict; .*write vault=lambda context: vaults\.session"):
        all_sessions().session({"user": "ada"})


def test_a_masked_session_takes_the_session_first():
    masked = door("ctxguard_openai_agents", "MaskedSession")
    with pytest.raises(ConfigError, match=r"not SessionVault; write MaskedSession\(session, vault\)"):
        masked(all_sessions().session("one"), object())


def test_tools_get_a_vault_and_the_list_comes_first():
    with_vault, session = door("ctxguard_openai_agents", "with_vault"), all_sessions().session("one")
    with pytest.raises(ConfigError, match="vault is one session's, not None"):
        with_vault([], None)
    with pytest.raises(ConfigError, match="not list"):
        with_vault("v", [session])
    with pytest.raises(ConfigError, match="tools are a list of an agent's tools, not str"):
        with_vault("v", session)
    with pytest.raises(ConfigError, match="tools are a list of an agent's tools, not NoneType"):
        with_vault(None, session)


@pytest.mark.parametrize(
    "guard", [("ctxguard_pydantic_ai", "ContextGuard"), ("ctxguard_langchain", "ContextGuardMiddleware")]
)
@pytest.mark.parametrize("limit", ["x", 0, 0.5, True])
def test_a_limit_of_results_is_a_number_of_tokens(limit, guard):
    with pytest.raises(ConfigError, match="max_result_tokens") as caught:
        door(*guard)(Stabilizer(4_000), max_result_tokens=limit)
    assert caught.value.setting == "max_result_tokens"


@pytest.mark.parametrize("make", ["ContextGuard", "pre_model_hook"])
def test_a_model_of_langchain_is_no_name(make):
    with pytest.raises(ConfigError, match="model is the chat model itself, not str; by its name, give window=…"):
        door("ctxguard_langchain", make)(Stabilizer(4_000), model="gpt-4o")


@pytest.mark.parametrize("state", [{}, {"msgs": []}, {"messages": None}])
def test_a_state_without_messages_is_refused(state):
    hook = door("ctxguard_langchain", "pre_model_hook")(Stabilizer(4_000))
    with pytest.raises(Exception, match="the state has no 'messages'"):
        hook.invoke(state)


def test_a_managed_agent_quotes_nothing_of_what_it_was_given():
    with pytest.raises(ConfigError, match="got dict; write") as caught:
        door("ctxguard_langchain", "ContextManagedAgent")(None, {"to": "ada@corp-mail.net"})
    assert "ada" not in str(caught.value)
