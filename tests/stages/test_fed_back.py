"""Results that are fed back: a loop that goes on from what was sent, as agents that store their prompts do."""

from __future__ import annotations

from operator import is_

import pytest
from builders import assistant, step, user

from ctxguard import Artifact, Part, Stabilizer
from ctxguard.history import RECALLED, TRAIL, record_title, write_record
from ctxguard.history.records import records_in

LOOK = "Look at every host and tell me which one fails. "


def fed_back(stabilizer, steps=40, *, task=LOOK, asks_every=None):
    """Yield the results of a loop that keeps what was sent, with one user message or one in so many steps."""
    history = [user(task)]
    for number in range(steps):
        output = f"host-{number}.example.org: disk_{number} is {number} percent full. " * 6
        history += step(f"c{number}", output, tool="look", arguments=f'{{"host": "host-{number}"}}', said="Next.")
        if asks_every and number % asks_every == asks_every - 1:
            history.append(user(f"And after host-{number}?"))
        result = stabilizer.stabilize(history)
        history = list(result.artifacts)
        yield result


def trails_in(result):
    return [r for a in result.artifacts for r in records_in(a.text) if r.title == TRAIL]


@pytest.mark.parametrize("policy", ["agent", "chat", "browser", "recall"])
@pytest.mark.parametrize("asks_every", [None, 5])
@pytest.mark.parametrize("task", [LOOK, LOOK * 70])
def test_a_loop_that_feeds_results_back_has_one_trail(policy, asks_every, task):
    stabilizer = Stabilizer.from_policy(policy, budget=3_000, counter="estimate")
    results = list(fed_back(stabilizer, 60, task=task, asks_every=asks_every))
    assert all(len(trails_in(result)) <= 1 for result in results)
    assert trails_in(results[-1]), "nothing was cut"
    assert all(result.report.ok for result in results)


def test_a_trail_that_is_fed_back_counts_all_steps_that_have_left():
    *_, last = fed_back(Stabilizer(1_500, counter="estimate"))
    (trail,) = trails_in(last)
    there = sum(bool(artifact.calls) for artifact in last.artifacts)
    assert trail.body.startswith(f"{40 - there} earlier steps")


def test_what_was_recalled_and_fed_back_is_no_step_and_no_words_of_the_user():
    stabilizer = Stabilizer.from_policy("recall", 2_000, counter="estimate")
    history, steps, has_recalled = [user(LOOK)], 1, False
    for number in range(60):
        history += step(f"c{number}", f"host-{number}.example.org: disk_{number} is fine. " * 6, tool="look")
        history += [assistant("Fine."), user(f"What of disk_{number // 2}?")]
        steps += 3
        history = list(stabilizer.stabilize(history).artifacts)
        titles = [record_title(artifact) for artifact in history]
        has_recalled |= RECALLED in titles
        there = sum(title is None and artifact.kind != "tool" for title, artifact in zip(titles, history, strict=True))
        for trail in (record for artifact in history for record in records_in(artifact.text) if record.title == TRAIL):
            assert trail.body.startswith(f"{steps - there} earlier step")
            assert "Recalled from earlier" not in trail.body
    assert has_recalled


def test_a_trail_that_a_user_quotes_as_the_last_message_stays():
    quoted = user(write_record(TRAIL, "2 earlier steps, the oldest first:\n- look host-1\n- look host-2"))
    history = [user("Help me."), assistant("Gladly."), quoted]
    for number in range(30):
        history += step(f"c{number}", f"host-{number} is fine. " * 20)
    result = Stabilizer(900, counter="estimate").stabilize(history)
    assert result.report.counts()["dropped"] > 20
    assert quoted in result.artifacts
    assert [record_title(artifact) for artifact in result.artifacts].count(TRAIL) == 2


@pytest.mark.parametrize("policy", ["agent", "chat", "recall"])
@pytest.mark.parametrize("asks_every", [None, 5])
def test_where_roles_take_turns_a_fed_back_trail_is_taken_apart_from_what_it_was_joined_with(policy, asks_every):
    stabilizer = Stabilizer.from_policy(policy, budget=1_500, counter="estimate", provider="strict")
    for result in fed_back(stabilizer, asks_every=asks_every):
        assert result.report.ok, str(result.report)
        assert len(trails_in(result)) <= 1
        assert sum(LOOK.strip() in artifact.text for artifact in result.artifacts) == 1
        again = stabilizer.stabilize(result.artifacts)
        assert all(map(is_, again.artifacts, result.artifacts))
        assert len(again.artifacts) == len(result.artifacts)
        assert again.report.counts() == {"kept": len(result.artifacts)}
        assert not again.report.changed
    assert trails_in(result), "nothing was cut"


def test_a_record_within_a_sentence_is_not_taken_apart():
    quoted = f"You wrote {write_record(TRAIL, '2 earlier steps.')} and what was the first?"
    history = [user("Help me."), assistant("Gladly."), user(quoted)]
    result = Stabilizer(900, counter="estimate", provider="strict").stabilize(history)
    assert result.artifacts == history
    assert not result.report.changed


def test_a_message_with_an_image_is_taken_apart_and_joined_again():
    image = Part("image", tokens=80)
    text = f"{LOOK}\n\n{write_record(TRAIL, '3 earlier steps.')}\n\nAnd this one?"
    joined = Artifact("user", (Part("text", text), image))
    stabilizer = Stabilizer(600, counter="estimate", provider="strict")
    assert stabilizer.stabilize([joined]).artifacts == [joined]
    history = [joined]
    for number in range(30):
        history += step(f"c{number}", f"host-{number} is fine. " * 12)
    first, *_ = stabilizer.stabilize(history).artifacts
    assert first.content[1] is image
    (trail,) = records_in(first.text)
    assert int(trail.body.partition(" ")[0]) > 20
    assert first.text.startswith(LOOK)
    assert first.text.endswith("\n\nAnd this one?")
