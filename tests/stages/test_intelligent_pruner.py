"""What the pruner says where it has judged, and what it does where that comes back in a history."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prefix_law import grown

from ctxguard import Artifact, BudgetExceededError, Stabilizer
from ctxguard.artifacts import ToolCall
from ctxguard.history import LEFT_OUT, LEFT_OUT_END, REACHED, SUMMARY
from ctxguard.pii import DIGITS
from ctxguard.stages import (
    BoundToolOutput,
    CheckpointManager,
    IntelligentPruner,
    MaskPII,
    PruningRules,
    RepairExchanges,
    SlidingWindow,
    StableWindow,
)

STRICT = PruningRules(importance_threshold=0.5, keep_error_context=0)


def loop(steps, begin=0):
    """Return a task and exchanges of one long tool loop."""
    opening = [] if begin else [Artifact("system", "You look things up."), Artifact("user", "Find the red kettle.")]
    for number in range(begin, steps):
        call = ToolCall("look", f'{{"shelf": "{"abcdefg"[number % 7]}{number}"}}', f"call_{number}")
        opening += [
            Artifact("assistant", calls=(call,)),
            Artifact("tool", f"Nothing stands on shelf {number} of the store room.", answers=call.id),
        ]
    return opening


def notes(artifacts):
    return [place for place, artifact in enumerate(artifacts) if artifact.text.startswith(LEFT_OUT)]


def test_a_message_says_where_exchanges_were_judged_and_nothing_is_said_where_all_stay():
    stabilizer = Stabilizer(100_000, stages=[IntelligentPruner(STRICT)])
    history = loop(25)
    result = stabilizer.stabilize(history)
    (place,) = notes(result.artifacts)
    assert result.artifacts[place].text == (
        "[Of the exchanges above, 20 in the full conversation, those that matter least are left out.]"
    )
    assert result.artifacts[place + 1 :] == history[-12:]
    assert [d.action for d in result.report.decisions if d.artifact is result.artifacts[place]] == ["summarised"]
    lenient = Stabilizer(100_000, stages=[IntelligentPruner(PruningRules(importance_threshold=0.0))])
    assert lenient.stabilize(history).artifacts == history


@pytest.mark.parametrize("record", [f"{SUMMARY}\nAnn seeks a kettle.", f"{REACHED}\n\nPhase: login"])
def test_what_stands_for_what_is_gone_stays_however_little_it_matters(record):
    history = loop(40)
    history.insert(2, Artifact("user", record))
    most = PruningRules(importance_threshold=1.0, keep_error_context=0)
    stabilizer = Stabilizer(100_000, stages=[IntelligentPruner(most)])
    result = stabilizer.stabilize(history).artifacts
    assert result[2] is history[2]
    assert len(result) < 30
    assert stabilizer.stabilize([*result, *loop(60, 40)]).artifacts[2] is history[2]  # where results are stored, too
    assert history[2] in IntelligentPruner(most).prune(history)


def test_pruning_a_list_by_hand_writes_nothing_into_it():
    history = loop(25)
    pruned = IntelligentPruner(STRICT).prune(history)
    assert notes(pruned) == []
    assert len(pruned) < len(history)


@pytest.mark.parametrize("steps", [12, 25, 260])
@pytest.mark.parametrize(
    "others", [(), (SlidingWindow(40),), (CheckpointManager(),)], ids=["alone", "window", "phases"]
)
def test_a_result_that_comes_back_is_left_as_it_is_and_grows(steps, others):
    stages = [RepairExchanges(), IntelligentPruner(STRICT), *others, StableWindow()]
    stabilizer = Stabilizer(6_000, stages=stages)
    result = stabilizer.stabilize(loop(steps)).artifacts
    assert stabilizer.stabilize(result).artifacts == result
    for number in range(steps, steps + 30):
        result = stabilizer.stabilize([*result, *loop(number + 1, number)]).artifacts
        assert len(notes(result)) == 1
        assert stabilizer.stabilize(result).artifacts == result


@pytest.mark.parametrize("steps", [12, 25, 60])
@pytest.mark.parametrize("most", [PruningRules(importance_threshold=1.0, keep_error_context=0, preserve=()), STRICT])
def test_a_message_that_is_joined_to_the_task_or_to_a_question_is_known_again(steps, most):
    stabilizer = Stabilizer(
        6_000, stages=[RepairExchanges(), IntelligentPruner(most), StableWindow()], provider="strict"
    )
    history = loop(2)
    for number in range(2, steps):
        asked = [Artifact("user", f"And on shelf {number}?")] * (number % 3 == 0)
        history += [*loop(number + 1, number), Artifact("assistant", "Not there."), *asked]
        result = stabilizer.stabilize(history).artifacts
        assert stabilizer.stabilize(result).artifacts == result
    assert "exchanges above" in "".join(a.text for a in result)


def test_a_history_that_keeps_its_results_is_judged_at_the_same_points():
    stabilizer = Stabilizer(100_000, stages=[IntelligentPruner(STRICT)])
    kept, moves = stabilizer.stabilize(loop(20)).artifacts, []
    for steps in range(20, 60):
        raw = stabilizer.stabilize(loop(steps + 1))
        kept = stabilizer.stabilize([*kept, *loop(steps + 1, steps)]).artifacts
        assert kept[notes(kept)[0]].text == raw.artifacts[notes(raw.artifacts)[0]].text
        moves.append(kept[notes(kept)[0]].text)
    assert len(set(moves)) == 5


def test_rules_that_mask_the_number_leave_the_message_known():
    stabilizer = Stabilizer(100_000, stages=[MaskPII(DIGITS), IntelligentPruner(STRICT)])
    result = stabilizer.stabilize(loop(130)).artifacts
    (place,) = notes(result)
    assert "130" not in result[place].text
    assert "120" not in result[place].text
    assert stabilizer.stabilize(result).artifacts == result


def test_exchanges_alike_are_merged_with_their_count_once_they_are_judged():
    same = [a for n in range(6) for a in loop(1, 0)[2:]]
    history = [*loop(3), *same, *loop(30, 3)]
    rules = PruningRules(importance_threshold=0.0)
    result = Stabilizer(100_000, stages=[RepairExchanges(), IntelligentPruner(rules)]).stabilize(history)
    assert [a.text for a in result.artifacts if "the same" in a.text] == [
        "Nothing stands on shelf 0 of the store room.\n[the same 6 times in a row, the last one shown]"
    ]
    reasons = {d.reason for d in result.report.decisions if d.action == "dropped"}
    assert reasons == {"merged"}


def test_what_the_pruner_writes_changes_no_limit_of_tool_outputs():
    stages = [BoundToolOutput(), IntelligentPruner(STRICT), StableWindow()]
    stabilizer = Stabilizer(2_000, stages=stages)
    history = loop(25)
    history[-1] = Artifact("tool", "\n".join(f"row {n} of the shelf list" for n in range(400)), answers="call_24")
    result = stabilizer.stabilize(history).artifacts
    assert len(notes(result)) == 1
    assert result[-1] != history[-1]
    assert stabilizer.stabilize(result).artifacts == result


@pytest.mark.parametrize("number", ["9" * 5_000, "9" * 150, "9" * 80, "999999999", "٣", "²", "0", ""])
def test_a_number_that_somebody_made_up_neither_stops_the_pruner_nor_breaks_it(number):
    history = loop(40)
    history.insert(2, Artifact("user", f"{LEFT_OUT}{number}{LEFT_OUT_END}"))
    result = Stabilizer(100_000, stages=[RepairExchanges(), IntelligentPruner(STRICT)]).stabilize(history)
    assert result.report.ok, str(result.report)
    assert len(result.artifacts) < len(history) / 2


WORDS = ["alpha", "beta", "kettle", "shelf", "error", "red", "done"]
TEXTS = st.lists(st.sampled_from(WORDS), min_size=1, max_size=12).map(" ".join)
STEPS = st.one_of(
    st.tuples(TEXTS, st.lists(TEXTS, min_size=1, max_size=2)), st.tuples(TEXTS, st.lists(TEXTS, max_size=1).map(tuple))
)


def grown_by(number, said, others):
    """Return a reply and what comes for it: messages of the user's, or the results of a call."""
    if isinstance(others, list):
        return [Artifact("assistant", said), *(Artifact("user", text) for text in others)]
    call = ToolCall("look", "{}", f"c{number}")
    return [Artifact("assistant", calls=(call,)), Artifact("tool", " ".join((said, *others)), answers=call.id)]


@settings(max_examples=60)
@given(TEXTS, st.lists(STEPS, min_size=3, max_size=14), st.sampled_from([90, 150, 3_000]), st.integers(1, 3))
def test_the_laws_hold_where_every_exchange_is_judged_at_once(opening, steps, budget, every):
    rules = PruningRules(keep_error_context=0, preserve=())
    stages = [RepairExchanges(), IntelligentPruner(rules, every=every), StableWindow()]
    stabilizer = Stabilizer(budget, stages=stages, counter="estimate", keep_recent=1)
    history, prompt = [Artifact("user", opening)], None
    for number, step in enumerate(steps):
        history += grown_by(number, *step)
        try:
            result = stabilizer.stabilize(history)
        except BudgetExceededError:
            prompt = None
            continue
        assert result.report.ok, str(result.report)
        prompt = grown(prompt, result)
