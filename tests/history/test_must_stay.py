"""What must stay: the task is what the user asked first, never what a stage wrote in its place."""

from __future__ import annotations

import pytest

from ctxguard import Artifact, Stabilizer, ToolCall
from ctxguard.history import CHECKPOINT, RECALLED, SUMMARY, History, is_asked, record_title, write_record
from ctxguard.stages import SlidingWindow, StableWindow


def task_of(*history, budget=1_000):
    model = History(Stabilizer(budget, counter="estimate").counter.artifact, history)
    number = model.task(budget)
    return None if number is None else model.members(number)[0]


def test_the_first_user_message_is_the_task_unless_it_takes_too_much():
    task = Artifact("user", "Buy a red kettle.")
    assert task_of(Artifact("system", "You shop."), task) is task
    assert task_of(Artifact("user", "word " * 400)) is None


@pytest.mark.parametrize("opening", [SUMMARY, RECALLED, CHECKPOINT])
def test_what_a_stage_wrote_is_never_the_task(opening):
    assert task_of(Artifact("user", write_record(opening, "They bought it.")), Artifact("user", "And now?")) is None


def test_a_summary_that_comes_back_in_a_history_is_kept_until_another_record_takes_its_place():
    history = [Artifact("user", write_record(SUMMARY, "They bought a kettle."))]
    guard = Stabilizer(200, stages=[StableWindow()], counter="estimate")
    for turn in range(60):
        history += [Artifact("assistant", f"Step {turn} is done."), Artifact("user", f"Go on with step {turn + 1}.")]
        history += [Artifact("user", write_record(SUMMARY, "They filled it."))] * (turn == 30)
        result = guard.stabilize(history).artifacts
        summaries = [a for a in result if record_title(a) == SUMMARY]
        assert len(summaries) in ((1,) if turn < 30 else (1, 2))
    assert [a.text for a in summaries] == [write_record(SUMMARY, "They filled it.")]


@pytest.mark.parametrize("opening", [SUMMARY, RECALLED, CHECKPOINT])
def test_what_a_stage_wrote_takes_the_place_of_no_message_of_the_user(opening):
    history = [
        Artifact("user", "Buy a red kettle."),
        Artifact("assistant", "Here."),
        Artifact("user", "Which is best?"),
    ]
    history += [Artifact("assistant", f"Looking at shelf {n}.") for n in range(20)]
    history += [
        Artifact("user", write_record(opening, "something of old")),
        Artifact("assistant", "That is shelf 21."),
    ]
    stabilizer = Stabilizer(90, stages=[StableWindow(target=0.5)], counter="estimate", keep_recent=1)
    result = stabilizer.stabilize(history)
    assert history[2] in result.artifacts
    assert result.report.ok, str(result.report)
    assert [a for a in history[-3:] if is_asked(a) or a.kind == "assistant"] == [history[-3], history[-1]]


def test_what_a_stage_wrote_does_not_count_in_a_window_of_messages():
    talk = [Artifact(("user", "assistant")[n % 2], f"Message {n}.") for n in range(31)]
    window = Stabilizer(10_000, stages=[SlidingWindow(10, every=1, rules=())])
    kept = window.stabilize(talk).artifacts
    written = [*kept[:-1], Artifact("user", write_record(RECALLED, "[turn 1] user: hello")), kept[-1]]
    assert window.stabilize(written).artifacts == written


@pytest.mark.parametrize("opening", [SUMMARY, RECALLED, CHECKPOINT])
def test_a_question_that_begins_like_a_record_is_the_user_s(opening):
    record = write_record(opening, "They bought it.")
    header = record.partition("\n")[0]
    for text in (f"[{opening}]\nWhat is this?", f"{header}\nWhat is this?", f"{record} And more", record[:-1]):
        history = [Artifact("user", "Buy a red kettle."), Artifact("assistant", "Yes."), Artifact("user", text)]
        assert is_asked(history[-1])
        result = Stabilizer(400, counter="estimate").stabilize(history)
        assert result.artifacts[-1] is history[-1]
        assert result.report.ok, str(result.report)


@pytest.mark.parametrize("opening", [SUMMARY, RECALLED, CHECKPOINT])
def test_a_verbatim_copy_of_a_record_as_the_last_message_stays(opening):
    history = [Artifact("user", "Buy a red kettle. " * 10), Artifact("assistant", "Yes. " * 30)]
    history.append(Artifact("user", write_record(opening, "They bought it.")))
    for keep in (0, 1, 2):
        result = Stabilizer(100, counter="estimate", keep_recent=keep, keep_task=False).stabilize(history)
        assert result.artifacts[-1] is history[-1]


@pytest.mark.parametrize("opening", [SUMMARY, RECALLED, CHECKPOINT])
def test_a_question_that_was_joined_to_what_a_stage_wrote_stays_the_last_of_the_user_s(opening):
    stabilizer = Stabilizer(
        150, stages=[StableWindow(target=0.5)], provider="strict", counter="estimate", keep_recent=1
    )
    history = [
        Artifact("user", "Buy."),
        Artifact("assistant", "Yes."),
        Artifact("user", write_record(opening, "It was red.")),
    ]
    kept = stabilizer.stabilize([*history, Artifact("user", "Which colour has mine?")]).artifacts
    for number in range(30):
        call = ToolCall("look", "{}", f"c{number}")
        result = Artifact("tool", f"Nothing stands on shelf {number} of the store room.", answers=call.id)
        kept = stabilizer.stabilize([*kept, Artifact("assistant", "Looking.", calls=(call,)), result]).artifacts
        assert any("Which colour" in artifact.text for artifact in kept)


@pytest.mark.parametrize("written", [write_record(SUMMARY, "It was red."), write_record(CHECKPOINT, "It was red.")])
def test_a_window_that_begins_with_what_a_stage_wrote_keeps_the_question_of_its_turn(written):
    history = [Artifact("user", "Buy a red kettle."), Artifact("assistant", "Yes."), Artifact("user", "Which is best?")]
    for number in range(12):
        call = ToolCall("look", "{}", f"c{number}")
        history += [Artifact("assistant", calls=(call,)), Artifact("tool", f"Shelf {number}.", answers=call.id)]
        history += [Artifact("user", written)] if number == 6 else []
    for budget in range(80, 240, 2):
        stabilizer = Stabilizer(budget, stages=[StableWindow(target=0.9)], counter="estimate", keep_recent=1)
        assert history[2] in stabilizer.stabilize(history).artifacts, budget


@pytest.mark.parametrize("stage", [StableWindow(), SlidingWindow(1)], ids=["window", "sliding"])
def test_what_a_user_sent_right_before_the_question_stays_with_it(stage):
    history = [Artifact("user", "Good morning, I have a question about my contract with you.")]
    history += [Artifact("assistant", f"Here is what I know of clause {n}. " * 8) for n in range(12)]
    sent = [Artifact("user", text) for text in ("Here is the LETTER: pay by May.", "Part two.", "What does it say?")]
    result = Stabilizer(400, keep_recent=1, stages=[stage], counter="estimate").stabilize([*history, *sent])
    assert [a.text for a in result.artifacts[-3:]] == [a.text for a in sent]
