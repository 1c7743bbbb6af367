"""spec/003, the context management strategy: component by component; docstrings quote the line they hold."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from types import SimpleNamespace

import builders
import pytest
from blocks import code_blocks, shimmed
from patience import calls_of

from ctxguard import Artifact, ContextConfig, ToolCall, compat
from ctxguard.compat.context_manager import ContextManager
from ctxguard.compat.metrics import ContextMetrics
from ctxguard.content import CompressionLevel, ConsoleMessageCompressor, MessageCompressor, SnapshotCompressor
from ctxguard.stages import CheckpointManager, IntelligentPruner, PruningRules, SlidingWindow


def talk(turns):
    history = [Artifact("user", "Buy a red kettle.")]
    for n in range(turns):
        word = ("shelf", "aisle", "corner", "basket")[n % 4]
        history += [Artifact("assistant", f"I looked at {word} {n}."), Artifact("user", f"Go to the next {word}.")]
    return history


def step(n, text):
    return builders.step(f"c{n}", text, tool="look", arguments=f'{{"n": {n}}}')


def places(kept, history):
    """Return where each kept artifact stood."""
    numbers = {id(artifact): number for number, artifact in enumerate(history)}
    return [numbers[id(artifact)] for artifact in kept]


def run(messages, **fields):
    manager = ContextManager(ContextConfig(**fields))
    return asyncio.run(manager.process_messages(messages)), manager


def test_the_parts_of_a_context_manager():
    """> Manages conversation context for ReAct agents"""
    manager = ContextManager(ContextConfig())
    assert isinstance(manager.window, SlidingWindow)
    assert isinstance(manager.compressor, MessageCompressor)
    assert isinstance(manager.checkpoints, CheckpointManager)
    assert isinstance(manager.pruner, IntelligentPruner)
    assert isinstance(manager.metrics, ContextMetrics)


@pytest.mark.parametrize(
    "name",
    [
        *("ContextManager", "ContextConfig", "SlidingWindow", "MessageCompressor", "CompressionLevel", "BrowserState"),
        *("SnapshotCompressor", "ConsoleMessageCompressor", "CheckpointManager", "Checkpoint", "IntelligentPruner"),
        *("PruningRules", "ImportanceScorer", "ContextMetrics", "CompressionEvent", "ContextManagedAgent", "PageState"),
    ],
)
def test_the_documents_names_are_in_one_place(name):
    """> class ContextManager:"""
    assert name in compat.__all__
    assert getattr(compat, name).__name__ == {"BrowserState": "PageState"}.get(name, name)


async def test_compress_may_be_awaited():
    """> messages = await self.compressor.compress(messages)"""
    history = step(1, "a line of text\n" * 4_000)
    compressor = MessageCompressor("medium", counter="estimate")
    assert await compressor.compress(history) == compressor.compress(history)
    assert compressor.snapshot_compressor.compress("- main") == "- main"
    assert isinstance(compressor.console_compressor, ConsoleMessageCompressor)


@pytest.mark.parametrize("level", ["low", "medium", "high"])
def test_agents_words_are_compressed_at_every_level(level):
    """> elif msg.type == "agent":"""
    long, short = Artifact("assistant", "I looked at a shelf.\n" * 4_000), Artifact("assistant", "Done.")
    compressed = MessageCompressor(level, counter="estimate").compress([long, short])
    assert len(compressed[0].text) < len(long.text) / 3
    assert compressed[1] is short


def test_metrics_take_native_messages():
    """> self.metrics.record_input_size(messages)"""
    from langchain_core.messages import AIMessage, HumanMessage

    metrics = ContextMetrics(counter="estimate")
    metrics.record_input_size([HumanMessage("Where is the kettle?"), AIMessage("On the stove.")])
    assert 8 < metrics.total_input_tokens < 30


@pytest.mark.parametrize("strategy", ["sliding_window", "checkpoint", "hybrid"])
def test_process_messages(strategy):
    """> strategy: str = "sliding_window"  # sliding_window, checkpoint, hybrid"""
    history = talk(60)
    result, manager = run(history, strategy=strategy)
    assert len(result) <= len(history)
    assert manager.metrics.total_input_tokens >= manager.metrics.total_output_tokens > 0
    assert history == talk(60)


def test_sliding_window():
    """> def __init__(self, window_size: int = 15):"""
    history = talk(60)
    assert SlidingWindow().window_size == 15
    assert SlidingWindow(5).apply(history) == [history[0], *history[-5:]]


def test_initial_instructions_are_preserved():
    """> Preserve initial instructions"""
    assert run(talk(60))[0][0].text == "Buy a red kettle."


@pytest.mark.parametrize(
    "text",
    [
        "Error: no such page",
        "An error occurred while the page loaded",
        '{"status": "error"}',
        "### Error\nTimeout",
        "ERROR",
    ],
)
def test_error_messages_are_preserved(text):
    """> Preserve error messages"""
    history = talk(60)
    history[11] = Artifact("assistant", text)
    assert history[11] in run(history)[0]
    assert history[11] not in run(history, preserve_errors=False)[0]


