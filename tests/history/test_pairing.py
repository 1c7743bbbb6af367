"""Pairs and exchanges: results are matched with calls, in whatever order they come."""

from __future__ import annotations

import pytest
from builders import calls, result
from hypothesis import given
from hypothesis import strategies as st

from ctxguard import Artifact, Kind, Stabilizer, ToolCall, exchanges
from ctxguard.errors import CtxguardError, HistoryError
from ctxguard.history import pair
from ctxguard.history.pairing import STRICT_IDS, whole_until
from ctxguard.stages import FitCalls
from ctxguard.testing import broken_histories, histories


def test_parallel_calls_and_their_results_are_one_exchange():
    history = [Artifact("user", "go"), calls("a", "b"), result("b"), result("a"), Artifact("assistant", "ok")]
    assert [e.positions for e in exchanges(history)] == [(0,), (1, 2, 3), (4,)]


def test_a_late_result_belongs_to_its_call():
    history = [calls("a", "b"), result("a"), Artifact("user", "hurry"), result("b")]
    assert [e.positions for e in exchanges(history)] == [(0, 1, 3), (2,)]


def test_ids_that_repeat_across_steps_match_in_order():
    history = [calls("x"), result("x", "1"), calls("x"), result("x", "2")]
    assert [e.positions for e in exchanges(history)] == [(0, 1), (2, 3)]
    together = [calls("x"), calls("x"), result("x", "1"), result("x", "2")]
    assert pair(together).owner == {2: (0, 0), 3: (1, 0)}


def test_an_abandoned_call_does_not_steal_the_result_of_a_later_one():
    history = [calls("x"), Artifact("user", "never mind, again"), calls("x"), result("x")]
    found = pair(history)
    assert found.owner == {3: (2, 0)}
    assert found.unanswered == [(0, 0)]


def test_missing_ids_match_by_tool_then_in_order():
    caller = Artifact("assistant", "", calls=(ToolCall("read"), ToolCall("list")))
    found = pair([caller, result(None, name="list"), result(None, name="read")])
    assert found.owner == {1: (0, 1), 2: (0, 0)}


def test_only_an_unanswered_last_exchange_is_open():
    history = [calls("a"), Artifact("user", "x"), calls("b", "c"), result("b")]
    assert [e.open for e in exchanges(history)] == [False, False, True]


def compared(calls, *, reverse, with_ids):
    """Count how often ids are compared while so many parallel calls are paired."""

    class Id(str):
        __slots__ = ()
        times = 0
        __hash__ = str.__hash__

        def __eq__(self, other):
            Id.times += 1
            return str.__eq__(self, other)

    call = Artifact("assistant", calls=tuple(ToolCall("t", "", Id(n)) for n in range(calls)))
    results = [Artifact("tool", answers=Id(n) if with_ids else None, name="t") for n in range(calls)]
    assert len(pair([call, *(reversed(results) if reverse else results)]).owner) == calls
    return Id.times


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("with_ids", [False, True])
def test_parallel_calls_are_paired_in_time_that_grows_with_their_number(reverse, with_ids):
    few, many = (compared(calls, reverse=reverse, with_ids=with_ids) for calls in (100, 800))
    assert many <= 10 * few + 100


def test_orphans_and_duplicates_are_told_apart():
    found = pair([result("zzz"), calls("a"), result("a"), result("a")])
    assert (found.orphans, found.duplicates) == ([0], {3: 2})


@given(histories())
def test_every_artifact_of_a_valid_history_is_in_one_exchange_and_nothing_is_orphaned(history):
    found = exchanges(history)
    assert sorted(p for e in found for p in e.positions) == list(range(len(history)))
    assert not pair(history).orphans
    assert not pair(history).duplicates


@given(broken_histories())
def test_every_artifact_of_a_broken_history_is_in_one_exchange(history):
    assert sorted(p for e in exchanges(history) for p in e.positions) == list(range(len(history)))


def test_something_that_is_no_artifact_is_named_with_its_place():
    with pytest.raises(HistoryError, match="message 1: expected an Artifact, got dict") as caught:
        exchanges([Artifact("user", "x"), {"role": "user"}])
    assert caught.value.position == 1
    assert isinstance(caught.value, CtxguardError)


@given(history=st.one_of(histories(), broken_histories()))
def test_what_looks_whole_at_a_glance_is_paired(history):
    if whole_until(history) is None:
        return
    found = pair(history)
    assert not found.orphans
    assert not found.duplicates
    starts = [p for p, artifact in enumerate(history) if artifact.kind is not Kind.TOOL]
    assert all(starts[-1] == p for p, _ in found.unanswered)
    assert all(owner == max(p for p in starts if p < position) for position, (owner, _) in found.owner.items())


def test_an_id_that_only_the_server_can_change_is_given_to_no_later_call():
    call = ToolCall("run", "{}", "call_0")
    history = [
        Artifact("assistant", "", calls=(call,), source=()),
        Artifact("tool", "one", answers="call_0"),
        Artifact("assistant", "", calls=(call,)),
        Artifact("tool", "two", answers="call_0"),
    ]
    stages = [FitCalls(STRICT_IDS)]
    first, result, second, other = Stabilizer(4_000, stages=stages, counter="estimate").stabilize(history).artifacts
    assert first.calls[0].id == result.answers == "call_0"
    assert second.calls[0].id == other.answers != "call_0"
