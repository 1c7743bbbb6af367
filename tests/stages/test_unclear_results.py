"""A missing result shifts no other: where ids are missing or repeat, no call gets the result of another one."""

from __future__ import annotations

import json

import pytest
from builders import calls, result
from hypothesis import given
from hypothesis import strategies as st

from ctxguard import Artifact, Stabilizer, ToolCall
from ctxguard.checks import CallsArePaired
from ctxguard.stages import RepairExchanges
from ctxguard.stages.arrival import INTERRUPTED, UNCLEAR
from ctxguard_google import GoogleAdapter
from ctxguard_openai import ResponsesAdapter

IDS = {
    "unique": lambda n, tool: f"id {n}",
    "repeated": lambda n, tool: tool,
    "one": lambda n, tool: "x",
    "none": lambda n, tool: None,
}


def repaired(history):
    return Stabilizer(100_000, stages=[RepairExchanges()], checks=[CallsArePaired()], counter="estimate").stabilize(
        history
    )


def answers_of(artifacts):
    """Read which text stands behind which arguments, by neighborhood alone."""
    found, waiting = [], []
    for artifact in artifacts:
        if artifact.calls:
            waiting = list(artifact.calls)
        elif artifact.kind == "tool":
            call = next(call for call in waiting if call.id == artifact.answers)
            waiting.remove(call)
            found.append((json.loads(call.arguments)["n"], artifact.text))
    return found


STEPS = st.lists(
    st.tuples(
        st.lists(st.tuples(st.sampled_from(["read", "list"]), st.booleans()), min_size=1, max_size=4),
        st.sampled_from(["together", "apart", "said between"]),
        st.sampled_from([None, "user", "assistant"]),
    ),
    min_size=1,
    max_size=6,
)


@given(steps=STEPS, ids=st.sampled_from(sorted(IDS)), named=st.booleans())
def test_no_call_gets_the_result_of_another(steps, ids, named):
    history, number, came = [Artifact("user", "go")], 0, 0
    for made, how, then in steps:
        step = []
        for tool, is_answered in made:
            call = ToolCall(tool, json.dumps({"n": number}), IDS[ids](number, tool))
            text = f"of {number}"
            step.append((call, Artifact("tool", text, answers=call.id, name=tool if named else None), is_answered))
            number += 1
        if how == "together":
            history.append(Artifact("assistant", calls=tuple(call for call, _, _ in step)))
        else:
            for call, _, _ in step:
                history += [Artifact("assistant", "hm")] * (how == "said between")
                history.append(Artifact("assistant", calls=(call,)))
        history += [answer for _, answer, is_answered in step if is_answered]
        came += sum(is_answered for _, _, is_answered in step)
        if then is not None:
            history.append(Artifact(then, "on"))
    history.append(Artifact("user", "the end"))
    out = repaired(history)
    assert out.report.ok
    pairs = answers_of(out.artifacts)
    assert sorted(n for n, _ in pairs) == list(range(number))
    assert [text for n, text in pairs if text not in (f"of {n}", INTERRUPTED, UNCLEAR)] == []
    kept = sum(text == f"of {n}" for n, text in pairs)
    if all(is_answered for made, _, _ in steps for _, is_answered in made) or ids == "unique":
        assert kept == came  # nothing is given up without need
    dropped = [d for d in out.report.decisions if d.action == "dropped"]
    assert len(dropped) == came - kept  # and nothing silently
    assert {d.reason for d in dropped} <= {"may answer one of several calls"}


def test_a_result_that_may_be_of_two_calls_is_given_to_none():
    out = repaired([Artifact("user", "go"), calls("x", "x"), result("x"), Artifact("user", "next")])
    assert [a.text for a in out.artifacts[2:4]] == [UNCLEAR, UNCLEAR]
    reasons = {d.reason for d in out.report.decisions if d.reason}
    assert reasons == {"may answer one of several calls", "it is not clear which result is the call's"}


@pytest.mark.parametrize(
    "history",
    [
        [calls("x"), calls("x"), result("x"), Artifact("user", "next")],
        [calls("x", "x"), result("x"), Artifact("user", "next")],
        [calls("x"), Artifact("assistant", "hm"), calls("x"), result("x"), Artifact("user", "next")],
    ],
)
def test_the_check_finds_by_itself_that_a_call_has_no_result(history):
    out = Stabilizer(10_000, stages=[], checks=[CallsArePaired()], counter="estimate").stabilize(history)
    assert {finding.message for finding in out.report.checks[0].findings} >= {"a tool call has no result"}


def test_in_open_exchange_results_are_taken_in_their_order():
    history = [Artifact("user", "go"), calls("x", "x"), result("x", "first")]
    assert repaired(history).artifacts == history


def test_of_gemini_without_ids_nothing_shifts():
    def call(n):
        return {"functionCall": {"name": "read", "args": {"n": n}}}

    def answer(n):
        return {"functionResponse": {"name": "read", "response": {"output": f"of {n}"}}}

    contents = [
        {"role": "user", "parts": [{"text": "go"}]},
        {"role": "model", "parts": [call(0), call(1)]},
        {"role": "user", "parts": [answer(1)]},
        {"role": "model", "parts": [call(2)]},
        {"role": "user", "parts": [{"text": "and?"}]},
        {"role": "model", "parts": [call(3)]},
        {"role": "user", "parts": [answer(3)]},
    ]
    out = repaired(GoogleAdapter().read(contents))
    assert answers_of(out.artifacts) == [(0, UNCLEAR), (1, UNCLEAR), (2, INTERRUPTED), (3, "of 3")]
    whole = [*contents[:2], {"role": "user", "parts": [answer(0), answer(1)]}]
    read = GoogleAdapter().read(whole)
    assert repaired(read).artifacts == read


def test_of_responses_with_repeated_ids_nothing_shifts():
    def call(n):
        return {"type": "function_call", "call_id": "c", "name": "read", "arguments": json.dumps({"n": n})}

    def answer(n):
        return {"type": "function_call_output", "call_id": "c", "output": f"of {n}"}

    items = [
        {"role": "user", "content": "go"},
        call(0),
        {"role": "assistant", "content": "again"},
        {"role": "user", "content": "go on"},
    ]
    items += [call(1), answer(1), call(2), answer(2)]
    out = repaired(ResponsesAdapter().read(items))
    assert answers_of(out.artifacts) == [(0, INTERRUPTED), (1, "of 1"), (2, "of 2")]