@pytest.mark.parametrize("text", ["You are logged in.", "Cart updated: 2 items", "The order completed."])
def test_state_changes_are_preserved(text):
    """> for keyword in ["logged in", "cart updated", "order completed"]"""
    history = talk(60)
    history[11] = Artifact("assistant", text)
    assert history[11] in run(history)[0]


def test_preserved_and_recent_are_merged_without_duplicates():
    """> Merge preserved and recent, avoiding duplicates"""
    history = [*talk(20), Artifact("assistant", "Error: no such page"), Artifact("user", "Try again.")]
    result, _ = run(history)
    assert len({id(artifact) for artifact in result}) == len(result)
    assert places(result, history) == sorted(places(result, history))


def test_user_messages_are_not_compressed():
    """> return msg  # Don't compress user messages"""
    message = Artifact("user", "please " * 3_000)
    assert MessageCompressor("high", counter="estimate").compress([message])[0] is message


def test_level_none_compresses_nothing():
    """> if self.level == CompressionLevel.NONE:"""
    history = step(1, "words " * 3_000)
    assert MessageCompressor(CompressionLevel.NONE).compress(history) == history


def test_browser_snapshots():
    """> preserve_interactive=True"""
    page = "- generic [ref=e1]:\n  - main [ref=e2]:\n    - list [ref=e3]:\n      - generic: deep words\n"
    page += '      - button "Buy" [ref=e7]\n' * 1
    short = SnapshotCompressor().compress(page, max_depth=3, preserve_interactive=True)
    assert 'button "Buy" [ref=e7]' in short
    assert "deep words" not in short


def test_console_messages():
    """> self.console_compressor = ConsoleMessageCompressor()"""
    console = "[LOG] tick\n" * 50 + "[ERROR] it broke\n"
    short = ConsoleMessageCompressor().compress(console)
    assert "it broke" in short
    assert len(short) < len(console) / 5


def test_long_responses_are_truncated_with_a_summary():
    """> Truncate long responses"""
    short = MessageCompressor("medium", counter="estimate").compress(step(1, "a line of text\n" * 4_000))[-1]
    assert len(short.text) < 6_000
    assert "of 4000 shown" in short.text


def test_checkpoints():
    """> summary=self._generate_summary(state, completed_objectives)"""
    manager = CheckpointManager(clock=lambda: datetime(2026, 1, 1, tzinfo=UTC))
    state = {"url": "https://shop.example/cart", "page_title": "Cart"}
    checkpoint = manager.create_checkpoint("cart", state, ["login", "search"])
    assert manager.checkpoints["cart"] == checkpoint
    assert checkpoint.timestamp == datetime(2026, 1, 1, tzinfo=UTC)
    assert "Successfully completed 2 objectives. Currently on Cart page." in checkpoint.summary
    task, reached = manager.get_context_from_checkpoint(checkpoint, "Buy a kettle.")
    assert (task.kind, task.text, reached.kind) == ("user", "Buy a kettle.", "assistant")
    for line in ("Phase: cart", "URL: https://shop.example/cart", "Page: Cart", "Completed: login, search"):
        assert line in reached.text
    assert reached.text.endswith("Continuing with the next phase...")


def test_pruning():
    """> Keep messages above threshold or until target size"""
    history = talk(3)
    for n in range(60):
        history += step(n, f"page {'abc'[n % 3]} has nothing on it")
    history.append(Artifact("user", "Where is the kettle?"))
    sizes = [
        len(IntelligentPruner(PruningRules(importance_threshold=threshold, merge_similar=False)).prune(history))
        for threshold in (0.0, 0.3, 0.9)
    ]
    assert sizes[0] == len(history)
    assert sizes[0] > sizes[1] > sizes[2] > 0


def test_pruning_restores_chronological_order():
    """> Restore chronological order"""
    history = talk(80)
    kept = IntelligentPruner(PruningRules(merge_similar=False)).prune(history)
    assert places(kept, history) == sorted(places(kept, history))


def test_similar_consecutive_messages_are_merged():
    """> Merge similar consecutive messages"""
    history = talk(1)
    for n in range(30):
        call = ToolCall("poll", '{"job": "kettle"}', f"p{n}")
        history += [Artifact("assistant", calls=(call,)), Artifact("tool", "pending", answers=f"p{n}")]
    merged = IntelligentPruner(PruningRules(importance_threshold=0.0, merge_similar=True)).prune(history)
    assert len(merged) < len(history)


def test_metrics():
    """> return {"status": "no compression events"}"""
    metrics = ContextMetrics(counter="estimate")
    assert metrics.get_summary() == {"status": "no compression events"}
    metrics.record_compression(1_000, 400, "sliding_window")
    assert metrics.compression_events[0].reduction_percent == 60
    assert list(metrics.get_summary()) == [
        "total_input_tokens",
        "total_output_tokens",
        "total_reduction",
        "compression_count",
        "average_reduction",
        "checkpoint_count",
    ]


