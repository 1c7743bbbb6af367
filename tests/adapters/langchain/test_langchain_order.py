"""The guard warns of middleware that stands behind it, by name, once."""

from __future__ import annotations

import warnings

import pytest
from langchain.agents import create_agent
from langchain.agents import middleware as middlewares
from langchain.agents.middleware import AgentMiddleware
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage

from ctxguard import Stabilizer
from ctxguard_langchain import ContextGuardMiddleware


class AddsRules(AgentMiddleware):
    def wrap_model_call(self, request, handler):
        return handler(request)

    async def awrap_model_call(self, request, handler):
        return await handler(request)


class AddsMemory(AddsRules):
    pass


def agent(*middleware):
    return create_agent(GenericFakeChatModel(messages=iter([AIMessage("hi")] * 4)), middleware=middleware)


@pytest.mark.parametrize("runs_async", [False, True])
async def test_what_stands_behind_is_named_once(runs_async):
    made = agent(ContextGuardMiddleware(Stabilizer(1_000)), AddsRules(), AddsMemory())
    given = {"messages": [("user", "hello")]}
    with pytest.warns(UserWarning, match="does not see what AddsRules, AddsMemory adds after it; put the guard last"):
        await made.ainvoke(given) if runs_async else made.invoke(given)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        await made.ainvoke(given) if runs_async else made.invoke(given)


@middlewares.wrap_model_call
def adds_a_note(request, handler):
    return handler(request)


@middlewares.dynamic_prompt
def writes_a_prompt(request):
    return "ask boss@example.com"


@pytest.mark.parametrize("behind", [adds_a_note, writes_a_prompt], ids=lambda one: one.name)
def test_functions_that_a_decorator_made_middleware_are_named_too(behind):
    with pytest.warns(UserWarning, match=f"does not see what {behind.name} adds after it"):
        agent(ContextGuardMiddleware(Stabilizer(1_000)), behind).invoke({"messages": [("user", "hello")]})


@pytest.mark.parametrize(
    "middleware",
    [
        [ContextGuardMiddleware(Stabilizer(1_000))],
        [AddsRules(), ContextGuardMiddleware(Stabilizer(1_000))],
    ],
    ids=["alone", "last"],
)
def test_no_warning_where_nothing_is_added(middleware):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        agent(*middleware).invoke({"messages": [("user", "hello")]})


def test_a_retry_behind_the_guard_adds_nothing():
    if not hasattr(middlewares, "ModelRetryMiddleware"):
        pytest.skip("this LangChain has no ModelRetryMiddleware")
    retries = middlewares.ModelRetryMiddleware(max_retries=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        agent(ContextGuardMiddleware(Stabilizer(1_000)), retries).invoke({"messages": [("user", "hello")]})


class Reminds(AgentMiddleware):
    """Change the state before each call of the model."""

    def before_model(self, state, runtime):
        return {"messages": [("user", "Mind boss@example.com.")]}


@pytest.mark.parametrize("persist", [False, True])
def test_what_changes_the_state_behind_the_guard_is_seen_by_it(persist):
    """Hooks before the model run before all that wraps it, wherever they stand in the list: nothing to warn of."""
    model = GenericFakeChatModel(messages=iter([AIMessage("hi")]))
    reports = []
    guard = ContextGuardMiddleware(Stabilizer(1_000), persist=persist, on_report=reports.append)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        create_agent(model, middleware=[guard, Reminds()]).invoke({"messages": [("user", "hello")]})
    assert [decision.action for decision in reports[-1].decisions] == ["kept", "masked"]
