"""The stage that all strategies share: a function chooses, the stage keeps what is mandatory and moves in steps."""

from __future__ import annotations

import pytest
from builders import step

from ctxguard import Artifact, Stabilizer
from ctxguard.errors import ConfigError
from ctxguard.strategies import Choice, Keep


def is_starred(past, number):
    return any("*" in artifact.text for artifact in past.history.members(number))


def starred(past, end):
    return Choice([n for n in range(end) if past.notes[n]], end, "has no star")


def loop(steps, stars=()):
    history = [Artifact("system", "You look."), Artifact("user", "Find the kettle.")]
    for number in range(steps):
        history += step(f"c{number}", f"shelf {number}{'*' * (number in stars)}", tool="look")
    return history


def test_what_the_function_chooses_and_what_is_mandatory_stays():
    history = loop(10, stars=[3])
    kept = Keep(starred, is_starred).apply(history)
    assert kept == [*history[:2], *history[8:10], *history[-2:]]


def test_between_two_steps_prompts_only_grow():
    stabilizer = Stabilizer(100_000, stages=[Keep(starred, is_starred, every=4, name="Stars")], keep_recent=1)
    previous, moved = [], []
    for steps in range(1, 14):
        result = stabilizer.stabilize(loop(steps)).artifacts
        if result[: len(previous)] != previous:
            moved.append(steps)
        previous = result
    assert moved == [4, 8, 12]


def test_each_exchange_is_noted_once_and_not_while_it_may_grow():
    noted = []

    def note(past, number):
        noted.append((number, len(past.history)))
        return False

    stabilizer, history = Stabilizer(100_000, stages=[Keep(starred, note)]), loop(6)
    for end in (4, 6, len(history)):
        stabilizer.stabilize(history[:end])
    assert [number for number, _ in noted] == list(range(6))
    assert all(number < exchanges - 1 for number, exchanges in noted)


def test_a_record_stands_at_the_point_and_only_if_something_left():
    record = Artifact("user", "Earlier: nothing of note.")

    def since(past, end):
        return Choice((), end - 1, "before the point", record=record)

    history = loop(5)
    assert Keep(since, is_starred).apply(history) == [*history[:2], record, *history[-2:]]
    assert Keep(since, is_starred).apply(history[:4]) == history[:4]


def test_where_nothing_is_chosen_the_draft_is_the_same():
    assert Keep(lambda past, end: None, is_starred).apply(loop(4)) == loop(4)


@pytest.mark.parametrize("every", [0, -1, 1.5, "2"])
def test_a_step_out_of_range_is_refused(every):
    with pytest.raises(ConfigError, match="every"):
        Keep(starred, is_starred, every=every)
