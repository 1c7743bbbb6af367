"""What the pruner keeps and drops."""

from __future__ import annotations

import pytest
from builders import step
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from prefix_law import grown

from ctxguard import Artifact, BudgetExceededError, Stabilizer
from ctxguard.history import CHECKPOINT, SUMMARY, write_record
from ctxguard.stages import (
    IntelligentPruner,
    PruningRules,
    RepairExchanges,
    StableWindow,
)

STRICT = PruningRules(importance_threshold=0.5, keep_error_context=0)


def loop(steps, begin=0):
    """Return a task and exchanges of one long tool loop."""
    opening = [] if begin else [Artifact("system", "You look things up."), Artifact("user", "Find the red kettle.")]
    for number in range(begin, steps):
        shelf, found = f"{'abcdefg'[number % 7]}{number}", f"Nothing stands on shelf {number} of the store room."
        opening += step(f"call_{number}", found, tool="look", arguments=f'{{"shelf": "{shelf}"}}')
    return opening


@pytest.mark.parametrize(
    "record", [write_record(SUMMARY, "Ann seeks a kettle."), write_record(CHECKPOINT, "Phase: login")]
)
def test_what_stands_for_what_is_gone_stays_however_little_it_matters(record):
    history = loop(40)
    history.insert(2, Artifact("user", record))
    most = PruningRules(importance_threshold=1.0, keep_error_context=0)
    stabilizer = Stabilizer(100_000, stages=[IntelligentPruner(most)])
    result = stabilizer.stabilize(history).artifacts
    assert result[2] is history[2]
    assert len(result) < 30
    assert stabilizer.stabilize([*result, *loop(60, 40)]).artifacts[2] is history[2]  # where results are stored, too
    assert history[2] in IntelligentPruner(most).prune(history)


def test_exchanges_alike_are_merged_with_their_count_once_they_are_judged():
    same = [a for n in range(6) for a in loop(1, 0)[2:]]
    history = [*loop(3), *same, *loop(30, 3)]
    rules = PruningRules(importance_threshold=0.0)
    result = Stabilizer(100_000, stages=[RepairExchanges(), IntelligentPruner(rules)]).stabilize(history)
    assert [a.text for a in result.artifacts if "the same" in a.text] == [
        "Nothing stands on shelf 0 of the store room.\n[the same 6 times in a row, the last one shown]"
    ]
    reasons = {d.reason for d in result.report.decisions if d.action == "dropped"}
    assert reasons == {"merged"}


WORDS = ["alpha", "beta", "kettle", "shelf", "error", "red", "done"]
TEXTS = st.lists(st.sampled_from(WORDS), min_size=1, max_size=12).map(" ".join)
STEPS = st.one_of(
    st.tuples(TEXTS, st.lists(TEXTS, min_size=1, max_size=2)), st.tuples(TEXTS, st.lists(TEXTS, max_size=1).map(tuple))
)


def grown_by(number, said, others):
    """Return a reply and what comes for it: messages of the user's, or the results of a call."""
    if isinstance(others, list):
        return [Artifact("assistant", said), *(Artifact("user", text) for text in others)]
    return step(f"c{number}", " ".join((said, *others)), tool="look")


@settings(max_examples=60)
@given(TEXTS, st.lists(STEPS, min_size=3, max_size=14), st.sampled_from([90, 150, 3_000]), st.integers(1, 3))
def test_the_laws_hold_where_every_exchange_is_judged_at_once(opening, steps, budget, every):
    rules = PruningRules(keep_error_context=0, preserve=())
    stages = [RepairExchanges(), IntelligentPruner(rules, every=every), StableWindow()]
    stabilizer = Stabilizer(budget, stages=stages, counter="estimate", keep_recent=1)
    history, prompt, served = [Artifact("user", opening)], None, 0
    for number, grows in enumerate(steps):
        history += grown_by(number, *grows)
        try:
            result = stabilizer.stabilize(history)
        except BudgetExceededError as error:
            assert error.needed > budget
            prompt = None
            continue
        assert result.report.ok, str(result.report)
        prompt, served = grown(prompt, result), served + 1
    assume(served)  # where every call is refused, Hypothesis says so
