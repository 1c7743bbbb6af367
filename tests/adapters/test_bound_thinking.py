"""Thinking that its provider bound to all before it: in every door it stays where that is as it was, and goes elsewhere.

Each thought names a hash of the prompt it was written under; the model refuses one that stands behind another prompt,
as Anthropic's models of 2026 do.
"""

from __future__ import annotations

import hashlib
import json

import pytest

from ctxguard import Artifact, Stabilizer
from ctxguard.adapting.adapter import stabilize_native
from ctxguard.artifacts import Kind
from ctxguard.compaction import CompactionConfig, HistoryCompactor
from ctxguard.policies import default_stages
from ctxguard_anthropic import AnthropicAdapter, stabilize_request

TURNS = 22
LETTERS = str.maketrans("0123456789", "ghijklmnop")  # no digits, which masking rules might take


class BindingModel:
    """Judge the thinking of each request, then think, call a tool or answer."""

    def __init__(self, adapter):
        self.adapter, self.kept, self.refused = adapter, [], 0

    def think(self, messages):
        """Return the next thought, and whether a tool is to be called."""
        artifacts = self.adapter.read(messages)
        kept = 0
        for place, artifact in enumerate(artifacts):
            for part in artifact.content if isinstance(artifact.content, tuple) else ():
                if part.kind == "reasoning":
                    kept += 1
                    self.refused += part.text != self.thought(artifacts[:place])
        self.kept.append((kept, sum(a.kind is Kind.ASSISTANT for a in artifacts)))
        return self.thought(artifacts), artifacts[-1].kind is Kind.USER

    @staticmethod
    def thought(artifacts):
        seen = [(a.kind.value, a.text, [c.arguments for c in a.calls], a.answers) for a in artifacts]
        return "thought " + hashlib.sha256(repr(seen).encode()).hexdigest().translate(LETTERS)


def question(turn):
    return f"Question {turn} of ann@example.com. " + "word " * 20


def log(step):
    return f"a line of the log of step {step}, bob@example.com\n" * 8


async def raw(stabilizer):
    model, history = BindingModel(AnthropicAdapter()), []
    for turn in range(TURNS):
        history.append({"role": "user", "content": question(turn)})
        for step in range(2):
            request, report = stabilize_request({"system": "Be brief.", "messages": history}, stabilizer)
            assert report.ok
            words, calls = model.think(request)
            thinking = {"type": "thinking", "thinking": words, "signature": "s"}
            use = {"type": "tool_use", "id": f"t{turn}", "name": "look_up", "input": {}}
            history.append({"role": "assistant", "content": [thinking, use if calls else answer(turn)]})
            if calls:
                result = {"type": "tool_result", "tool_use_id": f"t{turn}", "content": log(step)}
                history.append({"role": "user", "content": [result]})
    return model


def answer(turn):
    return {"type": "text", "text": f"answer {turn}"}


async def langchain(stabilizer):
    pytest.importorskip("langchain", reason="LangChain is not installed (extra langchain)")
    from langchain.agents import create_agent
    from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
    from langchain_core.messages import AIMessage, HumanMessage
    from langchain_core.tools import tool

    from ctxguard_langchain import ContextGuardMiddleware, LangChainAdapter

    model = BindingModel(LangChainAdapter())

    class Binding(GenericFakeChatModel):
        messages: object = iter(())

        def bind_tools(self, tools, **kwargs):
            return self

        def _generate(self, messages, **kwargs):
            words, calls = model.think(messages)
            content = [{"type": "thinking", "thinking": words, "signature": "s"}]
            call = [{"name": "look_up", "args": {}, "id": f"t{len(model.kept)}"}] if calls else []
            self.messages = iter([AIMessage(content if calls else [*content, answer(0)], tool_calls=call)])
            return super()._generate(messages, **kwargs)

    @tool
    def look_up() -> str:
        """Look it up."""
        return log(0)

    agent = create_agent(Binding(), [look_up], middleware=[ContextGuardMiddleware(stabilizer)])
    history = []
    for turn in range(TURNS):
        history = agent.invoke({"messages": [*history, HumanMessage(question(turn))]})["messages"]
    return model


