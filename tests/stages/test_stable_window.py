"""The default fit: cuts are rare, deep, at exchange boundaries, and told."""

from __future__ import annotations

import pytest

from ctxguard import Artifact, BudgetExceededError, Part, Stabilizer, ToolCall
from ctxguard.stages import OrderByAuthority, RepairExchanges, StableWindow


def stabilizer(budget=200, *, target=0.5, **settings):
    chain = [RepairExchanges(), StableWindow(target=target), OrderByAuthority()]
    return Stabilizer(budget, stages=chain, counter="estimate", **settings)


def user(text, tokens=10, **settings):
    return Artifact("user", text, tokens, **settings)


def assistant(text, tokens=10, **settings):
    return Artifact("assistant", text, tokens, **settings)


def step(name, tokens=10, result=30):
    call = Artifact("assistant", "", tokens, calls=(ToolCall("run", '{"n": "' + name + '"}', name),))
    return [call, Artifact("tool", f"result of {name} " * 10, result, answers=name)]


def texts(result):
    return [a.text.split(" " * 2)[0] for a in result.artifacts]


def test_what_fits_is_left_alone():
    history = [Artifact("system", "s", 10), user("a"), assistant("b"), user("c")]
    result = stabilizer().stabilize(history)
    assert all(a is b for a, b in zip(result.artifacts, history, strict=True))
    assert result.report.cut is None


def test_a_cut_frees_down_to_the_target_and_stays_there():
    history = [Artifact("system", "s", 10), user("task")]
    history += [assistant(f"a{n}", 20) if n % 2 else user(f"u{n}", 20) for n in range(1, 40)]
    sizes, cuts = [], 0
    guard = stabilizer(200, keep_recent=2)
    for end in range(2, len(history) + 1):
        report = guard.stabilize(history[:end]).report
        sizes.append(report.tokens_after)
        cuts += report.cut is not None and report.cut.at == end - 1
    assert max(sizes) <= 200
    assert cuts <= len(history) / 4
    assert min(sizes[10:]) >= 80


def test_the_first_user_message_stays_as_the_task():
    history = [user("the task"), *(m for n in range(12) for m in (assistant(f"a{n}", 20), user(f"u{n}", 20)))]
    assert texts(stabilizer().stabilize(history))[0] == "the task"
    assert texts(stabilizer(keep_task=False).stabilize(history))[0] != "the task"


def test_a_first_message_of_more_than_a_quarter_of_the_budget_is_no_task():
    history = [user("a large paste", 51), *(m for n in range(12) for m in (assistant(f"a{n}", 20), user(f"u{n}", 20)))]
    assert "a large paste" not in texts(stabilizer(200).stabilize(history))


def test_a_cut_inside_a_turn_keeps_the_message_that_opened_it():
    history = [user("old"), assistant("x"), user("go"), *(a for n in range(9) for a in step(f"s{n}"))]
    kept = stabilizer(200, keep_task=False).stabilize(history).artifacts
    assert kept[0].text == "go"
    assert kept[1].calls[0].id not in ("s0", "s1")
    assert [a.answers for a in kept if a.kind == "tool"] == [a.calls[0].id for a in kept if a.calls]


def test_pins_stay_with_their_whole_exchange():
    pinned = step("pinned")
    pinned[1] = Artifact("tool", "keep me", 30, answers="pinned", pinned=True)
    history = [user("go"), *pinned, *(a for n in range(12) for a in step(f"s{n}"))]
    kept = stabilizer(200).stabilize(history).artifacts
    assert [a.text for a in kept[1:3]] == ["", "keep me"]


def test_what_must_stay_is_squeezed_before_anything_is_refused():
    huge = [user("go"), *step("a", 20, 900)]
    result = stabilizer(200).stabilize(huge)
    assert result.report.tokens_after <= 200
    assert result.report.decisions[-1].action == "bounded"
    assert result.report.decisions[-1].reason == "what must stay did not fit"


def test_large_arguments_of_answered_calls_are_squeezed_and_stay_json():
    import json

    call = Artifact(
        "assistant", "", calls=(ToolCall("write", json.dumps({"path": "a.py", "text": "line of code\n" * 400}), "1"),)
    )
    result = stabilizer(300).stabilize([user("go"), call, Artifact("tool", "ok", answers="1")])
    assert result.report.tokens_after <= 300
    assert isinstance(json.loads(result.artifacts[1].calls[0].arguments), dict)


def test_arguments_of_a_call_that_is_still_open_are_never_touched():
    call = Artifact("assistant", "", calls=(ToolCall("write", '{"text": "' + "word " * 400 + '"}', "1"),))
    with pytest.raises(BudgetExceededError) as caught:
        stabilizer(300).stabilize([user("go"), call])
    assert caught.value.parts["last exchange"] > 300


def test_the_last_user_message_is_never_touched():
    with pytest.raises(BudgetExceededError) as caught:
        stabilizer(200).stabilize([user("small", 5), assistant("ok", 5), user("word " * 300, 300)])
    assert caught.value.parts["last user message"] == 300


def test_an_opening_message_of_media_gives_way_to_the_task():
    image = Artifact("user", (Part("image", tokens=150),))
    history = [user("task"), assistant("b"), image, assistant("seen"), user("and now?", 60)]
    kept = stabilizer(200).stabilize(history).artifacts
    assert [a.text for a in kept] == ["task", "seen", "and now?"]


def test_the_report_says_where_the_prompt_changed_and_what_it_costs():
    history = [
        Artifact("system", "s", 10),
        user("task"),
        *(m for n in range(9) for m in (assistant(f"a{n}", 20), user(f"u{n}", 20))),
    ]
    guard = stabilizer(200)
    for end in range(2, len(history) + 1, 2):
        result = guard.stabilize(history[:end])
        cut = result.report.cut
        if cut is not None and cut.fresh:
            assert cut.position == 2
            assert cut.rebilled == result.report.tokens_after - 20
            assert "re-billed" in str(result.report)
            break
    else:
        pytest.fail("nothing was cut")


def test_what_the_provider_counted_leaves_more_room():
    turns = [m for n in range(20) for m in (user(f"u{n}", 50), assistant(f"a{n}", 50))]
    told = [Artifact("assistant", a.text, 50, reported=1_500) if n == 21 else a for n, a in enumerate(turns)]

    def largest(guard, history):
        return max(guard.stabilize(history[:end]).report.tokens_after for end in range(23, len(history) + 1))

    report = stabilizer(1_200).stabilize(told).report
    assert report.details["calibration"] == {"reported": 1_500, "counted": 1_050, "error": -0.3}
    assert largest(stabilizer(1_200), turns) == 1_200
    assert largest(stabilizer(1_200), told) == 800
    assert largest(stabilizer(1_200, calibrate=False), told) == 1_200
