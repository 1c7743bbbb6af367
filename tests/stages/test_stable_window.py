"""The default fit: cuts are rare, deep, at exchange boundaries, and told."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prefix_law import grown
from tiers import crossed

from ctxguard import Artifact, BudgetExceededError, Part, Stabilizer, ToolCall
from ctxguard.history import CHECKPOINT, SUMMARY, write_record
from ctxguard.policies import agent_stages
from ctxguard.stages import OrderByAuthority, RepairExchanges, StableWindow
from ctxguard.stores import MemoryStore


def stabilizer(budget=200, *, target=0.5, **more):
    window = StableWindow(target=target, trail=0)  # what leaves, and when; the rest has tests of its own
    chain = [RepairExchanges(), window, OrderByAuthority()]
    return Stabilizer(budget, stages=chain, counter="estimate", **more)


def user(text, tokens=10, **more):
    return Artifact("user", text, tokens, **more)


def assistant(text, tokens=10, **more):
    return Artifact("assistant", text, tokens, **more)


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


RECORDS = [write_record(SUMMARY, "Ann seeks a kettle."), write_record(CHECKPOINT, "Phase: login")]


@pytest.mark.parametrize("record", RECORDS)
def test_the_newest_record_of_what_is_gone_stays_where_a_cut_goes_past_it(record):
    history = [user("the task"), user(RECORDS[0]), user(record), *(assistant(f"a{n}", 20) for n in range(12))]
    guard, prompt, cuts = stabilizer(keep_recent=1), None, 0
    for end in range(3, len(history) + 1):
        prompt = grown(prompt, result := guard.stabilize(history[:end]))
        if result.report.cut is None:
            assert result.artifacts == history[:end]
        else:
            cuts += 1
            assert history[0] in result.artifacts
            assert [a for a in result.artifacts if a in history[1:3]] == [history[2]]
        assert stabilizer(keep_recent=1).stabilize(history[:end]).artifacts == result.artifacts
        assert guard.stabilize(result.artifacts).artifacts == result.artifacts
    assert cuts


def test_a_record_gives_way_to_what_must_stay_and_is_no_more_than_a_quarter_of_the_budget():
    past = [assistant(f"a{n}", 30) for n in range(6)]
    for record, last in ((51, 20), (40, 130)):
        later = [assistant(f"b{n}", 20) for n in range(4)]  # until a message of the user's follows, the record stays
        history = [user("the task", 20), user(RECORDS[0], record), *past, user("now", last), *later]
        guard, prompt = stabilizer(keep_recent=1), None
        for end in range(3, len(history) + 1):
            prompt = grown(prompt, result := guard.stabilize(history[:end]))
        assert history[1] not in result.artifacts
        assert "bounded" not in result.report.counts()


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
    assert result.report.decisions[-1].reason == "exceeds half of the available tokens"


def test_what_was_squeezed_and_then_left_the_window_is_older_than_it():
    guard = stabilizer(200)
    history = [user("go"), *step("a", 20, 900)]
    guard.stabilize(history)
    for n in range(20):
        history += [user(f"u{n}", 20), assistant(f"a{n}", 20)]
    dropped = guard.stabilize(history).report.decisions[2]
    assert (dropped.action, dropped.reason) == ("dropped", "evicted at a cut")


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
    assert "" not in [a.text for a in kept]
    assert [kept[0].text, kept[-1].text] == ["task", "and now?"]


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


def session_with_a_provider_that_counts(ratio, guard, turns=40):
    """Run a session; return its history and what the provider counted of each prompt that it was sent."""
    history, counts = [], []
    for n in range(turns):
        history.append(user(f"u{n}", 50))
        counts.append(round(ratio * guard.stabilize(history).report.tokens_after))
        history.append(Artifact("assistant", f"a{n}", 50, reported=counts[-1]))
    return history, counts


def test_what_the_provider_counts_never_exceeds_the_budget_once_it_has_said_how_it_counts():
    _, counts = session_with_a_provider_that_counts(1.4, stabilizer(1_200))
    assert max(counts) <= 1_200
    _, counts = session_with_a_provider_that_counts(1.4, stabilizer(1_200, headroom=0))
    assert max(counts) > 1_600
    history, _ = session_with_a_provider_that_counts(1.4, stabilizer(1_200))
    error = stabilizer(1_200).stabilize([*history, user("last", 50)]).report.details["calibration"]
    assert error["error"] == pytest.approx(1 / 1.4 - 1, abs=0.01)


def test_with_a_provider_that_counts_as_we_do_the_result_is_its_own_result():
    guard = stabilizer(2_000)
    history, _ = session_with_a_provider_that_counts(1.0, guard, turns=60)
    for end in range(1, len(history) + 1, 2):
        once = guard.stabilize(history[:end]).artifacts
        assert guard.stabilize(once).artifacts == once


def test_counts_of_prompts_that_were_sent_unguarded_before_say_nothing_of_ours():
    history, sent = [], 0
    for n in range(100):
        history += [user(f"u{n}", 50), Artifact("assistant", f"a{n}", 50, reported=sent + 50)]
        sent += 100
    history.append(user("now with a guard", 50))
    told = stabilizer(2_000).stabilize(history).report
    assert told.tokens_after == stabilizer(2_000, headroom=0).stabilize(history).report.tokens_after
    assert told.details["calibration"]["reported"] == 1_950, "the last call before a cut"


def test_a_higher_count_alone_never_refuses_what_fits():
    history = [
        Artifact("system", "s", 400),
        user("u", 600),
        Artifact("assistant", "a", 50, reported=1_200),
        user("q", 200),
    ]
    assert 1_000 < stabilizer(1_300).stabilize(history).report.tokens_after <= 1_300


@settings(max_examples=40)
@given(
    st.lists(st.tuples(st.integers(1, 90), st.integers(1, 90), st.booleans()), min_size=3, max_size=30),
    st.integers(300, 500),
)
def test_the_place_of_a_cut_is_where_the_prompt_differs_from_the_one_before(turns, budget):
    guard, history, prompt = stabilizer(budget), [Artifact("system", "s", 10)], None
    for number, (question, answer, records) in enumerate(turns):
        history += [user(write_record(CHECKPOINT, f"Phase: {number}"), answer)] * records
        history.append(user(f"u{number}", question))
        prompt = grown(prompt, result := guard.stabilize(history))
        assert guard.stabilize(result.artifacts).artifacts == result.artifacts
        history.append(assistant(f"a{number}", answer))
    assert stabilizer(budget).stabilize(history[:-1]).artifacts == result.artifacts


def test_stages_that_two_counters_share_do_not_mix_what_they_remember():
    stages = agent_stages()
    history = [Artifact("assistant" if n % 2 else "user", "word word word " * 10) for n in range(101)]
    Stabilizer(2_000, stages=stages, counter=lambda text: len(text) // 4).stabilize(history)
    shared = Stabilizer(2_000, stages=stages, counter=lambda text: len(text) + 0).stabilize(history)
    alone = Stabilizer(2_000, stages=agent_stages(), counter=lambda text: len(text) + 0).stabilize(history)
    assert shared.artifacts == alone.artifacts


def test_a_system_message_in_the_middle_changes_no_output_that_was_sent_before():
    history = [
        Artifact("system", "be brief"),
        Artifact("user", "q"),
        Artifact("assistant", "", calls=(ToolCall("f", "{}", "1"),)),
        Artifact("tool", "w " * 900, answers="1"),
        Artifact("assistant", "done"),
        Artifact("user", "q2"),
    ]
    guard = Stabilizer(700, counter="estimate")
    first = guard.stabilize(history).artifacts
    more = [Artifact("assistant", "a2"), Artifact("system", "note " * 40), Artifact("user", "q3")]
    second = guard.stabilize([*history, *more])
    output = next(a for a in first if a.kind == "tool").content
    assert [a.content for a in second.artifacts if a.kind == "tool"] in ([output], [])


@pytest.mark.parametrize(("keep_task", "place"), crossed(2, [True, False], range(1, 36)))
def test_the_trail_stands_behind_the_task_wherever_the_system_speaks(place, keep_task):
    history = [Artifact("system", "s"), user("task", None)]
    for number in range(16):
        history += [*step(f"c{number}", None, None), user("go on", None)]
    history.insert(place, Artifact("system", "be brief"))
    history.insert(place, Artifact("system", "be polite"))
    for budget in (260, 320, 400):
        result = Stabilizer(budget, counter="estimate", keep_task=keep_task).stabilize(history)
        assert result.report.ok, str(result.report)
        trail = next(n for n, a in enumerate(result.artifacts) if "earlier steps" in a.text)
        notices = [a for a in result.artifacts if a.kind == "system"]
        assert notices == [a for a in history if a.kind == "system"], "within its share, each stays"
        first = 3 if place == 1 else 1
        assert [a.kind.value for a in result.artifacts[:trail]] == ["system"] * first + ["user"] * keep_task


def test_system_messages_in_the_middle_keep_their_place_and_only_the_prompt_grows():
    history, guard = [Artifact("system", "s"), user("task", None)], Stabilizer(4_000, counter="estimate")
    before = guard.stabilize(history).artifacts
    for number in range(6):
        history += [*step(f"c{number}", None, None), Artifact("system", f"notice {number}"), user("go on", None)]
        result = guard.stabilize(history)
        assert result.artifacts[: len(before)] == before
        assert result.artifacts == history
        before = result.artifacts


def test_system_messages_beyond_their_share_are_shortened_the_oldest_first():
    history = [Artifact("system", "s"), user("task", None)]
    for number in range(12):
        history += [Artifact("system", f"notice {number}: " + "mind the gap. " * 40), user(f"go on {number}", None)]
    result = Stabilizer(1_500, counter="estimate").stabilize(history)
    assert result.report.ok, str(result.report)
    notices = [a.text for a in result.artifacts if a.kind == "system"][1:]
    whole = [text for text in notices if "left out" not in text]
    given = [a.text for a in history if a.kind == "system"][1:]
    assert whole[-2:] == given[-2:]
    assert 0 < len(whole) < 12
    assert [given.index(text) for text in whole] == sorted(given.index(text) for text in whole)


def test_a_first_message_too_large_to_stay_is_the_first_line_of_the_trail():
    history = [user("Fix the rounding of TimeDelta. " + "The background is long and winding. " * 60, None)]
    for number in range(30):
        history += [*step(f"c{number}", None, None), user(f"Go on with part {number}, and mind what was said.", None)]
    result = Stabilizer(900, counter="estimate", trail=0.4).stabilize(history)
    assert result.report.ok, str(result.report)
    trail = next(a.text for a in result.artifacts if "earlier step" in a.text)
    assert "Fix the rounding of TimeDelta." in trail


class CountingStore(MemoryStore):
    def __init__(self):
        super().__init__()
        self.written = Counter()

    def put_new(self, namespace, key, value):
        self.written[key] += 1
        return super().put_new(namespace, key, value)


def test_the_text_of_an_evicted_exchange_is_stored_once_however_many_cuts_follow():
    store = CountingStore()
    window = StableWindow(target=0.5, store=store)
    guard = Stabilizer(1_000, stages=[RepairExchanges(), window, OrderByAuthority()], counter="estimate")
    history = [user("task")]
    cuts = set()
    for number in range(30):
        history += step(f"s{number}", result=150)
        report = guard.stabilize(history).report
        cuts |= {report.cut.at} if report.cut else set()
    assert len(cuts) > 2
    assert store.written
    assert set(store.written.values()) == {1}