async def pydantic_ai(stabilizer):
    pytest.importorskip("pydantic_ai", reason="PydanticAI is not installed (extra pydantic-ai)")
    from pydantic_ai import Agent
    from pydantic_ai.messages import ModelResponse, TextPart, ThinkingPart, ToolCallPart
    from pydantic_ai.models.function import FunctionModel

    from ctxguard_pydantic_ai import ContextGuard, PydanticAIAdapter

    model = BindingModel(PydanticAIAdapter())

    def reply(messages, info):
        words, calls = model.think(messages)
        thinking = ThinkingPart(words, signature="s", provider_name="anthropic")
        return ModelResponse(parts=[thinking, ToolCallPart("look_up", {}) if calls else TextPart("answer")])

    agent = Agent(FunctionModel(reply), capabilities=[ContextGuard(stabilizer)])
    agent.tool_plain(name="look_up")(lambda: log(0))
    history = []
    for turn in range(TURNS):
        history = (await agent.run(question(turn), message_history=history)).all_messages()
    return model


@pytest.mark.parametrize("door", [raw, langchain, pydantic_ai])
async def test_no_thought_stands_behind_another_prompt_than_its_own(door):
    model = await door(Stabilizer(1_200, counter="estimate"))
    assert len(model.kept) == 2 * TURNS
    assert model.refused == 0
    assert any(kept == replies > 1 for kept, replies in model.kept), "thinking from after a cut stays"
    assert any(kept < replies for kept, replies in model.kept), "thinking from before a cut goes"


def test_without_the_rule_thoughts_would_be_refused():
    adapter = AnthropicAdapter()
    history = []
    for turn in range(TURNS):
        thinking = {"type": "thinking", "thinking": f"thought {turn}", "signature": "s"}
        history += [
            {"role": "user", "content": question(turn)},
            {"role": "assistant", "content": [thinking, answer(0)]},
        ]
    stabilizer = Stabilizer(600, counter="estimate")
    kept, _ = stabilize_native(stabilizer, adapter, history, keep_thinking=True)
    left, report = stabilize_native(stabilizer, adapter, history)
    assert "thinking" in str(kept)
    assert str(left).count("signature") < str(kept).count("signature")
    assert any(d.stage == "DropStaleThinking" for decision in report.decisions for d in decision.steps)


async def test_a_summary_leaves_no_thinking_behind_it():
    async def summarized(text):
        return "They asked for the log."

    compactor = HistoryCompactor(
        CompactionConfig(max_tokens=600, target_tokens=300), summarizer=summarized, counter="estimate"
    )
    history = []
    for turn in range(TURNS):
        thinking = {"type": "thinking", "thinking": f"thought {turn}", "signature": "s"}
        history += [
            {"role": "user", "content": question(turn)},
            {"role": "assistant", "content": [thinking, answer(0)]},
        ]
    compacted = await compactor.compact(history)
    assert len(compacted) < len(history)
    assert "They asked for the log." in str(compacted)
    assert "thinking" not in str(compacted)


@pytest.mark.parametrize("place", range(7))
@pytest.mark.parametrize("adds", [False, True])
def test_a_stage_of_ones_own_is_named_where_it_takes_later_thinking_with_it(place, adds):
    def changes_the_middle(draft):
        kept = [a for a in draft.artifacts if a.text != "Thanks."]
        if adds:
            kept.insert(2, Artifact("user", "Be quick."))
        return draft.revise(kept, reason="to be brief")

    stages = list(default_stages())
    stabilizer = Stabilizer(4_000, stages=[*stages[:place], changes_the_middle, *stages[place:]])
    call = {"type": "tool_use", "id": "c1", "name": "f", "input": {}}
    thought = {"type": "thinking", "thinking": "hm", "signature": "c2lnbmVk"}
    history = [
        {"role": "user", "content": "Hi."},
        {"role": "assistant", "content": "Hello."},
        {"role": "user", "content": "Thanks."},
        {"role": "user", "content": "Count."},
        {"role": "assistant", "content": [thought, call]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "17"}]},
    ]
    sent, report = stabilize_native(stabilizer, AnthropicAdapter(), history)
    assert "thinking" not in json.dumps(sent)
    reasons = [step.reason for one in report.decisions for step in one.steps if step.stage == "DropStaleThinking"]
    assert reasons == ["its thinking was signed for a prompt that changes_the_middle changed"]
