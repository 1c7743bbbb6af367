"""A guard of one framework that is given to another says which one goes there; so does a stabilizer by itself."""

from __future__ import annotations

import copy
import pickle

import pytest

from ctxguard import Stabilizer
from ctxguard.adapting.per_run import is_function
from ctxguard.errors import ConfigError, MisplacedError
from ctxguard.wire import Guard


def of_langchain(name):
    return getattr(pytest.importorskip("ctxguard_langchain"), name)(Stabilizer(1_000))


def of_pydantic_ai():
    return pytest.importorskip("ctxguard_pydantic_ai").ContextGuard(Stabilizer(1_000))


def of_the_agents_sdk():
    return pytest.importorskip("ctxguard_openai_agents").call_model_input_filter(Stabilizer(1_000))


OBJECTS = {
    "ctxguard.Stabilizer": lambda: Stabilizer(1_000),
    "ctxguard.Guard": lambda: Guard(Stabilizer(1_000)),
    "ctxguard_langchain.ContextGuard": lambda: of_langchain("ContextGuard"),
    "ctxguard_langchain.ContextGuardMiddleware": lambda: of_langchain("ContextGuardMiddleware"),
    "ctxguard_pydantic_ai.ContextGuard": of_pydantic_ai,
    "ctxguard_openai_agents.call_model_input_filter": of_the_agents_sdk,
}


def of_history_processor():
    return pytest.importorskip("ctxguard_pydantic_ai").history_processor(Stabilizer(1_000))


def chat_model():
    fakes = pytest.importorskip("langchain_core.language_models.fake_chat_models")
    return fakes.FakeListChatModel(responses=["hi"])


async def create_agent(given):
    pytest.importorskip("langchain.agents").create_agent(chat_model(), middleware=[given])


async def chain(given):
    await (given | chat_model()).ainvoke("hello")


def newest_pydantic_ai():
    capabilities = pytest.importorskip("pydantic_ai.capabilities")
    if not hasattr(capabilities, "ProcessHistory"):
        pytest.skip("this PydanticAI asks other hooks first, and says itself that they are missing")
    return capabilities


async def capability(given):
    newest_pydantic_ai()
    from pydantic_ai.models.test import TestModel

    await pytest.importorskip("pydantic_ai").Agent(TestModel(), capabilities=[given]).run("hello")


async def history_processor(given):
    await capability(newest_pydantic_ai().ProcessHistory(given))


async def input_filter(given):
    agents = pytest.importorskip("agents")
    testing = pytest.importorskip("agents.testing")
    agents.set_tracing_disabled(True)
    agent = agents.Agent("clerk", model=testing.ScriptedModel([]))
    await agents.Runner.run(agent, "hello", run_config=agents.RunConfig(call_model_input_filter=given))


GOES = {
    (create_agent, "ctxguard_langchain.ContextGuardMiddleware"),
    (chain, "ctxguard_langchain.ContextGuard"),
    (capability, "ctxguard_pydantic_ai.ContextGuard"),
    (input_filter, "ctxguard_openai_agents.call_model_input_filter"),
    # functions have no place for words of ours: the frameworks' own errors say what they want
    (create_agent, "ctxguard_openai_agents.call_model_input_filter"),
    (chain, "ctxguard_openai_agents.call_model_input_filter"),
}
DOORS = (create_agent, chain, capability, history_processor, input_filter)
WRONG = [(door, name) for door in DOORS for name in OBJECTS if (door, name) not in GOES]


@pytest.mark.parametrize(("door", "name"), WRONG, ids=[f"{door.__name__}-{name}" for door, name in WRONG])
async def test_the_error_names_what_was_given_and_what_goes_there(door, name):
    with pytest.raises(MisplacedError, match=f"^{name} does not go here") as caught:
        await door(OBJECTS[name]())
    assert isinstance(caught.value, ConfigError)
    assert "\n" not in str(caught.value)


async def test_a_history_processor_among_the_capabilities_says_where_it_goes():
    with pytest.raises(MisplacedError, match=r"^what ctxguard_pydantic_ai\.history_processor returns does not go here"):
        await capability(of_history_processor())


@pytest.mark.parametrize("name", ["ctxguard.Stabilizer", "ctxguard.Guard", "ctxguard_langchain.ContextGuardMiddleware"])
def test_a_chain_that_begins_with_what_is_no_step_of_one_is_not_even_built(name):
    with pytest.raises(MisplacedError, match=f"^{name} does not go here"):
        OBJECTS[name]() | chat_model()


@pytest.mark.parametrize("name", [name for name in OBJECTS if not name.endswith("filter")])
def test_whoever_only_asks_is_told_that_there_is_no_hook(name):
    made = OBJECTS[name]()
    assert hasattr(made, "wrap_tool_call") is name.endswith("Middleware")
    assert not is_function(made), "it is no function from a run's context to a stabilizer"
    assert type(copy.copy(made)) is type(made)


def test_the_error_survives_pickling():
    error = pickle.loads(pickle.dumps(MisplacedError("ctxguard.Stabilizer")))
    assert (error.given, error.setting) == ("ctxguard.Stabilizer", "stabilizer")


def test_no_error_quotes_what_somebody_said():
    with pytest.raises(ConfigError) as caught:
        Stabilizer([{"role": "user", "content": "I am ada@example.com"}])
    assert "ada" not in str(caught.value)
    with pytest.raises(ConfigError) as caught:
        Stabilizer("I am ada@example.com, hello there")
    assert "ada" not in str(caught.value)
