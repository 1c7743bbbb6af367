"""Outputs and arguments that nobody would write by hand: cuts hold their limits, raise nothing untyped, and end soon."""

from __future__ import annotations

import random

import pytest
from builders import step
from patience import is_linear

from ctxguard import Artifact, Stabilizer, ToolCall
from ctxguard.history import TRAIL, write_record
from ctxguard.stages import CheckpointManager, RepairExchanges, StableWindow
from ctxguard.tokens import find_counter
from ctxguard.views.digests import digest

RUBBISH = random.Random(7).randbytes(200_000).decode("latin-1")
OUTPUTS = {
    "one line of 5 MB": "a1b2/c3.d4 " * 480_000,
    "one word of 5 MB": "x" * 5_000_000,
    "binary": RUBBISH,
    "lone surrogates": "\ud800\udfff\x00" * 5_000,
    "brackets": "[" * 100_000,
}
ARGUMENTS = {
    "not JSON": "{'path': open(" * 4_000,
    "nested": '{"a":' * 100_000 + "1" + "}" * 100_000,
    "a list": "[" * 100_000,
    "binary": RUBBISH,
    "empty": "",
    "one value of 1 MB": '{"content": "' + "z9/" * 350_000 + '"}',
}


def history_with(output="done", arguments="{}"):
    history = [Artifact("system", "You help."), Artifact("user", "Look at everything.")]
    for number in range(12):
        given = arguments if number == 2 else f'{{"n": {number}}}'
        told = output if number == 3 else f"step {number}: " + f"file{number}.py:{number} looks fine. " * 40
        history += step(f"c{number}", told, tool="look", arguments=given, said=f"Step {number}.")
    return history


def stabilized(history, budget=2_000, **settings):
    result = Stabilizer(budget, **settings).stabilize(history)
    assert result.report.ok, str(result.report)
    assert result.report.tokens_after <= budget
    return result


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name == "one line of 5 MB" else ()) for name in OUTPUTS]
)
def test_any_output_leaves_a_valid_context(name):
    stabilized(history_with(output=OUTPUTS[name]))


@pytest.mark.parametrize("name", ARGUMENTS)
def test_any_arguments_leave_a_valid_context(name):
    stabilized(history_with(arguments=ARGUMENTS[name]))


@pytest.mark.parametrize("name", [*OUTPUTS, *ARGUMENTS])
def test_digests_hold_their_limit(name):
    count = find_counter("auto").count
    text = OUTPUTS.get(name) or ARGUMENTS.get(name, "")
    for limit in (1, 10, 60):
        assert count(digest(text, limit, count=count)) <= limit


def test_a_thousand_parallel_calls_in_an_old_step_leave():
    calls = tuple(ToolCall("look", f'{{"n": {n}}}', f"p{n}") for n in range(1_000))
    wide = [
        Artifact("assistant", "All at once.", calls=calls),
        *(Artifact("tool", f"page {n}: ok", answers=f"p{n}") for n in range(1_000)),
    ]
    history = history_with()
    stabilized([*history[:2], *wide, *history[2:]], budget=4_000, counter="estimate")


@pytest.mark.parametrize("length", ["zzzzz", "aaaqa"])
def test_a_message_full_of_headings_of_records_takes_linear_time(length):
    heading = write_record(TRAIL, "").partition("\n")[0][:-6] + length + "]\n"
    talk = [Artifact("user", "Hi."), Artifact("assistant", "Yes?")]
    for settings in ({"provider": "strict"}, {"stages": [RepairExchanges(), CheckpointManager(), StableWindow()]}):

        def stabilize(headings, settings=settings):
            history = [*talk, Artifact("user", "See:\n\n" + heading * headings)]
            assert Stabilizer(10_000_000, counter="estimate", **settings).stabilize(history).artifacts == history

        assert is_linear(stabilize, 5_000)
