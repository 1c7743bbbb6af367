"""A conversation whose prompt the provider refused as too long goes on with a smaller budget, and without old thinking.

The provider of these tests looks at thinking before it looks at the size of a prompt, as strict as can be: thinking
that was signed for the shorter prompt and comes back with the longer one is refused, and no second try follows.
"""

from __future__ import annotations

import pytest
from test_framework_loops import AgentsSdk, LangChain, PydanticAI, client_of, guarded, looped
from tiers import crossed
from wire_server import WireProvider, provider_at

from ctxguard import Stabilizer
from ctxguard.wire import AsyncTransport

pytest.importorskip("openai", reason="openai is not installed")
pytest.importorskip("anthropic", reason="anthropic is not installed")

STEPS, BUDGET, WINDOW = 20, 5_000, 3_000
TOO_LONG = "prompt is too long: This model's maximum context length is exceeded (context_length_exceeded)"


class Narrow(WireProvider):
    """Judge thinking first, and then refuse what has more tokens than the window."""

    def __init__(self, window=WINDOW):
        super().__init__(steps=STEPS)
        self.tokens_at_most = window

    def handle(self, path, body):
        self.bodies.append(body)
        judged = {"completions": self.chat, "responses": self.responses, "messages": self.messages}
        if path.endswith("messages"):
            for place, message in enumerate(body["messages"]):
                self.judge_message(place, message, body["messages"], body.get("system"))
        tokens = self.tokens(body)
        if tokens > self.tokens_at_most:
            self.bodies.pop()
            self.refused(TOO_LONG)
        return judged[path.rpartition("/")[2]](body)

    def refused(self, why):
        from loopback import RefusedError

        raise RefusedError(why)


def stabilizer():
    return Stabilizer(BUDGET, counter="o200k_base")


class OfLangChain(LangChain):
    def __init__(self, api):
        from ctxguard_langchain import ContextGuardMiddleware

        super().__init__(api, stream=False, middleware=[ContextGuardMiddleware(stabilizer())])


class OfPydanticAI(PydanticAI):
    def __init__(self, api):
        from ctxguard_pydantic_ai import ContextGuard

        super().__init__(api, stream=False, capabilities=[ContextGuard(stabilizer())])


class OfAgentsSdk(AgentsSdk):
    description = "Look an order up."  # the SDK lets no filter change it

    def __init__(self, api):
        from agents import RunConfig

        from ctxguard_openai_agents import call_model_input_filter

        config = RunConfig(call_model_input_filter=call_model_input_filter(stabilizer()))
        super().__init__(api, stream=False, run_config=config)

    def wrapped(self, model):
        from ctxguard_openai_agents import with_overflow_retry

        return with_overflow_retry(model)


def only_once_too_long(provider):
    """Tell that nothing but the size was ever refused, and the size not at every call."""
    assert set(provider.refusals) == {TOO_LONG}
    assert len(provider.refusals) <= 2
    assert len(provider.bodies) == STEPS + 1


OURS = [
    (OfLangChain, "chat"),
    pytest.param(OfLangChain, "messages", marks=pytest.mark.slow),
    pytest.param(OfPydanticAI, "chat", marks=pytest.mark.slow),
    (OfPydanticAI, "messages"),
    (OfAgentsSdk, "responses"),
]


@pytest.mark.parametrize(("kind", "api"), OURS)
async def test_in_the_guard_of_a_framework(kind, api):
    for module in kind.framework:
        pytest.importorskip(module, reason=f"{module} is not installed")
    provider, loop = Narrow(), kind(api)
    with provider_at(provider) as upstream:
        async with client_of(api, upstream, None) as client:
            await loop.run(client)
    only_once_too_long(provider)
    assert len(loop.looked_up) == STEPS


@pytest.mark.parametrize(("door", "api"), crossed(2, ["transport", "proxy"], ["chat", "responses", "messages"]))
async def test_on_the_wire(door, api):
    pytest.importorskip("pydantic_ai", reason="pydantic-ai is not installed")
    provider, loop = Narrow(), PydanticAI(api, stream=False)
    await looped(loop, provider, guarded(BUDGET), door)
    only_once_too_long(provider)
    assert len(loop.looked_up) == STEPS


class Restarted(AsyncTransport):
    """Remember nothing from one request to the next, as where each goes to another worker."""

    async def handle_async_request(self, request):
        self.guard = guarded(BUDGET)
        return await super().handle_async_request(request)


@pytest.mark.slow
@pytest.mark.parametrize("api", ["chat", "messages"])
async def test_where_another_process_answers_the_next_request(api):
    pytest.importorskip("pydantic_ai", reason="pydantic-ai is not installed")
    provider, loop = Narrow(), PydanticAI(api, stream=False)
    with provider_at(provider) as upstream:
        async with client_of(api, upstream, Restarted(guarded(BUDGET))) as client:
            await loop.run(client)
    assert len(loop.looked_up) == STEPS
    stale = [why for why in provider.refusals if "Invalid signature" in why]
    assert {*provider.refusals} == {TOO_LONG, *stale}
    assert bool(stale) is (api == "messages")
