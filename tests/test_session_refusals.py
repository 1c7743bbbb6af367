"""A session goes on after a call that was refused for its budget, with the results of one that begins anew."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ctxguard import Artifact, BudgetExceededError, Stabilizer
from ctxguard.testing import histories


def outcome(call):
    try:
        result = call()
    except BudgetExceededError as error:
        return error.needed, error.budget
    return result.artifacts, result.report.tokens_after, result.report.cut


@given(history=histories(), budget=st.integers(60, 700), large=st.integers(0, 12))
def test_what_follows_a_refused_call_is_what_a_new_session_gives(history, budget, large):
    history.insert(min(large, len(history)), Artifact("user", "a very long question " * 120))
    history += [Artifact("assistant", "An answer."), Artifact("user", "Go on.")]
    session = Stabilizer(budget, counter="estimate").session()
    for end, artifact in enumerate(history, 1):
        session.append(artifact)
        anew = Stabilizer(budget, counter="estimate")
        assert outcome(session.context) == outcome(lambda end=end, anew=anew: anew.stabilize(history[:end]))
