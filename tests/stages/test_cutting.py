"""What a cut keeps: the newest whole, views of what is old, what is stale first, what people said last."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from builders import exchange
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ctxguard import Artifact, BudgetExceededError, Part, Stabilizer, ToolCall
from ctxguard.history import TRAIL, History, record_title
from ctxguard.pii import SSN
from ctxguard.stages import OrderByAuthority, RepairExchanges, StableWindow


def guarded(budget=3_000, **settings):
    chain = [RepairExchanges(), StableWindow(**settings), OrderByAuthority()]
    return Stabilizer(budget, stages=chain, counter="estimate")


def lines(name, count):
    return "\n".join(f"{name} line {n} says what it says" for n in range(count))


def call(tool, arguments, output, number):
    made = ToolCall(tool, json.dumps(arguments), f"c{number}")
    return [Artifact("assistant", "", calls=(made,)), Artifact("tool", output, answers=made.id)]


def outputs(result):
    return [a.text for a in result.artifacts if a.kind == "tool"]


@given(st.integers(1, 120), st.integers(0, 12))
def test_the_newest_output_is_whole_while_it_fits_into_half_of_the_free_room(size, steps):
    history = [Artifact("system", "Be brief."), Artifact("user", "Fix it.")]
    for number in range(steps):
        history += call("run", {"n": number}, lines(f"old {number}", 30), number)
    newest = lines("new", size)
    history += call("run", {"n": "new"}, newest, "new")
    guard = guarded()
    free = 3_000 - sum(map(guard.counter.artifact, [*history[:2], history[-2]]))
    result = guard.stabilize(history)
    if guard.counter.artifact(history[-1]) <= free // 2:
        assert outputs(result)[-1] == newest
    assert result.report.tokens_after <= 3_000


def test_an_output_in_the_role_of_the_user_takes_a_view_at_a_cut_and_is_nobodys_words():
    history = [Artifact("user", "Fix the loader."), Artifact("assistant", "Let us look.\n```\nls\n```")]
    for n in range(9):
        history += [Artifact("user", lines(f"listing {n}", 30)), Artifact("assistant", f"Step {n}.\n```\nls {n}\n```")]
    history += [Artifact("user", lines("newest", 30))]
    texts = [a.text for a in guarded(2_400).stabilize(history).artifacts]
    shortened = [text for text in texts if "shortened by ctxguard" in text]
    assert len(shortened) >= 5
    assert all(text.startswith("listing") for text in shortened)
    assert texts[-4:] == [a.text for a in history[-4:]]
    texts = [a.text for a in guarded(1_500).stabilize(history).artifacts]
    kept = [n for n in range(9) if any(f"listing {n} line" in text for text in texts)]
    assert kept == [n for n in range(1, 9) if history[2 * n + 1].text in texts], "an output without its command"
    assert 2 < len(kept) < 9


def test_parallel_outputs_are_whole_in_order_and_the_one_that_is_too_large_says_so():
    small, huge = lines("small", 20), lines("huge", 2_000)
    result = guarded().stabilize([Artifact("user", "Look."), *exchange(small, huge, small)])
    first, second, third = outputs(result)
    assert [first, third] == [small, small]
    assert "shortened by ctxguard" in second
    assert "read it again for the rest" in second


TEXTS = {
    "one line": lambda count: "river " * count,
    "lines": lambda count: lines("log", 1 + count // 8),
    "rows": lambda count: json.dumps([{"id": 7_919 * n, "state": "paid"} for n in range(1 + count // 12)]),
    "code": lambda count: "\n".join(f"def f{n}(a):\n    return a + {n}" for n in range(1 + count // 12)),
}


@settings(max_examples=40)
@given(
    kind=st.sampled_from(sorted(TEXTS)),
    sizes=st.one_of(
        st.builds(lambda count, size: [size] * count, st.integers(5, 60), st.integers(10, 400)),
        st.builds(lambda count, size, huge: [*[size] * count, huge], *map(st.integers, (5, 10, 900), (60, 60, 4_000))),
        st.lists(st.integers(5, 700), min_size=5, max_size=20),
    ),
    budget=st.sampled_from([1_500, 2_000, 3_000, 4_000, 8_000, 16_000]),
    beside=st.sampled_from([0, 400]),
)
@example(kind="lines", sizes=[30] * 60, budget=1_800, beside=0)
@example(kind="rows", sizes=[200] * 8, budget=4_000, beside=0)
@example(kind="one line", sizes=[60] * 30, budget=2_000, beside=400)
@example(kind="lines", sizes=[900] * 3 + [20] * 10, budget=8_000, beside=0)
def test_no_unread_output_is_shortened_while_what_it_lacks_stays_free(kind, sizes, budget, beside):
    history = [Artifact("user", "Look at all of these."), *exchange(*map(TEXTS[kind], sizes))]
    guard = guarded(budget)
    try:
        result = guard.stabilize(history, overhead=beside)
    except BudgetExceededError:
        return  # the calls alone take the budget
    count = guard.counter.artifact
    pairs = zip(history[2:], result.artifacts[2:], strict=True)
    lacking = [count(whole) - count(sent) for whole, sent in pairs if sent is not whole]
    # A single one takes half of the available tokens; of several, a view of whole lines is often below its limit.
    unused = budget // 2 if len(lacking) == 1 else budget // 4
    assert budget - result.report.tokens_after <= max(min(lacking, default=budget), unused)


def test_outputs_share_what_is_free_and_give_half_of_it_back_once_the_model_has_replied():
    history = [Artifact("user", "Look."), *exchange(*[lines("part", 140)] * 5)]
    guard, count = guarded(4_000), guarded().counter.artifact
    first = guard.stabilize(history)
    assert first.report.tokens_after > 3_600
    assert max(map(count, first.artifacts[2:])) < 2 * min(map(count, first.artifacts[2:]))
    second = guard.stabilize([*history, Artifact("assistant", "I see."), Artifact("user", "Go on.")])
    assert second.report.tokens_after < 2_000
    assert not second.report.cut.fresh


@pytest.mark.parametrize("steps", [12, 14, 17, 20])
@pytest.mark.parametrize("sizes", [[60] * 6, [40] * 9, [90] * 4, [10, 60, 10, 60, 60, 60, 60]])
def test_what_a_cut_frees_goes_to_parallel_outputs_that_the_model_has_not_read(steps, sizes):
    history = [Artifact("user", "Look at all of these.")]
    for number in range(steps):
        history += call("run", {"n": number}, lines(f"old {number}", 18), number)
    history += exchange(*(lines(f"new {n}", size) for n, size in enumerate(sizes)))
    guard = guarded(4_000)
    count, result = guard.counter.artifact, guard.stabilize(history)
    pairs = list(zip(history[-len(sizes) :], result.artifacts[-len(sizes) :], strict=True))
    lacking = [count(whole) - count(sent) for whole, sent in pairs]
    # The trail does not need all of its tokens.
    assert 4_000 - result.report.tokens_after <= max(min(filter(None, lacking), default=4_000), 300)
    after = guard.stabilize([*history, Artifact("assistant", "I see."), Artifact("user", "Go on.")])
    assert not after.report.cut.fresh
    assert after.report.tokens_after < 3_600


def test_a_large_output_takes_its_view_with_the_next_call_and_a_small_one_stays_whole():
    large, small = lines("large", 200), lines("small", 8)
    history = [Artifact("user", "Fix it."), *call("run", {}, large, 1)]
    guard = guarded(8_000)
    assert outputs(guard.stabilize(history)) == [large]
    history += call("run", {}, small, 2)
    seen = guard.stabilize(history)
    assert "shortened by ctxguard" in outputs(seen)[0]
    assert seen.report.cut is not None
    assert not seen.report.cut.fresh
    assert "no new cut" in str(seen.report)
    history += call("run", {}, small, 3)
    assert outputs(guard.stabilize(history))[:2] == outputs(seen)
    assert guard.stabilize(seen.artifacts).artifacts == seen.artifacts


def test_what_signed_thinking_has_seen_stays_whole_until_a_cut():
    large = lines("large", 60)
    history = [Artifact("user", "Fix it."), *call("run", {}, large, 1)]
    thought = (Part("reasoning", "Hm.", signed=True), Part("text", "I see."))
    following = Artifact("assistant", thought, calls=(ToolCall("run", "{}", "c2"),))
    history += [following, Artifact("tool", "fine", answers="c2")]
    assert outputs(guarded(8_000).stabilize(history))[0] == large


def test_a_view_is_masked_and_names_the_handle_of_the_whole():
    from ctxguard.stores import MemoryStore

    store = MemoryStore()
    guard = Stabilizer.from_policy("agent", budget=2_000, store=store, rules=SSN, counter="estimate")
    text = lines("page", 400) + "\n078-05-1120"
    result = guard.stabilize([Artifact("user", "Look."), *call("look", {}, text, 1)])
    (handle,) = store.keys("tool-output")
    assert handle in outputs(result)[0]
    assert "078-05-1120" not in outputs(result)[0]


def reads(before=(), after=()):
    """Return a session that reads `a.py` early, and is cut later."""
    history = [Artifact("user", "Fix it."), *before]
    history += call("Read", {"file_path": "/w/a.py"}, lines("a.py", 9), "first")
    for number in range(3):
        history += call("run", {"n": number}, lines(f"run {number}", 9), number)
    history += after
    for number in range(3, 12):
        history += call("run", {"n": number}, lines(f"run {number}", 9), number)
    return history


def first_to_leave(history, budget=1_000):
    """Return the calls that have left after the first cut at which one left."""
    guard = guarded(budget, trail=0, target=0.9)
    for end in range(4, len(history) + 1, 2):
        result = guard.stabilize(history[: end - 1])
        kept = {c.id for a in result.artifacts for c in a.calls}
        gone = [c.id for a in history[: end - 1] for c in a.calls if c.id not in kept]
        if gone:
            return gone
    return pytest.fail("nothing left")


STANDING = "From now on, never touch the folder vendor/."


@pytest.mark.parametrize("cuts", [1, 2, 4])
def test_what_people_said_survives_cuts_verbatim_and_in_order(cuts):
    history = [Artifact("user", "Hello!"), Artifact("assistant", "Hi. What can I do?")]
    history += [Artifact("user", "Make the importer faster.")]
    rules = {3: STANDING, 6: "Use at most 2 workers.", 9: "Scratch that: 3 workers at most."}
    guard, made = guarded(1_500), 0
    for number in range(200):
        if number in rules:
            history.append(Artifact("user", rules[number]))
        history += call("run", {"n": number}, lines(f"run {number}", 12), number)
        result = guard.stabilize(history)
        made += result.report.cut is not None and result.report.cut.fresh
        if made >= cuts and number > 9:
            break
    said = [a.text for a in result.artifacts if a.kind == "user" and record_title(a) != TRAIL]
    assert [text for text in said if text != "Hello!"] == ["Make the importer faster.", *rules.values()]


@pytest.mark.parametrize(
    "greeting", ["Hi!", "hello there", "Guten Tag", "Bonjour, ça va ?", "你好", "Hey, how are you doing?"]
)
def test_a_greeting_is_no_task(greeting):
    history = [Artifact("user", greeting), Artifact("assistant", "Hello."), Artifact("user", "Count the files.")]
    model = History(guarded().counter.artifact, history)
    assert model.task(1_000) == 2
    assert History(guarded().counter.artifact, history[2:]).task(1_000) == 0


@pytest.mark.parametrize("text", ["Hi, fix the build.", "Good question: why does it fail?", "hello.py fails"])
def test_a_request_that_greets_is_one(text):
    assert History(guarded().counter.artifact, [Artifact("user", text)]).task(1_000) == 0


def test_an_output_without_a_pin_is_bounded_beside_a_call_that_has_one():
    call = Artifact("assistant", "", calls=(ToolCall("read", "{}", "1"),), pinned=True)
    history = [call, Artifact("tool", "a line of the log\n" * 2_000, answers="1")]
    seen = Artifact("assistant", "Seen.")
    for later in ([], [seen], [seen, Artifact("user", "Go on. " * 400)]):
        result = Stabilizer(2_000, counter="estimate").stabilize([*history, *later])
        assert result.report.ok, str(result.report)
        assert result.artifacts[:1] == [call]
        assert 50 < len(result.artifacts[1].text) < len(history[1].text) / 2
    pinned = [call, replace(history[1], pinned=True)]
    with pytest.raises(BudgetExceededError):
        Stabilizer(2_000, counter="estimate").stabilize(pinned)
