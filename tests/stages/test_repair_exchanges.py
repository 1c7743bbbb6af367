"""What a provider would refuse is mended, named, or refused by name."""

from __future__ import annotations

from dataclasses import replace

import pytest
from builders import calls, result
from hypothesis import given
from hypothesis import strategies as st

from ctxguard import Artifact, Stabilizer
from ctxguard.errors import PairingError
from ctxguard.history import pair
from ctxguard.stages import RepairExchanges, arrival
from ctxguard.stages.arrival import INTERRUPTED
from ctxguard.testing import broken_histories, histories


def repaired(history, **settings):
    return Stabilizer(10_000, stages=[RepairExchanges(**settings)], counter="estimate").stabilize(history)


def shape(artifacts):
    return [(a.kind.value, a.answers or [c.id for c in a.calls] or a.text) for a in artifacts]


def test_a_call_left_behind_gets_a_result_that_says_so():
    out = repaired([Artifact("user", "go"), calls("a", "b"), result("a"), Artifact("user", "next")])
    assert shape(out.artifacts) == [
        ("user", "go"),
        ("assistant", ["a", "b"]),
        ("tool", "a"),
        ("tool", "b"),
        ("user", "next"),
    ]
    assert out.artifacts[3].text == INTERRUPTED
    assert out.report.decisions[-1].reason == "the call had no result"


def test_the_open_last_exchange_stays_open():
    history = [Artifact("user", "go"), calls("a", "b"), result("b")]
    assert repaired(history).artifacts == history


def test_orphans_and_duplicates_go_and_are_told():
    out = repaired([result("x"), Artifact("user", "go"), calls("a"), result("a"), result("a")])
    assert shape(out.artifacts) == [("user", "go"), ("assistant", ["a"]), ("tool", "a")]
    reasons = {d.reason for d in out.report.decisions if d.action == "dropped"}
    assert reasons == {"answers no call", "answers a call that has its result"}


@pytest.mark.parametrize("between", [[], [Artifact("assistant", "wait")], [Artifact("user", "well?")]])
@pytest.mark.parametrize("ids", ["a", None])
def test_a_later_result_takes_the_place_of_an_earlier_one(between, ids):
    answered = {"answers": ids, "name": "run"} if ids is None else {"answers": ids}
    first, then = Artifact("tool", "pending", **answered), Artifact("tool", "4217", **answered)
    out = repaired([Artifact("user", "go"), calls(ids), first, *between, then, then])
    assert [a.text for a in out.artifacts] == ["go", "", "4217", *(a.text for a in between)]
    told = {d.reason for d in out.report.decisions if d.action == "dropped"}
    assert told == {"a later result of the same call takes its place", "answers a call that has its result"}


@pytest.mark.parametrize("text", ["", " ", INTERRUPTED, "done"])
def test_a_later_result_that_says_nothing_new_takes_no_place(text):
    out = repaired([Artifact("user", "go"), calls("a"), result("a"), result("a", text)])
    assert [a.text for a in out.artifacts] == ["go", "", "done"]


def test_a_late_result_moves_up_behind_its_call():
    out = repaired([Artifact("user", "go"), calls("a"), Artifact("user", "hurry"), result("a")])
    assert shape(out.artifacts) == [("user", "go"), ("assistant", ["a"]), ("tool", "a"), ("user", "hurry")]


def test_missing_ids_are_filled_in_and_the_same_each_time():
    history = [Artifact("user", "go"), calls(None, None), result(None), result(None, "two")]
    first, second = repaired(history).artifacts, repaired(history).artifacts
    assert first == second
    assert [c.id for c in first[1].calls] == [a.answers for a in first[2:]]
    assert None not in [c.id for c in first[1].calls]


def test_an_id_on_one_side_is_used_for_the_other():
    assert repaired([calls(None), result("r1")]).artifacts[0].calls[0].id == "r1"
    assert repaired([calls("c1"), result(None)]).artifacts[1].answers == "c1"


def test_raise_names_every_fault():
    with pytest.raises(PairingError) as caught:
        repaired([result("x"), calls("a"), Artifact("user", "go")], on_broken="raise")
    assert caught.value.findings == ("call 0 @ artifacts[1] has no result", "result @ artifacts[0] answers no call")


def test_ignore_leaves_incremental_input_alone():
    history = [result("on-the-server")]
    assert (
        Stabilizer(100, stages=[RepairExchanges(on_broken="ignore")], checks=[]).stabilize(history).artifacts == history
    )


@given(histories())
def test_a_valid_history_is_left_alone(history):
    out = repaired(history)
    assert all(a is b for a, b in zip(out.artifacts, history, strict=True))


@given(broken_histories())
def test_a_repaired_history_is_valid_and_repairing_it_again_changes_nothing(history):
    out = repaired(history).artifacts
    found = pair(out)
    assert not found.orphans
    assert not found.duplicates
    assert repaired(out).artifacts == out


ROUGH = st.lists(
    st.one_of(
        st.just(Artifact("user", "go")),
        st.lists(st.sampled_from(["a", "b", None]), min_size=1, max_size=2).map(lambda ids: calls(*ids)),
        st.sampled_from(["a", "b", "c", None]).map(result),
    ),
    max_size=14,
).map(lambda items: [replace(item) for item in items])


@given(ROUGH)
def test_a_history_that_grows_is_mended_as_it_is_at_once(history):
    remembering = RepairExchanges()
    for end in range(1, len(history) + 1):
        grown = Stabilizer(10_000, stages=[remembering], counter="estimate").stabilize(history[:end])
        at_once = repaired(history[:end])
        assert grown.artifacts == at_once.artifacts
        assert grown.report.to_dict() == at_once.report.to_dict()


def test_only_what_is_new_of_a_broken_history_is_looked_at(monkeypatch):
    looked = []
    monkeypatch.setattr(
        arrival,
        "pair",
        lambda artifacts, begin=0, **more: looked.append(begin) or pair(artifacts, begin, **more),
    )
    history = [Artifact("user", "go"), calls("gone")]
    remembering = Stabilizer(10_000, stages=[RepairExchanges()], counter="estimate")
    for step in map(str, range(20)):
        history += [Artifact("user", "next"), calls(step), result(step)]
        remembering.stabilize(history)
    assert min(looked[2:]) > 0
    assert looked[-1] == len(history) - 2
