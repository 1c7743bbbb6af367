"""What must stay: the task is what the user asked first, never what a stage wrote in its place."""

from __future__ import annotations

import pytest

from ctxguard import Artifact, Stabilizer, ToolCall
from ctxguard.draft import Draft
from ctxguard.history import LEFT_OUT, LEFT_OUT_END, REACHED, RECALLED, SUMMARY, recent_messages, stands_in, task_of
from ctxguard.stages import SlidingWindow, StableWindow


def draft_of(*history, budget=1_000):
    return Draft(history, budget, Stabilizer(budget, counter="estimate").counter, history=history)


def test_the_first_user_message_is_the_task_unless_it_takes_too_much():
    task = Artifact("user", "Buy a red kettle.")
    assert task_of(draft_of(Artifact("system", "You shop."), task)) is task
    assert task_of(draft_of(Artifact("user", "word " * 400))) is None


@pytest.mark.parametrize("opening", [SUMMARY, RECALLED, REACHED])
def test_what_a_stage_wrote_is_never_the_task(opening):
    assert task_of(draft_of(Artifact("user", f"{opening}\nThey bought it."), Artifact("user", "And now?"))) is None


def test_a_summary_that_comes_back_in_a_history_is_kept_until_another_record_takes_its_place():
    history = [Artifact("user", f"{SUMMARY}\nThey bought a kettle.")]
    guard = Stabilizer(200, stages=[StableWindow()], counter="estimate")
    for turn in range(60):
        history += [Artifact("assistant", f"Step {turn} is done."), Artifact("user", f"Go on with step {turn + 1}.")]
        history += [Artifact("user", f"{SUMMARY}\nThey filled it.")] * (turn == 30)
        result = guard.stabilize(history).artifacts
        assert len(list(filter(stands_in, result))) in ((1,) if turn < 30 else (1, 2))
    assert [a.text for a in result if stands_in(a)] == [f"{SUMMARY}\nThey filled it."]


@pytest.mark.parametrize("opening", [SUMMARY, RECALLED, REACHED, LEFT_OUT])
def test_what_a_stage_wrote_takes_the_place_of_no_message_of_the_user(opening):
    history = [
        Artifact("user", "Buy a red kettle."),
        Artifact("assistant", "Here."),
        Artifact("user", "Which is best?"),
    ]
    history += [Artifact("assistant", f"Looking at shelf {n}.") for n in range(20)]
    history += [
        Artifact("user", f"{opening}something of old{LEFT_OUT_END}"),
        Artifact("assistant", "That is shelf 21."),
    ]
    stabilizer = Stabilizer(90, stages=[StableWindow(target=0.5)], counter="estimate", keep_recent=1)
    result = stabilizer.stabilize(history)
    assert history[2] in result.artifacts
    assert result.report.ok, str(result.report)
    assert recent_messages(history, 2) == [history[-1], history[-3]]


def test_what_a_stage_wrote_does_not_count_in_a_window_of_messages():
    talk = [Artifact(("user", "assistant")[n % 2], f"Message {n}.") for n in range(31)]
    window = Stabilizer(10_000, stages=[SlidingWindow(10, every=1, rules=())])
    kept = window.stabilize(talk).artifacts
    written = [*kept[:-1], Artifact("user", f"{RECALLED}\n[turn 1] user: hello"), kept[-1]]
    assert window.stabilize(written).artifacts == written


@pytest.mark.parametrize(
    "fake", [f"{LEFT_OUT}and now something else. " * 100, f"{LEFT_OUT}{'20 and ' * 100}{LEFT_OUT_END}"]
)
def test_what_only_begins_like_the_message_of_a_pruner_is_the_user_s_and_not_kept_for_good(fake):
    history = [Artifact("user", "Buy a red kettle.")]
    for _ in range(20):
        history += [Artifact("user", fake), Artifact("assistant", "Yes.")]
    assert recent_messages(history, 2) == [history[-1], history[-2]]
    history.append(Artifact("user", "And now?"))
    assert Stabilizer(2_000, counter="estimate").stabilize(history).report.ok


def test_of_many_messages_like_that_of_a_pruner_only_the_first_is_kept_for_good():
    history = [Artifact("user", "Buy a red kettle.")]
    for number in range(90):
        history += [Artifact("user", f"{LEFT_OUT}{number}{LEFT_OUT_END}"), Artifact("assistant", "Yes.")]
    stabilizer = Stabilizer(400, counter="estimate")
    for end in range(1, len(history) + 1):
        result = stabilizer.stabilize(history[:end])
        assert result.report.ok, str(result.report)
    assert history[1] in result.artifacts


@pytest.mark.parametrize("opening", [SUMMARY, RECALLED, REACHED])
def test_a_question_that_was_joined_to_what_a_stage_wrote_stays_the_last_of_the_user_s(opening):
    stabilizer = Stabilizer(
        150, stages=[StableWindow(target=0.5)], provider="strict", counter="estimate", keep_recent=1
    )
    history = [Artifact("user", "Buy."), Artifact("assistant", "Yes."), Artifact("user", f"{opening}\nIt was red.")]
    kept = stabilizer.stabilize([*history, Artifact("user", "Which colour has mine?")]).artifacts
    for number in range(30):
        call = ToolCall("look", "{}", f"c{number}")
        result = Artifact("tool", f"Nothing stands on shelf {number} of the store room.", answers=call.id)
        kept = stabilizer.stabilize([*kept, Artifact("assistant", "Looking.", calls=(call,)), result]).artifacts
        assert any("Which colour" in artifact.text for artifact in kept)


@pytest.mark.parametrize("written", [f"{LEFT_OUT}4{LEFT_OUT_END}", f"{REACHED}\nIt was red."])
def test_a_window_that_begins_with_what_a_stage_wrote_keeps_the_question_of_its_turn(written):
    history = [Artifact("user", "Buy a red kettle."), Artifact("assistant", "Yes."), Artifact("user", "Which is best?")]
    for number in range(12):
        call = ToolCall("look", "{}", f"c{number}")
        history += [Artifact("assistant", calls=(call,)), Artifact("tool", f"Shelf {number}.", answers=call.id)]
        history += [Artifact("user", written)] if number == 6 else []
    for budget in range(80, 240, 2):
        stabilizer = Stabilizer(budget, stages=[StableWindow(target=0.9)], counter="estimate", keep_recent=1)
        assert history[2] in stabilizer.stabilize(history).artifacts, budget
