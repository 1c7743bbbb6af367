"""What must stay: the task is what the user asked first, never what a stage wrote in its place."""

from __future__ import annotations

import pytest

from ctxguard import Artifact, Stabilizer
from ctxguard.draft import Draft
from ctxguard.protection import LEFT_OUT, REACHED, RECALLED, SUMMARY, recent_messages, task_of
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


def test_a_summary_that_comes_back_in_a_history_is_not_kept_for_good():
    history = [Artifact("user", f"{SUMMARY}\nThey bought a kettle.")]
    for turn in range(60):
        history += [Artifact("assistant", f"Step {turn} is done."), Artifact("user", f"Go on with step {turn + 1}.")]
    result = Stabilizer(200, stages=[StableWindow()], counter="estimate").stabilize(history)
    assert not any(a.text.startswith(SUMMARY) for a in result.artifacts)


@pytest.mark.parametrize("opening", [SUMMARY, RECALLED, REACHED, LEFT_OUT])
def test_what_a_stage_wrote_takes_the_place_of_no_message_of_the_user(opening):
    history = [
        Artifact("user", "Buy a red kettle."),
        Artifact("assistant", "Here."),
        Artifact("user", "Which is best?"),
    ]
    history += [Artifact("assistant", f"Looking at shelf {n}.") for n in range(20)]
    history += [Artifact("user", f"{opening}something of old.]"), Artifact("assistant", "That is shelf 21.")]
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
