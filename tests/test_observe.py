"""Shadow mode: the report says what would have been done, and what is sent is the original, in every door."""

from __future__ import annotations

import json

import pytest

import ctxguard
from ctxguard import Artifact, Stabilizer
from ctxguard.errors import ConfigError
from ctxguard.wire import Guard
from ctxguard.wire.guard import WireRequest
from ctxguard_anthropic import stabilize_request
from ctxguard_openai import stabilize_input, stabilize_messages

MAIL = "ada@example.com"
MESSAGES = [
    {"role": "user" if n % 2 == 0 else "assistant", "content": f"Line {n} for {MAIL}: " + "nothing new here. " * 20}
    for n in range(41)
]


def observing(budget=1_000, **settings):
    return Stabilizer(budget, mode="observe", **settings)


def test_the_core_gives_the_very_artifacts_back():
    artifacts = [Artifact(message["role"], message["content"]) for message in MESSAGES]
    result, enforced = observing().stabilize(artifacts), Stabilizer(1_000).stabilize(artifacts)
    assert all(was is now for was, now in zip(artifacts, result.artifacts, strict=True))
    assert result.report.observed
    assert not enforced.report.observed
    assert result.report.tokens_after == enforced.report.tokens_after <= 1_000
    assert result.report.counts() == enforced.report.counts()
    assert result.report.to_dict()["details"]["mode"] == "observe"


@pytest.mark.parametrize(
    "stabilize", [stabilize_messages, stabilize_input, lambda m, s: ctxguard.guard(m, budget=1_000, mode="observe")]
)
def test_lists_come_back_as_they_are(stabilize):
    done = stabilize(MESSAGES, observing())
    messages = done[0] if isinstance(done, tuple) else done
    assert all(was is now for was, now in zip(MESSAGES, messages, strict=True))


def test_a_request_comes_back_as_it_is():
    request = {
        "system": f"Serve {MAIL}.",
        "messages": MESSAGES,
        "tools": [{"name": "f", "description": MAIL, "input_schema": {}}],
    }
    done, report = stabilize_request(request, observing())
    assert done == request
    assert report.observed


@pytest.mark.parametrize("messages", [[{"role": "user", "content": "word " * 5_000}], [{"role": "user", "content": 5}]])
def test_what_would_be_refused_is_sent(messages):
    done, report = stabilize_messages(messages, observing(on_failure="raise"))
    assert done == messages
    assert report.details["would_have_raised"] in ("BudgetExceededError", "HistoryError")


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", {"model": "m", "messages": MESSAGES}),
        ("/v1/responses", {"model": "m", "input": MESSAGES}),
        ("/v1/messages", {"model": "m", "messages": [{"role": "user", "content": "word " * 5_000}]}),
        ("/v1/messages", {"model": "m", "messages": [{"role": "user", "content": 5}]}),
        ("/v1/embeddings", {"input": MAIL}),
    ],
)
def test_the_wire_sends_the_very_bytes(path, body):
    reports, raw = [], json.dumps(body, indent=1).encode()
    prepared = Guard(observing(), on_report=reports.append).prepare(WireRequest("POST", path, {}, raw))
    assert prepared.body is raw
    assert prepared.reply is None
    assert all(report.observed for report in reports)


@pytest.mark.slow
def test_langchain_and_pydantic_ai():
    langchain = pytest.importorskip("langchain_core.messages", reason="langchain-core is not installed")
    pytest.importorskip("langchain", reason="langchain is not installed (extra langchain)")
    pytest.importorskip("pydantic_ai", reason="PydanticAI is not installed (extra pydantic-ai)")
    from langchain.agents import create_agent
    from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
    from langchain_core.tools import tool
    from pydantic_ai import Agent
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
    from pydantic_ai.models.function import FunctionModel

    from ctxguard_langchain import ContextGuardMiddleware
    from ctxguard_pydantic_ai import ContextGuard

    text, seen, reports = "".join(str(m["content"]) for m in MESSAGES), [], []

    class Model(GenericFakeChatModel):
        def bind_tools(self, tools, **settings):
            return self

        def _generate(self, messages, *args, **settings):
            seen.append(str(messages[-1].content))
            return super()._generate(messages, *args, **settings)

    @tool
    def look_up() -> str:
        """Look it up."""
        return text

    call = {"name": "look_up", "args": {}, "id": "1"}
    model = Model(messages=iter([langchain.AIMessage("", tool_calls=[call]), langchain.AIMessage("done")]))
    guard = ContextGuardMiddleware(observing(), on_report=reports.append)
    create_agent(model, [look_up], middleware=[guard]).invoke({"messages": [("user", MAIL)]})
    assert seen == [MAIL, text]

    def scripted(messages, info):
        part = messages[-1].parts[-1]
        seen.append(part.content)
        return ModelResponse(
            parts=[ToolCallPart("look_up", {})] if part.part_kind == "user-prompt" else [TextPart("ok")]
        )

    agent = Agent(FunctionModel(scripted), capabilities=[ContextGuard(observing(), on_report=reports.append)])
    agent.tool_plain(look_up.func)
    agent.run_sync(MAIL)
    assert seen[2:] == [MAIL, text]
    assert len(reports) == 4
    assert all(report.observed for report in reports)


@pytest.mark.slow
async def test_the_agents_sdk():
    agents = pytest.importorskip("agents", reason="the Agents SDK (openai-agents) is not installed")
    pytest.importorskip("agents.testing", reason="this version of the Agents SDK has no scripted model")
    from agents.testing import ScriptedModel, assistant_message

    from ctxguard_openai_agents import call_model_input_filter

    agents.set_tracing_disabled(True)
    model, reports = ScriptedModel([[assistant_message("done")]]), []
    clerk = agents.Agent("clerk", model=model, instructions=f"Serve {MAIL}.")
    observes = call_model_input_filter(observing(), on_report=reports.append)
    config = agents.RunConfig(call_model_input_filter=observes)
    result = await agents.Runner.run(clerk, [dict(message) for message in MESSAGES], run_config=config)
    assert result.final_output == "done"
    assert list(model.calls[0].input) == MESSAGES
    assert model.calls[0].system_instructions == f"Serve {MAIL}."
    assert [report.observed for report in reports] == [True]
    assert reports[0].tokens_after <= 1_000 < reports[0].tokens_before


def test_there_are_two_modes():
    with pytest.raises(ConfigError, match="mode is 'enforce' or 'observe', not 'watch'"):
        Stabilizer(1_000, mode="watch")
