"""ContextManager: every field of the documented configuration changes what it does."""

from __future__ import annotations

import asyncio

import pytest

from ctxguard import Artifact, BudgetExceededError, ContextConfig, Kind, ToolCall
from ctxguard.artifacts import Part
from ctxguard.compat.context_manager import ContextManager
from ctxguard.errors import ConfigError
from ctxguard.stores import SQLiteStore

SNAPSHOT = (
    "\n".join(f"{'  ' * depth}- generic [ref=e{depth}]:" for depth in range(12)) + "\n" + " " * 24 + "- text: deep"
)
CONSOLE = "\n".join([*("[LOG] tick @ app.js:1" for _ in range(80)), "[ERROR] it broke @ app.js:9"])


def run(messages, phase=None, manager=None, **fields):
    manager = manager or ContextManager(ContextConfig(**fields))
    return asyncio.run(manager.process_messages(messages, phase))


def step(number, text, name="look"):
    call = ToolCall(name, f'{{"n": {number}}}', f"c{number}")
    return [Artifact("assistant", "", calls=(call,)), Artifact("tool", text, answers=f"c{number}")]


def talk(turns):
    history = [Artifact("system", "You shop."), Artifact("user", "Buy a red kettle.")]
    for turn in range(turns):
        word = ("shelf", "aisle", "corner", "basket")[turn % 4]
        history += [Artifact("assistant", f"I looked at {word} {turn}."), Artifact("user", f"Go to the next {word}.")]
    return history


def test_the_documented_flow():
    manager = ContextManager(ContextConfig())
    assert manager.metrics.get_summary() == {"status": "no compression events"}
    history = talk(30)
    result = asyncio.run(manager.process_messages(history))
    assert result == [*history[:2], *history[-15:]]
    summary = manager.metrics.get_summary()
    assert summary["compression_count"] == 1
    assert 0 < summary["total_reduction"] < 100
    assert summary["total_output_tokens"] == manager.report.tokens_after


def test_each_run_tells_its_compression_ratio_and_its_tokens_by_kind():
    manager = ContextManager(ContextConfig())
    asyncio.run(manager.process_messages(talk(2)))
    assert manager.report.tokens_before == manager.report.tokens_after
    assert manager.metrics.compression_events == ()
    asyncio.run(manager.process_messages(talk(30)))
    report, (event,) = manager.report, manager.metrics.compression_events
    assert (event.input_tokens, event.output_tokens) == (report.tokens_before, report.tokens_after)
    assert event.reduction_percent == (1 - report.tokens_after / report.tokens_before) * 100
    assert event.strategy == "sliding_window"
    by_kind = report.tokens_by_kind()
    assert set(by_kind) == {"system", "user", "assistant"}
    assert by_kind["system"][0] == by_kind["system"][1] > 0
    assert by_kind["user"][0] > by_kind["user"][1]


def test_levels_of_compression_differ_for_snapshots_too():
    page = "\n".join(f"{'  ' * (n % 9)}- generic [ref=e{n}]: words" for n in range(200))
    history = [*talk(1), *step(1, page, "browser_snapshot")]
    sizes = [len(run(history, compression_level=level)[-1].text) for level in ("none", "low", "medium", "high")]
    assert sizes == sorted(set(sizes), reverse=True)


def test_native_messages_come_back_in_their_own_format():
    native = [{"role": a.kind.value, "content": a.text} for a in talk(30)]
    result = run(native)
    assert [m["role"] for m in result[:2]] == ["system", "user"]
    assert result[-1] is native[-1]
    assert len(result) == 17


def test_personal_data_is_masked():
    assert "jane.doe" not in run([*talk(1), Artifact("user", "Mail jane.doe@corp-mail.net")])[-1].text


def test_enabled():
    history = talk(30)
    assert run(history, enabled=False) is history
    assert run([]) == []


def test_window_size():
    assert len(run(talk(30), window_size=5)) == 7


@pytest.mark.parametrize(("preserve", "kept"), [(True, True), (False, False)])
def test_preserve_errors(preserve, kept):
    history = talk(30)
    history[8] = Artifact("assistant", "Error: the shelf is locked")
    assert (history[8] in run(history, preserve_errors=preserve)) is kept


@pytest.mark.parametrize("preserve", [True, False])
def test_preserve_screenshots(preserve):
    history = talk(30)
    history[9] = Artifact("user", (Part("image", tokens=85),))
    assert (history[9] in run(history, preserve_screenshots=preserve)) is preserve


def test_compression_level():
    history = [*talk(1), *step(1, "\n".join(f"row {'abcdef'[n % 6] * 8} of the long table" for n in range(900)))]
    sizes = [len(run(history, compression_level=level)[-1].text) for level in ("none", "low", "medium", "high")]
    assert sizes[0] == len(history[-1].text)
    assert sizes[0] > sizes[1] > sizes[2] > sizes[3]


