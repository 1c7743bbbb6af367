"""A guard can be pickled and copied as a stabilizer can: what it remembers stays behind, what it does is the same."""

from __future__ import annotations

import copy
import pickle

import pytest

from ctxguard import Stabilizer

WAYS = {"pickle": lambda guard: pickle.loads(pickle.dumps(guard)), "copy": copy.copy, "deepcopy": copy.deepcopy}
MAIL = "ann@example.com"


@pytest.fixture(params=WAYS)
def copied(request):
    return WAYS[request.param]


def chosen(_):
    return Stabilizer(900)


@pytest.mark.parametrize("stabilizer", [Stabilizer(900), chosen])
def test_of_langchain(copied, stabilizer):
    pytest.importorskip("langchain")
    from langchain.agents import create_agent
    from langchain_core.language_models.fake_chat_models import FakeListChatModel

    from ctxguard_langchain import ContextGuard, ContextGuardMiddleware

    guard = ContextGuard(stabilizer)
    guard.invoke(f"I am {MAIL}.")
    assert MAIL not in str(copied(guard).invoke(f"I am {MAIL}."))
    chain = copied(guard | FakeListChatModel(responses=["Yes."]))
    assert chain.invoke("Hi.").content == "Yes."
    for persist in (False, True):
        middleware = copied(ContextGuardMiddleware(stabilizer, persist=persist, max_result_tokens=100))
        agent = create_agent(FakeListChatModel(responses=["Yes."]), [], middleware=[middleware])
        assert agent.invoke({"messages": [("user", f"I am {MAIL}.")]})["messages"][-1].content == "Yes."


@pytest.mark.parametrize("stabilizer", [Stabilizer(900), chosen])
def test_of_strands(copied, stabilizer):
    strands = pytest.importorskip("strands")
    from strands_agents.scripted_strands import ScriptedModel

    from ctxguard_strands import ContextGuard

    model, guard = ScriptedModel("Yes."), ContextGuard(stabilizer)
    for one in (guard, copied(guard)):
        assert str(strands.Agent(model, plugins=[one], callback_handler=None)(f"I am {MAIL}.")).strip() == "Yes."
    assert MAIL not in str(model.calls)


@pytest.mark.parametrize("stabilizer", [Stabilizer(900), chosen])
def test_of_pydantic_ai(copied, stabilizer):
    pydantic_ai = pytest.importorskip("pydantic_ai")
    from pydantic_ai.models.function import FunctionModel

    from ctxguard_pydantic_ai import ContextGuard, DurableContextGuard

    def model(messages, info):
        seen.append(messages)
        return pydantic_ai.ModelResponse([pydantic_ai.TextPart("Yes.")])

    seen = []
    guards = [ContextGuard(stabilizer, max_result_tokens=100)]
    if hasattr(pydantic_ai.capabilities.AbstractCapability, "get_wrapper_model"):
        guards.append(DurableContextGuard(stabilizer))
    for one in [*guards, *map(copied, guards)]:
        agent = pydantic_ai.Agent(FunctionModel(model), capabilities=[one])
        assert agent.run_sync(f"I am {MAIL}.").output == "Yes."
    assert len(seen) == 2 * len(guards)
    assert MAIL not in str(seen)


def test_of_the_wire(copied):
    import json

    from ctxguard.wire import Credentials, Guard
    from ctxguard.wire.bodies import WireRequest

    body = json.dumps({"model": "gpt-4o", "messages": [{"role": "user", "content": f"I am {MAIL}."}]}).encode()
    request = WireRequest("POST", "/v1/chat/completions", {}, body)
    guard = Guard(Stabilizer(900), credentials=Credentials(), tools={"crm_*": True, "*": False}, holdout="5%")
    for one in (guard, copied(guard)):
        prepared = one.prepare(request)
        assert MAIL.encode() not in prepared.body
        assert prepared.reply.whole(b'{"choices": [{"message": {"role": "assistant", "content": "<EMAIL_1>"}}]}').count(
            MAIL.encode()
        )
    assert copied(guard).metrics.get("input.tokens") == 0 < guard.metrics.get("input.tokens")
