"""The check on the finished request takes shortcuts; a search without them, which is slower, says the same."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxguard import Artifact, Stabilizer
from ctxguard.checks import NoPII
from ctxguard.errors import BudgetExceededError
from ctxguard.pii import DIGITS, PEOPLE, STANDARD
from ctxguard.testing import broken_histories, histories

VALUES = ("ann@example.org", "4111 1111 1111 1111", "SE45 5000 0000 0583 9825 7466", "+46 73 512 88 40", "192.168.7.1")


def judged(rules, history, budget):
    """Return the findings of the check with its shortcuts and without, of what a stabilizer without masking sends."""
    checks = [NoPII(rules), NoPII(rules, independent=True)]
    stages = [s for s in Stabilizer(budget, counter="estimate").stages if s.name != "MaskPII"]
    report = Stabilizer(budget, counter="estimate", stages=stages, checks=checks).stabilize(history).report
    return [sorted(str(finding) for finding in check.findings) for check in report.checks]


@pytest.mark.parametrize("rules", [STANDARD, PEOPLE, DIGITS], ids=["standard", "people", "digits"])
@given(
    history=st.one_of(histories(), broken_histories()),
    values=st.lists(st.sampled_from(VALUES), max_size=3),
    budget=st.sampled_from([300, 4_000]),
)
def test_a_search_without_shortcuts_finds_what_the_check_finds(rules, history, values, budget):
    history = [*history, *(Artifact("user", f"Write it down: {value}.") for value in values)]
    try:
        fast, independent = judged(rules, history or [Artifact("user", "Hello.")], budget)
    except BudgetExceededError:
        return
    assert fast == independent
    assert rules is not STANDARD or len(fast) >= len(values[-1:])


@given(history=st.one_of(histories(), broken_histories()), values=st.lists(st.sampled_from(VALUES), max_size=3))
def test_a_search_without_shortcuts_finds_nothing_in_what_is_sent(history, values):
    history = [*history, *(Artifact("user", f"Write it down: {value}.") for value in values)]
    try:
        result = Stabilizer(400, counter="estimate").stabilize(history or [Artifact("user", "Hello.")])
    except BudgetExceededError:
        return
    check = Stabilizer(4_000, counter="estimate", stages=[], checks=[NoPII(STANDARD, independent=True)])
    sent = [Artifact(a.kind, a.text) for a in result.artifacts if a.kind != "tool"]
    assert not check.stabilize(sent).report.checks[0].findings