async def test_streaming():
    """> Wrapper around ReAct agent with context management"""
    messages = pytest.importorskip("langchain_core.messages")
    from ctxguard_langchain import ContextManagedAgent

    class Agent:
        async def astream(self, given):
            self.given = given["messages"]
            yield {"agent": {"messages": [messages.AIMessage("found it")]}}
            yield {"tools": {"messages": []}}

    agent, history = Agent(), [messages.HumanMessage("Buy a red kettle.")]
    for n in range(40):
        history += [messages.AIMessage(f"I looked at shelf {n}."), messages.HumanMessage(f"Go on to {n}.")]
    managed = ContextManagedAgent(agent, ContextManager(ContextConfig()))
    chunks = [chunk async for chunk in managed.astream({"messages": history})]
    assert len(chunks) == 2
    assert len(agent.given) == 16
    assert len(managed.original_messages) == len(history) + 1


def test_defaults_of_the_configuration():
    """> checkpoint_phases: List[str] = field(default_factory=lambda: ["login", "cart", "checkout"])"""
    config = ContextConfig()
    assert (config.enabled, config.strategy, config.window_size) == (True, "sliding_window", 15)
    assert (config.preserve_errors, config.preserve_screenshots) == (True, True)
    assert (config.compression_level, config.truncate_snapshots) == ("medium", True)
    assert (config.max_snapshot_depth, config.summarize_console, config.auto_checkpoint) == (3, True, True)
    assert (config.checkpoint_phases, config.max_checkpoint_size) == (["login", "cart", "checkout"], 500)
    assert (config.importance_threshold, config.merge_similar, config.keep_error_context) == (0.3, True, 5)


def test_overhead_of_a_call_is_under_100_ms():
    """> Benchmark compression overhead"""
    manager = ContextManager(ContextConfig(stabilizer={"counter": "estimate"}))
    history = talk(100)
    asyncio.run(manager.process_messages(history))
    history += [Artifact("assistant", "Looked."), Artifact("user", "Go on.")]
    # calls of functions, which no busy machine changes; 100 ms are time for more than a million of them
    assert calls_of(lambda: asyncio.run(manager.process_messages(history))) < 20_000


async def test_the_code_blocks_of_003_run_as_written():
    """> class ContextManagedAgent:"""
    pytest.importorskip("langchain_core")
    theirs = {}
    for block in code_blocks("003"):
        space = shimmed("003")
        exec(block, space)
        theirs[block.partition("class ")[2].partition(":")[0]] = space
    assert len(theirs) == 8

    settings, ours = theirs["ContextConfig"]["ContextConfig"](), ContextConfig()
    assert {name: getattr(ours, name) for name in vars(settings)} == vars(settings)

    history = talk(3)
    config = SimpleNamespace(strategy="", window_size=15, compression_level="medium", pruning_rules=PruningRules())
    manager = theirs["ContextManager"]["ContextManager"](config)
    assert await manager.process_messages(history) == history
    assert manager.metrics.total_input_tokens == manager.metrics.total_output_tokens > 0

    state = compat.PageState(url="https://shop.example/cart", page_title="Cart")
    contexts = []
    for manager in (theirs["CheckpointManager"]["CheckpointManager"](), CheckpointManager()):
        checkpoint = manager.create_checkpoint("cart", state, ["login", "search"])
        messages = manager.get_context_from_checkpoint(checkpoint, "Buy a kettle.")
        contexts.append([(m.role or m.kind, " ".join(m.content.split())) for m in messages])
    assert contexts[0] == contexts[1]

    summaries = []
    for metrics in (theirs["ContextMetrics"]["ContextMetrics"](), ContextMetrics(counter="estimate")):
        metrics.record_compression(1_000, 400, "sliding_window")
        metrics.record_compression(900, 450, "hybrid")
        summaries.append(metrics.get_summary())
    assert summaries[0] == summaries[1]

    page = "- generic [ref=e1]:\n  - main [ref=e2]:\n    - list [ref=e3]:\n      - generic: deep words\n"
    message = SimpleNamespace(type="tool_response", role="tool", content=page, tool_name="snapshot", metadata={})
    (compressed,) = await theirs["MessageCompressor"]["MessageCompressor"]("medium").compress([message])
    assert compressed.content == SnapshotCompressor().compress(page, max_depth=3, preserve_interactive=True)

    window = theirs["SlidingWindow"]["SlidingWindow"]()
    messages = [SimpleNamespace(role=str(a.kind), content=a.text, index=n) for n, a in enumerate(talk(30))]
    messages[5].content = "Error: no such page"
    assert window._extract_preserved_messages(messages) == [messages[0], messages[5]]

    class Agent:
        async def astream(self, given):
            yield {"agent": {"messages": given["messages"][-1:]}}

    managed = theirs["ContextManagedAgent"]["ContextManagedAgent"](Agent(), ContextManager(ContextConfig()))
    chunks = [chunk async for chunk in managed.astream({"messages": talk(40)})]
    assert len(chunks) == 1
    assert len(managed.original_messages) == len(talk(40)) + 1
