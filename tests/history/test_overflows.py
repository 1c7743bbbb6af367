"""That a provider refused a prompt as too long is remembered for the conversation, and for no other."""

from __future__ import annotations

import copy
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxguard import Artifact, Stabilizer
from ctxguard.artifacts import Part
from ctxguard.errors import BudgetExceededError
from ctxguard.history.conversation import Overflow, Overflows

LINES = st.lists(st.text(max_size=3), max_size=6).map(lambda said: [Artifact("user", line) for line in said])


def turns(count, mark="step"):
    said = [f"{mark} {n}: " + f"the order {n * 977} left the warehouse. " * 6 for n in range(count)]
    return [Artifact(("user", "assistant")[n % 2], text) for n, text in enumerate(said)]


@given(LINES, LINES, LINES)
def test_the_latest_refusal_of_what_a_history_continues_is_found(begin, more, other):
    known = Overflows()
    known.note(begin, 10, before=20)
    known.note(begin + more, 5, before=10)
    found = known.of([*begin, *more, *other])
    assert found == (Overflow(len(begin + more), 5, 10) if begin + more else None)
    if other[: len(begin)] != begin:
        assert known.of(other) is None


def test_what_is_remembered_is_bounded(monkeypatch):
    monkeypatch.setattr("ctxguard.history.conversation._MOST", 2)
    known = Overflows()
    for mark in "abc":
        known.note([Artifact("user", mark)], 1, before=2)
        known.of([Artifact("user", "a")])
    assert [bool(known.of([Artifact("user", mark)])) for mark in "abc"] == [True, False, True]
    assert pickle.loads(pickle.dumps(known)).of([Artifact("user", "a")]) is None


def test_a_conversation_keeps_the_smaller_budget_and_others_theirs():
    stabilizer = Stabilizer(2_000, counter="o200k_base")
    history = turns(40)
    assert stabilizer.stabilize(history).report.budget == 2_000
    stabilizer.tighten(history)
    for more in (0, 1, 8):
        result = copy.copy(stabilizer).stabilize([*history, *turns(more, "later")])
        assert result.report.budget == 1_200 >= result.report.tokens_after
    assert stabilizer.plan(history).budget == 1_200
    assert stabilizer.stabilize(turns(39)).report.budget == 2_000
    stabilizer.tighten(history)
    assert stabilizer.stabilize(history).report.budget == 720
    stabilizer.tighten(history, budget=5_000)
    assert stabilizer.stabilize(history).report.budget == 2_000, "never more than the stabilizer's own"


def test_the_report_names_the_prompt_that_does_not_extend_the_one_before():
    stabilizer = Stabilizer(4_000, counter="o200k_base", target=0.35)
    history = turns(41)
    before = stabilizer.stabilize(history[:39])
    stabilizer.tighten(history, budget=2_000)
    refused = stabilizer.stabilize(history)
    assert refused.artifacts[: len(before.artifacts)] != before.artifacts
    assert refused.report.cut is not None
    assert refused.report.cut.fresh
    following = stabilizer.stabilize([*history, *turns(42)[41:], Artifact("user", "And now?")])
    assert following.artifacts[: len(refused.artifacts)] == refused.artifacts
    assert not following.report.cut.fresh


@pytest.mark.parametrize("tightened", [False, True])
def test_thinking_from_before_is_left_out(tightened):
    from ctxguard.stages import DropStaleThinking

    stabilizer = Stabilizer(2_000, stages=[DropStaleThinking()], counter="o200k_base")
    thought = Artifact("assistant", (Part("reasoning", "Hm.", signed=True), Part("text", "Yes.")))
    history = [Artifact("user", "Is it?"), thought, Artifact("user", "Sure?")]
    if tightened:
        stabilizer.tighten(history)
    later = stabilizer.stabilize([*history, thought, Artifact("user", "Really?")]).artifacts
    assert [later[place].text for place in (1, 3)] == ["\nYes." if tightened else "Hm.\nYes.", "Hm.\nYes."]


def test_a_refusal_is_forgotten_where_nothing_smaller_can_be_sent():
    stabilizer = Stabilizer(2_000, counter="o200k_base")
    history = [Artifact("system", "A rule. " * 100), Artifact("user", "Hello?")]
    stabilizer.tighten(history, budget=100)
    with pytest.raises(BudgetExceededError):
        stabilizer.stabilize(history)
    assert stabilizer.stabilize(history).report.budget == 2_000, "the provider judges it anew"


def test_the_whole_budget_counts_again_where_what_came_since_needs_it():
    stabilizer = Stabilizer(2_000, counter="o200k_base")
    history = turns(41)
    stabilizer.tighten(history, budget=800)
    question = [*history, Artifact("assistant", "Yes."), Artifact("user", "the order left the warehouse. " * 200)]
    result = stabilizer.stabilize(question)
    assert (result.report.budget, result.artifacts[-1]) == (2_000, question[-1])
    assert stabilizer.stabilize([*question, *turns(42)[41:], Artifact("user", "And?")]).report.budget == 2_000


def test_a_conversation_whose_refused_prompt_held_passages_that_are_not_sent_again_keeps_the_smaller_budget():
    stabilizer = Stabilizer(2_000, counter="o200k_base")
    history, question = turns(40), Artifact("user", "And the invoice?")
    stabilizer.tighten([*history, Artifact("user", "Passages: the order left."), question])
    later = [*history, question, Artifact("assistant", "Paid."), Artifact("user", "Thanks.")]
    assert stabilizer.stabilize(later).report.budget == 1_200
    assert stabilizer.stabilize(turns(38)).report.budget == 2_000


def test_another_prompt_of_the_same_length_is_not_taken_for_the_refused_one():
    stabilizer = Stabilizer(2_000, counter="o200k_base")
    history = turns(40)
    stabilizer.tighten([*history, Artifact("user", "Hello?")], budget=800)
    question = Artifact("user", "the order left the warehouse. " * 200)
    assert stabilizer.stabilize([*history, question]).report.budget == 2_000
