"""What follows a call that was refused for its budget: the results of a new conversation, and no work done again."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ctxguard import Artifact, BudgetExceededError, Stabilizer
from ctxguard.policies import agent_stages
from ctxguard.testing import histories


def outcome(call):
    try:
        result = call()
    except BudgetExceededError as error:
        return error.needed, error.budget
    return result.artifacts, result.report.tokens_after, result.report.cut


@pytest.mark.slow
@settings(max_examples=settings.default.max_examples)  # each example is three chains for each message
@given(history=histories(), budget=st.integers(60, 700), large=st.integers(0, 12))
def test_what_follows_a_refused_call_is_what_a_new_session_gives(history, budget, large):
    history.insert(min(large, len(history)), Artifact("user", "a very long question " * 120))
    history += [Artifact("assistant", "An answer."), Artifact("user", "Go on.")]
    stabilizer = Stabilizer(budget, counter="estimate")
    session = stabilizer.session()
    for end, artifact in enumerate(history, 1):
        session.append(artifact)
        anew = Stabilizer(budget, counter="estimate")
        expected = outcome(lambda end=end, anew=anew: anew.stabilize(history[:end]))
        assert outcome(session.context) == expected
        assert outcome(lambda end=end: stabilizer.stabilize(history[:end])) == expected


def test_a_refused_call_is_not_made_again_by_the_calls_that_follow():
    calls = []

    def counted(draft):
        calls.append(len(draft.artifacts))
        return draft

    stabilizer = Stabilizer(200, counter="estimate", stages=[counted, *agent_stages()])
    history, refused = [Artifact("system", "a very long rule " * 120), Artifact("user", "Question?")], 0
    for number in range(10):
        try:
            stabilizer.stabilize(history)
        except BudgetExceededError:
            refused += 1
        history += [Artifact("assistant", f"Answer {number}."), Artifact("user", f"Question {number}?")]
    assert refused > 2
    assert calls == list(range(2, 21, 2))
