"""What an adapter puts where nothing is left of a message is counted by every way to a chain, not by its doors alone."""

from __future__ import annotations

from ctxguard import ContextConfig, Stabilizer
from ctxguard.adapting.adapter import stabilize_native
from ctxguard.compat.context_manager import ContextManager
from ctxguard.harness.replay import replay
from ctxguard.harness.sessions import RecordedSession
from ctxguard.policies import agent_stages
from ctxguard.tokens import ArtifactCounter, find_counter
from ctxguard_anthropic import AnthropicAdapter

ADAPTER = AnthropicAdapter()


def thought(number):
    return {"type": "thinking", "thinking": f"thought {number} " * 20, "signature": "s" * 40}


def history(turns=12):
    """Replies of which a cut leaves nothing: they hold thinking alone."""
    messages = []
    for number in range(turns):
        messages.append({"role": "user", "content": f"Question {number}. " + "word " * 30})
        messages.append({"role": "assistant", "content": [thought(number)]})
    return [*messages, {"role": "user", "content": "And now?"}]


def test_replay_counts_what_is_written():
    def emptied(draft):
        blank = [a.revised(content="") if a.text.startswith("Question 0") else a for a in draft.artifacts]
        return draft.revise(blank, action="bounded", reason="a test")

    native = history()
    stabilizer = Stabilizer(600, stages=[*agent_stages(), emptied], counter="estimate")
    told = replay(RecordedSession("one", native, ADAPTER), stabilizer)
    calls = [
        stabilize_native(stabilizer, ADAPTER, native[:end])[1]
        for end in range(1, len(native))
        if native[end]["role"] == "assistant"
    ]
    assert told.figures.calls == len(calls)
    assert told.figures.tokens_after == sum(report.tokens_after for report in calls)


async def test_the_context_manager_counts_what_is_written():
    manager = ContextManager(
        ContextConfig(window_size=4, strategy="sliding_window", stabilizer={"counter": "estimate"})
    )
    native = history()
    written = await manager.process_messages(native)
    count = ArtifactCounter(find_counter("estimate"))
    assert [artifact.text for artifact in ADAPTER.read(written)].count("…") >= 1
    assert manager.report.tokens_after == count.artifacts(ADAPTER.read(written))
