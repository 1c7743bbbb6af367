"""What must stay: the task is what the user asked first, never what a stage wrote in its place."""

from __future__ import annotations

import pytest

from ctxguard import Artifact, Stabilizer
from ctxguard.draft import Draft
from ctxguard.protection import REACHED, RECALLED, SUMMARY, task_of
from ctxguard.stages import StableWindow


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
