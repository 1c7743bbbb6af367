"""A stabilizer or a guard in another place than its own: one line of ours says what to write, where we are called."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import warnings
from abc import ABC

import pytest

pytest.importorskip("langchain", reason="langchain is not installed (extra langchain)")
pytest.importorskip("agents", reason="the Agents SDK is not installed (extra openai-agents)")
pytest.importorskip("pydantic_ai", reason="PydanticAI is not installed (extra pydantic-ai)")

from agents import Agent as OpenAIAgent
from agents import RunConfig, Runner
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.messages import HumanMessage
from langchain_core.prompts import ChatPromptTemplate
from pydantic_ai import Agent, capabilities

import ctxguard_langchain
import ctxguard_openai_agents
import ctxguard_pydantic_ai
from ctxguard import Stabilizer
from ctxguard.errors import ConfigError, CtxguardError

MODEL = FakeListChatModel(responses=["hi"])
STABILIZER = Stabilizer(8_000)
MIDDLEWARE = ctxguard_langchain.ContextGuardMiddleware(STABILIZER)
CAPABILITY = ctxguard_pydantic_ai.ContextGuard(STABILIZER)
PROCESSOR = ctxguard_pydantic_ai.history_processor(STABILIZER)
TAKES_FUNCTIONS = hasattr(capabilities, "CapabilityFunc")


def before_a_model(given):
    (given | MODEL).invoke("hello")


def behind_a_model(given):
    (MODEL | given).invoke("hello")


def before_a_prompt(given):
    (given | ChatPromptTemplate.from_template("{question}") | MODEL).invoke({"question": "hello"})


def as_a_graphs_hook(given):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # LangGraph deprecates its prebuilt agents, the oldest as they are imported
        from langgraph.prebuilt import create_react_agent

        create_react_agent(MODEL, [], pre_model_hook=given).invoke({"messages": [HumanMessage("hello")]})


def as_a_capability(given):
    if not TAKES_FUNCTIONS:
        pytest.skip("this PydanticAI takes no functions as capabilities, and never calls what it is given")
    asyncio.run(Agent("test", capabilities=[given]).run("hello"))


def as_a_history_processor(given):
    capability = getattr(capabilities, "ProcessHistory", None) or capabilities.HistoryProcessor
    asyncio.run(Agent("test", capabilities=[capability(given)]).run("hello"))


def as_a_filter_of_the_agents_sdk(given):
    asyncio.run(Runner.run(OpenAIAgent("a"), "hello", run_config=RunConfig(call_model_input_filter=given)))


IN_LANGCHAIN = r"prompt \| ContextGuard\(stabilizer\) \| model in a chain, .* each from ctxguard_langchain"
IN_PYDANTIC_AI = r"write capabilities=\[ContextGuard\(stabilizer\)\], or .* each from ctxguard_pydantic_ai"
IN_THE_AGENTS_SDK = r"RunConfig\(call_model_input_filter=call_model_input_filter\(stabilizer\)\)"
STEP = ctxguard_langchain.ContextGuard(STABILIZER)


@pytest.mark.parametrize(
    ("place", "given", "says"),
    [
        *((place, STABILIZER, IN_LANGCHAIN) for place in (before_a_model, behind_a_model, as_a_graphs_hook)),
        *((place, STABILIZER, IN_PYDANTIC_AI) for place in (as_a_capability, as_a_history_processor)),
        (as_a_filter_of_the_agents_sdk, STABILIZER, IN_THE_AGENTS_SDK),
        *((place, MIDDLEWARE, IN_LANGCHAIN) for place in (before_a_model, behind_a_model, as_a_graphs_hook)),
        *((place, MIDDLEWARE, IN_PYDANTIC_AI) for place in (as_a_capability, as_a_history_processor)),
        (as_a_filter_of_the_agents_sdk, MIDDLEWARE, IN_THE_AGENTS_SDK),
        (behind_a_model, STEP, "the guard goes before the model"),
        (before_a_prompt, STEP, "the guard goes between prompt and model"),
        (as_a_graphs_hook, STEP, r"pre_model_hook\(stabilizer\)"),
        *((place, STEP, IN_PYDANTIC_AI) for place in (as_a_capability, as_a_history_processor)),
        (as_a_filter_of_the_agents_sdk, STEP, IN_THE_AGENTS_SDK),
        (before_a_model, CAPABILITY, IN_LANGCHAIN),
        (as_a_history_processor, CAPABILITY, IN_PYDANTIC_AI),
        (as_a_filter_of_the_agents_sdk, CAPABILITY, IN_THE_AGENTS_SDK),
        (as_a_capability, PROCESSOR, r"ProcessHistory\(history_processor"),
        (as_a_capability, ctxguard_pydantic_ai.history_processor, IN_PYDANTIC_AI),
        (as_a_history_processor, ctxguard_pydantic_ai.history_processor, IN_PYDANTIC_AI),
        (as_a_capability, ctxguard_pydantic_ai.ContextGuard, IN_PYDANTIC_AI),
        (as_a_graphs_hook, ctxguard_langchain.pre_model_hook, IN_LANGCHAIN),
        (before_a_model, ctxguard_langchain.ContextGuard, r"write Stabilizer\(budget=…\)"),
    ],
)
def test_what_is_called_in_another_place_says_what_to_write(place, given, says):
    with pytest.raises(CtxguardError, match=says) as caught:
        place(given)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("given", [STABILIZER, STEP, CAPABILITY, ctxguard_langchain.pre_model_hook(STABILIZER)])
def test_what_is_no_middleware_says_which_class_to_import(given):
    from langchain.agents import create_agent

    kind = type(given)
    line = rf"{kind.__name__} of ctxguard\w* is not agent middleware; write middleware=\[ContextGuardMiddleware\(sta"
    with pytest.raises(ConfigError, match=line):
        create_agent(MODEL, [], middleware=[given])
    assert not hasattr(kind, "wrap_tool_call")
    assert inspect.getmembers(kind)


def test_the_class_of_the_middleware_says_how_to_make_an_instance():
    from langchain.agents import create_agent

    class Own(ctxguard_langchain.ContextGuardMiddleware, ABC):
        """A subclass with another base that has a metaclass."""

    for given in (ctxguard_langchain.ContextGuardMiddleware, Own):
        with pytest.raises(ConfigError, match=r"the class .*; write middleware=\[ContextGuardMiddleware\(Stabilizer\("):
            create_agent(MODEL, [], middleware=[given])
        assert inspect.getmembers(given)
        assert create_agent(MODEL, [], middleware=[given(STABILIZER)])


GUARDS = [
    *(ctxguard_langchain.ContextGuard, ctxguard_langchain.ContextGuardMiddleware, ctxguard_langchain.pre_model_hook),
    *(ctxguard_pydantic_ai.ContextGuard, ctxguard_pydantic_ai.history_processor),
    ctxguard_openai_agents.call_model_input_filter,
]


@pytest.mark.parametrize("guard", GUARDS)
@pytest.mark.parametrize(
    ("args", "named", "says"),
    [
        ((), {"budget": 8_000}, "budget is a setting of the Stabilizer; write {}(Stabilizer(budget=…))"),
        (
            (),
            {"policy": "chat"},
            "policy is a setting of the Stabilizer; write {}(Stabilizer.from_policy('chat', budget=…))",
        ),
        (
            (STABILIZER,),
            {"target": 0.5},
            "target is a setting of the Stabilizer; write {}(Stabilizer(budget=…, target=…))",
        ),
        ((), {}, "{} needs a Stabilizer; write {}(Stabilizer(budget=8_000))"),
        ((STABILIZER, 8_000), {}, "{} takes a Stabilizer, and all else by name ("),
        ((STABILIZER,), {"windw": 5}, "{} has no setting 'windw' (did you mean 'window'?); known are stabilizer, "),
        ((8_000,), {}, "expected a Stabilizer, got 8000; write Stabilizer(budget=…)"),
        ((Stabilizer,), {}, "expected a Stabilizer, got the class Stabilizer; write Stabilizer(budget=…)"),
    ],
)
def test_arguments_that_do_not_fit_are_explained_with_the_right_line(guard, args, named, says):
    with pytest.raises(ConfigError) as caught:
        guard(*args, **named)
    assert str(caught.value).startswith(says.replace("{}", guard.__name__))


CLIENTS = ("ctxguard_openai", "ctxguard_anthropic", "ctxguard_google")


@pytest.mark.parametrize("package", [*CLIENTS, "ctxguard_bedrock"])
def test_a_guarded_client_needs_a_stabilizer_and_says_so_with_the_client_first(package):
    guarded = importlib.import_module(package).guarded
    with pytest.raises(ConfigError, match=r"guarded needs a Stabilizer; write guarded\(client, Stabilizer\(budget"):
        guarded(object())
    with pytest.raises(ConfigError, match=r"budget is a setting of the Stabilizer; write guarded\(client, Stabilizer"):
        guarded(object(), budget=8_000)
    with pytest.raises(ConfigError, match=r"expected .*, got \w+"):
        guarded(STABILIZER, object())


def test_the_vault_of_a_guard_on_http_is_that_of_all_sessions():
    pytest.importorskip("cryptography", reason="cryptography is not installed (extra vault)")
    from ctxguard.pii import Vault, new_key
    from ctxguard.stores import MemoryStore
    from ctxguard.wire import Guard

    vault = Vault(MemoryStore(), key=new_key())
    assert Guard(STABILIZER, vault=vault)
    with pytest.raises(ConfigError, match="vault is that of all sessions here, not SessionVault"):
        Guard(STABILIZER, vault=vault.session("one"))


@pytest.mark.parametrize("guard", GUARDS)
def test_an_editor_shows_the_parameters_of_every_guard(guard):
    parameters = inspect.signature(guard).parameters.values()
    assert next(iter(parameters)).name == "stabilizer"
    assert not {each.kind for each in parameters} & {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}
