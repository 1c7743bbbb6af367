"""What a person pasted and does not fit: refused by name, or bounded by its type with a marker and a handle."""

from __future__ import annotations

import re

import pytest

from ctxguard import Artifact, BudgetExceededError, Stabilizer, ToolCall
from ctxguard.stages.bound_tool_output import handle_of
from ctxguard.stores import MemoryStore

LOG = "\n".join(
    f"2026-11-21 06:{n // 60 % 60:02}:{n % 60:02} worker {n % 7} INFO step {n} of the nightly import is done"
    for n in range(1_600)
)
HISTORY = [
    Artifact("system", "You help."),
    Artifact("user", "Let us look into the nightly import."),
    Artifact("assistant", "Paste its log, please."),
    Artifact("user", f"{LOG}\nERROR the disk is full\nWhat is wrong here?"),
]


def test_by_default_it_is_refused_and_the_error_names_the_setting():
    with pytest.raises(BudgetExceededError, match="on_overflow='bound'") as caught:
        Stabilizer(8_000).stabilize(HISTORY)
    assert caught.value.parts["last user message"] > 30_000


@pytest.mark.parametrize("policy", ["agent", "long_session"])
def test_the_error_names_the_budget_as_it_was_set_and_what_is_kept_free_of_it(policy):
    guard = Stabilizer.from_policy(policy, budget=2_000, headroom=195)
    with pytest.raises(BudgetExceededError) as caught:
        guard.stabilize(HISTORY)
    assert "the budget of 2000 leaves 1805 (kept free: headroom 195)" in str(caught.value)
    assert (caught.value.budget, caught.value.kept_free) == (1_805, {"headroom": 195})


def test_where_nothing_is_kept_free_the_error_names_the_budget_alone():
    with pytest.raises(BudgetExceededError, match="and the budget is 2000;"):
        Stabilizer(2_000).stabilize(HISTORY)


def test_after_a_refused_prompt_the_error_says_why_the_budget_is_smaller():
    guard, refused = Stabilizer(2_000), [Artifact("user", "word " * 1_500)]
    guard.tighten(refused)
    with pytest.raises(BudgetExceededError, match="the budget of 2000 leaves 1200") as caught:
        guard.stabilize(refused)
    assert caught.value.kept_free == {"refused prompt": 800}


@pytest.mark.parametrize("headroom", [0, 195, 0.2])
@pytest.mark.parametrize("system", [40, 1_000])
@pytest.mark.parametrize("question", [1, 1_500, 9_000])
def test_a_budget_that_the_error_names_is_enough_for_the_request_and_explained(system, question, headroom):
    history = [Artifact("system", "kind " * system), Artifact("user", "word " * question)]
    small = max(2, system // 2) + (headroom if isinstance(headroom, int) else 1)
    with pytest.raises(BudgetExceededError) as caught:
        Stabilizer(small, headroom=headroom).stabilize(history)
    named = re.search(r"raise the budget to (\d+) or more \((.*?)\)", str(caught.value))
    assert caught.value.is_too_small
    assert f"take {caught.value.fixed}; at most 40%" in named[2]
    assert caught.value.fixed <= 0.4 * int(named[1])
    assert Stabilizer(int(named[1]), headroom=headroom).stabilize(history).report.ok


def test_what_is_sent_beside_the_messages_is_not_called_tools_alone():
    with pytest.raises(BudgetExceededError, match="shorten the instructions, or send fewer or shorter tool") as caught:
        Stabilizer(200).stabilize([Artifact("user", "Hi")], overhead=1_000)
    assert caught.value.parts["tools and instructions"] == 1_000


def test_it_is_bounded_with_a_marker_and_the_report_says_so():
    result = Stabilizer(8_000, on_overflow="bound").stabilize(HISTORY)
    last = result.artifacts[-1]
    assert result.report.ok
    assert result.report.tokens_after <= 8_000
    assert last.kind == "user"
    assert last.text.startswith("2026-11-21 06:00:00")
    assert "What is wrong here?" in last.text
    [warning] = [w for w in result.report.warnings if "on_overflow" in w]
    assert "message 3:" in warning
    assert f"warning: {warning}" in str(result.report)
    assert result.report.to_dict()["warnings"] == list(result.report.warnings)


def test_with_a_store_the_whole_can_be_read_back():
    store = MemoryStore()
    result = Stabilizer.from_policy("agent", budget=8_000, on_overflow="bound", store=store).stabilize(HISTORY)
    handle = handle_of(HISTORY[-1].text)
    assert handle in result.artifacts[-1].text
    assert store.get("tool-output", handle).decode() == HISTORY[-1].text


def test_the_largest_gives_way_and_the_system_prompt_never_does():
    system = Artifact("system", "Always be kind. " * 300)
    task = Artifact("user", "Short task.")
    result = Stabilizer(8_000, on_overflow="bound").stabilize([system, task, HISTORY[2], HISTORY[3]])
    assert [a.text for a in result.artifacts[:2]] == [system.text, task.text]
    with pytest.raises(BudgetExceededError, match="shorten the system prompt"):
        Stabilizer(1_000, on_overflow="bound").stabilize([system, HISTORY[3]])


def test_a_run_goes_on_behind_it_and_the_prefix_stays():
    guard, history = Stabilizer(8_000, on_overflow="bound"), list(HISTORY)
    before = guard.stabilize(history).artifacts
    for step in range(4):
        call = ToolCall("look", f'{{"page": {step}}}', f"c{step}")
        history += [Artifact("assistant", calls=(call,)), Artifact("tool", f"page {step}", answers=f"c{step}")]
        result = guard.stabilize(history)
        assert result.report.ok
        assert result.artifacts[0] == before[0]
        before = result.artifacts


def parallel_run(guard, *, steps=30, calls=3, words=900):
    history, cuts, warned = [Artifact("user", "Find out why the import is slow.")], 0, 0
    for step in range(steps):
        made = tuple(ToolCall("search", f'{{"query": "step {step} {n}"}}', f"c{step}-{n}") for n in range(calls))
        outputs = [
            Artifact("tool", " ".join(f"w{step}x{n}y{w}" for w in range(words)), answers=call.id)
            for n, call in enumerate(made)
        ]
        history += [Artifact("assistant", f"Step {step}.", calls=made), *outputs]
        report = guard.stabilize(history).report
        cuts += bool(report.cut and report.cut.fresh)
        warned += any("latest 4 calls were cut" in warning for warning in report.warnings)
    return cuts, warned


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["agent", "chat"])
@pytest.mark.parametrize("calls", [1, 2, 3, 5, 10])
def test_outputs_of_half_the_room_at_every_step_leave_steps_between_cuts(policy, calls):
    cuts, warned = parallel_run(Stabilizer.from_policy(policy, budget=16_000), calls=calls)
    assert cuts <= 15
    assert warned <= 1


@pytest.mark.slow
@pytest.mark.parametrize("budget", [8_000, 32_000])
def test_so_do_other_budgets(budget):
    assert parallel_run(Stabilizer(budget), calls=10, steps=16)[0] <= 13


def test_the_report_warns_when_cuts_come_in_a_row():
    guard = Stabilizer.from_policy("agent", budget=16_000, output_share=0.5, target=0.95)
    cuts, warned = parallel_run(guard, steps=12)
    assert cuts >= 8
    assert warned
