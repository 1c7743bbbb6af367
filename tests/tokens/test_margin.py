"""The budget keeps free what our counts were measured to fall short by, and the report says what was measured."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxguard import Artifact, BudgetExceededError, Stabilizer
from ctxguard.errors import ConfigError
from ctxguard.tokens.counters import find_counter
from ctxguard.tokens.families import FAMILIES, MEASURED, Margin, margin_of

CLAUDE = "claude-sonnet-4-5"


def history(turns, reported=None):
    told = [Artifact("user", "What is next?"), Artifact("assistant", "word " * 300, reported=reported)]
    return [Artifact("system", "You help."), *(a for _ in range(turns) for a in told), Artifact("user", "And now?")]


@given(st.integers(1, 10**7), st.floats(0, 0.5), st.integers(0, 500))
def test_a_count_that_fits_beside_its_margin_fits_the_budget(budget, share, flat):
    margin = Margin(share, flat)
    counted = budget - margin.within(budget)
    if counted > 0:
        assert counted + share * counted + flat <= budget + 1e-3


def test_without_a_model_nothing_is_kept_free():
    assert Stabilizer(8_000).budget_for() == 8_000
    assert "no provider's count" in Stabilizer(8_000).stabilize(history(1)).report.accuracy


def test_with_a_model_what_was_measured_is_kept_free():
    stabilizer = Stabilizer(8_000, model=CLAUDE)
    measured = MEASURED["claude-4"].margin
    assert stabilizer.budget_for() == 8_000 - measured.within(8_000) < 8_000
    report = stabilizer.stabilize(history(40)).report
    assert report.tokens_after * (1 + measured.share) + measured.flat <= 8_000
    assert "recorded requests" in report.accuracy


def test_a_headroom_of_ones_own_can_be_given():
    assert Stabilizer(8_000, model=CLAUDE, headroom=0).budget_for() == 8_000
    assert Stabilizer(8_000, model=CLAUDE, headroom=0.25).budget_for() == 6_000
    assert Stabilizer(8_000, headroom=0.25).budget_for() == 6_000
    assert Stabilizer(8_000, model=CLAUDE, headroom=1_000).budget_for() == 7_000


@pytest.mark.parametrize("headroom", ["wide", -0.1, 1.5, -1, float("nan"), float("inf"), True, None])
def test_a_headroom_that_is_neither_tokens_nor_a_share_is_refused(headroom):
    with pytest.raises(ConfigError, match="headroom is 'measured', a number of tokens, or a share below 1"):
        Stabilizer(8_000, headroom=headroom)


def test_a_headroom_that_leaves_nothing_of_the_budget_is_refused():
    with pytest.raises(ConfigError, match="a headroom of 1000 leaves nothing of a budget of 1000"):
        Stabilizer(1_000, headroom=1_000).budget_for()


def test_what_the_provider_counted_narrows_the_margin():
    stabilizer = Stabilizer(8_000, model=CLAUDE)
    before = stabilizer.stabilize(history(6)).report
    after = stabilizer.stabilize(history(6, reported=before.tokens_after // 2)).report
    assert before.budget == stabilizer.budget_for() < after.budget < 8_000
    assert Stabilizer(8_000, model=CLAUDE, headroom=0).stabilize(history(6, reported=900)).report.budget == 8_000
    fixed = Stabilizer(8_000, model=CLAUDE, headroom=0.1).stabilize(history(6, reported=900)).report
    assert fixed.budget == 7_200


def test_a_session_and_a_whole_list_keep_the_same_margin():
    told = history(8, reported=1_500)
    session = Stabilizer(2_500, model=CLAUDE).session()
    for artifact in told:
        session.append(artifact)
    whole = Stabilizer(2_500, model=CLAUDE).stabilize(told)
    assert session.context().report.budget == whole.report.budget
    assert session.context().artifacts == whole.artifacts


def test_what_cannot_fit_beside_the_margin_is_refused_with_the_number_that_counts():
    with pytest.raises(BudgetExceededError) as refused:
        Stabilizer(400, model=CLAUDE, keep_recent=1).stabilize([Artifact("user", "word " * 330)])
    assert refused.value.budget < 400


def test_an_estimate_by_byte_classes_keeps_more_free():
    with_vocabulary, without = find_counter("auto", model="gpt-5"), find_counter("estimate", model="gpt-5")
    assert margin_of(without).share > margin_of(with_vocabulary).share
    assert "12%" in without.accuracy


def test_every_measured_margin_belongs_to_a_family_and_is_sane():
    kin = {family.kin or family.name for family in FAMILIES}
    for name, measured in MEASURED.items():
        assert name in kin
        assert measured.requests > 0
        assert 0 <= measured.under <= 1
        assert 0.02 <= measured.margin.share <= (0.17 if name == "claude-4" else 0.15)  # its long requests need more
