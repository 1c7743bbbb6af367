"""200 turns with compaction through every adapter: nothing lost, nothing paid twice, the same in each."""

from __future__ import annotations

import pytest
from builders import chat_call
from conversions import anthropic_of, langchain_of, pydantic_ai_of, responses_of

from ctxguard.adapting.adapter import stabilize_native
from ctxguard.adapting.registry import find_adapter
from ctxguard.compaction import CompactionConfig, HistoryCompactor
from ctxguard.compaction.history import SUMMARY
from ctxguard.errors import AdapterError
from ctxguard.testing import law_findings

SMALL = CompactionConfig(max_tokens=600, target_tokens=250)
TURNS = 200
FORMATS = {
    "openai": list,
    "openai-responses": responses_of,
    "anthropic": lambda messages: anthropic_of(messages)["messages"],
    "pydantic-ai": pydantic_ai_of,
    "langchain": langchain_of,
}


def turn(number):
    """Return a turn in the steps in which it grows: what stands before each model call, then the reply."""
    arguments = f'{{"step": {number}}}'
    call = chat_call(f"c{number}", "look_up", arguments)
    found = {
        "role": "tool",
        "tool_call_id": f"c{number}",
        "content": f"Step {number} of the plan for the move is this.",
    }
    return (
        [{"role": "user", "content": f"Question {number}: what comes next in the plan?"}],
        [{"role": "assistant", "content": None, "tool_calls": [call]}, found],
        [{"role": "assistant", "content": f"Answer {number} about the plan for the move."}],
    )


def adapter_for(name):
    try:
        return find_adapter(name)
    except AdapterError as missing:
        pytest.skip(str(missing))


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMATS)
def test_200_turns_with_compaction(name):
    adapter, prompts, native, before, said = adapter_for(name), [], [], [], []

    def summarize(prompt):
        prompts.append(prompt)
        return f"Up to request {len(prompts)} all went well."

    stabilizer = HistoryCompactor(SMALL, summarizer=summarize).as_stabilizer()
    for *asked, reply in map(turn, range(TURNS)):
        for messages in asked:
            native = [*native, *FORMATS[name](messages)]
            sent, report = stabilize_native(stabilizer, adapter, native)
            result = adapter.read(sent)
            texts = [(a.kind, a.text) for a in result]
            assert report.tokens_after <= SMALL.max_tokens
            assert [f for f in law_findings([], result, stabilizer) if f.startswith("pairs")] == []
            assert result[-1].text == messages[-1]["content"]
            assert texts[: len(before)] == before or report.cut.fresh
            before = texts
        native = [*native, *FORMATS[name](reply)]
        said += [message["content"] for step in asked for message in step if message["content"]]
    assert sum(text.startswith(f"[{SUMMARY}") for _, text in texts) == 1
    assert len(prompts) == len(set(prompts)) > 5, "nothing is paid twice"
    kept, summarised = {text for _, text in texts}, "".join(prompts)
    assert [text for text in said if text not in kept and text not in summarised] == [], "nothing is lost"