def test_truncate_snapshots_and_max_snapshot_depth():
    history = [*talk(1), *step(1, SNAPSHOT, "browser_snapshot")]
    shown = {depth: run(history, max_snapshot_depth=depth)[-1].text.count("generic") for depth in (2, 5)}
    assert shown[2] < shown[5] < 12
    assert run(history, truncate_snapshots=False)[-1].text.count("generic") == 12


def test_summarize_console():
    history = [*talk(1), *step(1, CONSOLE, "browser_console_messages")]
    assert len(run(history)[-1].text) < len(CONSOLE)
    assert run(history, summarize_console=False)[-1].text == CONSOLE


def login(times=20):
    return [*talk(1), *step(1, "You are logged in."), *(a for n in range(2, times) for a in step(n, f"page {n}"))]


def test_strategy_and_auto_checkpoint():
    history = login()
    result = run(history, strategy="checkpoint")
    assert any("Phase: login" in a.text for a in result)
    assert len(result) < len(history)
    assert run(history, strategy="checkpoint", auto_checkpoint=False) == history
    assert not any("Phase:" in a.text for a in run(history, strategy="sliding_window"))
    assert any("Phase: login" in a.text for a in run(history, strategy="hybrid"))


def test_checkpoint_phases():
    history = [*talk(1), *step(1, "Data entry completed."), *(a for n in range(2, 9) for a in step(n, "page"))]
    assert run(history, strategy="checkpoint") == history
    result = run(history, strategy="checkpoint", checkpoint_phases=["data_entry"])
    assert any("Phase: data_entry" in a.text for a in result)


def test_max_checkpoint_size():
    history = login()
    history[5] = Artifact("tool", "You are logged in.\nPage Title: " + "word " * 600, answers="c1")

    def size(most):
        result = run(history, strategy="checkpoint", max_checkpoint_size=most)
        return len(next(a.text for a in result if "Previous phases" in a.text))

    assert size(60) < size(300)


def test_a_phase_named_by_the_caller_gets_its_checkpoint_and_a_restart_knows_it(tmp_path):
    config = ContextConfig(strategy="checkpoint", auto_checkpoint=False)
    history = talk(3)
    with SQLiteStore(tmp_path / "c.db") as store:
        manager = ContextManager(config, store=store)
        assert run(history, "search", manager) == history
        later = [*history, *talk(6)[2:]]
        run(later, "payment", manager)
        assert [event.phase for event in manager.metrics.checkpoint_events] == ["search"]
        longer = [*later, *talk(4)[2:]]
        result = run(longer, "payment", manager)
        assert any("Phase: search" in a.text for a in result)
        assert result[-8:] == longer[-8:]
        assert len(result) == 11
    with SQLiteStore(tmp_path / "c.db") as store:
        assert run(longer, None, ContextManager(config, store=store)) == result


def busy():
    history = [*talk(2)]
    for number in range(60):
        history += step(number, f"page {'abc'[number % 3]} has nothing on it")
    return [*history, Artifact("user", "And where is the kettle?")]


def test_importance_threshold():
    sizes = [len(run(busy(), strategy="hybrid", importance_threshold=t, merge_similar=False)) for t in (0.0, 0.3, 0.9)]
    assert sizes[0] == len(busy())
    assert sizes[0] > sizes[1] > sizes[2]


def test_merge_similar():
    history = talk(1)
    for number in range(40):
        call = ToolCall("poll", '{"job": "kettle"}', f"p{number}")
        history += [Artifact("assistant", "", calls=(call,)), Artifact("tool", "pending", answers=f"p{number}")]
    merged = run(history, strategy="hybrid", importance_threshold=0.0)
    apart = run(history, strategy="hybrid", importance_threshold=0.0, merge_similar=False)
    assert len(merged) < len(apart) == len(history)
    assert any("times in a row" in a.text for a in merged)


def test_keep_error_context():
    history = busy()
    history[45] = Artifact("tool", "Error: lost", answers=history[45].answers)

    def kept(context):
        fields = {"strategy": "hybrid", "importance_threshold": 1.0, "merge_similar": False}
        return len(run(history, keep_error_context=context, **fields))

    assert kept(0) < kept(5)


def test_the_budget_of_the_stabilizer_section_holds():
    manager = ContextManager(ContextConfig(stabilizer={"budget": 400}, window_size=60))
    asyncio.run(manager.process_messages(talk(40)))
    assert manager.report.tokens_after <= 400
    assert manager.report.ok
    with pytest.raises(BudgetExceededError):
        run([Artifact("system", "rule " * 900), Artifact("user", "hi")], stabilizer={"budget": 400})


def test_a_budget_that_is_a_share_of_a_window_is_refused_when_it_is_given():
    with pytest.raises(ConfigError, match="budget in tokens") as caught:
        ContextManager(ContextConfig(stabilizer={"budget": "50%"}))
    assert caught.value.setting == "stabilizer.budget"


def test_calls_keep_their_results_whatever_the_strategy():
    for strategy in ("sliding_window", "checkpoint", "hybrid"):
        manager = ContextManager(ContextConfig(strategy=strategy))
        result = asyncio.run(manager.process_messages(busy()))
        assert manager.report.ok, str(manager.report)
        assert result[0].kind is Kind.SYSTEM
