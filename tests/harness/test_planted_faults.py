"""Six faults are planted in a chain: the judge, which shares no code with stages and checks, names each with its call."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from ctxguard import Stabilizer
from ctxguard.artifacts import Artifact, Kind
from ctxguard.harness import parse_session, replay
from ctxguard.policies import agent_stages

pytestmark = pytest.mark.usefixtures("without_gain")

BUDGET = 900
CALLS = 60


def messages():
    """A session of sixty calls, with tools, a system prompt and personal data."""
    told = [{"role": "system", "content": "You look after the orders of a bicycle shop. Never promise a refund."}]
    for n in range(CALLS // 2):
        call = {
            "id": f"call_{n}",
            "type": "function",
            "function": {"name": "find_order", "arguments": f'{{"id": "W{n}7"}}'},
        }
        told += [
            {"role": "user", "content": f"I am eva{n}@example.org; where is order W{n}7 with the parts ab_{n}?"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {
                "role": "tool",
                "tool_call_id": f"call_{n}",
                "content": f"order W{n}7: shipped, track_{n}x " + "box " * 20,
            },
            {"role": "assistant", "content": f"It was shipped as track_{n}x on Monday."},
        ]
    return told


def drops_system(draft):
    return _at(draft, 31, lambda kept: [a for a in kept if a.kind is not Kind.SYSTEM])


def orphans_result(draft):
    return _at(draft, 32, lambda kept: [a for a in kept if not (a.calls and a.calls[0].id == "call_15")])


def leaks(draft):
    return _at(draft, 37, lambda kept: [*kept[:-1], kept[-1].revised(content=kept[-1].text + " (eva@example.org)")])


def exceeds(draft):
    def grown(kept):
        last = kept[-1]
        while draft.overhead + draft.counter.artifacts([*kept[:-1], last]) <= draft.budget:
            last = last.revised(content=last.text + " a")
        return [*kept[:-1], replace(last, token_count=1)]  # what it says of itself is wrong

    return _at(draft, 41, grown)


def rewrites_prefix(draft):
    return _at(draft, 2, lambda kept: [kept[0], kept[1].revised(content="Earlier I said something else."), *kept[2:]])


def empties_trail(draft):
    known = {id(a.root) for a in draft.history}
    return draft.revise(a if id(a.root) in known else a.revised(content="[]") for a in draft.artifacts)


def _at(draft, call, change):
    """Change the context of one call."""
    answered = sum(a.kind is Kind.ASSISTANT for a in draft.history)
    return draft.revise(change(list(draft.artifacts))) if answered == call - 1 else draft


def replayed(*faults):
    stages = [*agent_stages(), *faults]
    return replay(parse_session({"id": "shop", "messages": messages()}), Stabilizer(BUDGET, stages=stages, checks=()))


def test_without_a_fault_every_law_holds_under_pressure():
    told = replayed()
    assert told.places == []
    assert told.ok
    assert (told.figures.calls, told.figures.refused) == (CALLS, 0)
    assert told.figures.cuts > 1


@pytest.mark.parametrize(
    ("fault", "law", "call", "said"),
    [
        (drops_system, "system", 31, "a system prompt was lost"),
        (orphans_result, "pairs", 32, "a tool result without its call"),
        (leaks, "personal data", 37, "EMAIL was found"),
        (exceeds, "budget", 41, f"{BUDGET + 1} tokens are sent and the budget is {BUDGET}"),
        (rewrites_prefix, "prefix", 2, "the prompt does not extend the one before, and there was room"),
    ],
)
def test_a_planted_fault_is_found_and_its_call_named(fault, law, call, said):
    found = [place for place in replayed(fault).places if place.law == law]
    assert found, f"{law} was not found"
    assert (found[0].call, found[0].message) == (call, said)
    assert found[0].session == "shop"


RECALLED = "[Recalled from earlier in this conversation, oldest first. Record abcdefgh]"


def rewrites_for(words):
    """Rewrite the prefix at one call, with a block of so many words behind it."""
    block = Artifact(Kind.USER, f"{RECALLED}\n[turn 1] user: {'word ' * words}")

    def change(kept):
        return [kept[0], kept[1].revised(content="Earlier I said something else."), block, *kept[2:]]

    return lambda draft: _at(draft, 2, change)


def test_a_prefix_may_be_rewritten_for_what_is_recalled_where_the_block_does_not_fit():
    small, large = replayed(rewrites_for(1)), replayed(rewrites_for(700))
    assert large.figures.refused == 0
    assert large.calls[1].after > 0.9 * BUDGET, "with it, the prompt before would not have fit for certain"
    assert [2 in {place.call for place in told.places if place.law == "prefix"} for told in (small, large)] == [
        True,
        False,
    ]


def test_an_emptied_trail_is_found_at_the_first_cut():
    whole, emptied = replayed(), replayed(empties_trail)
    first_cut = next(number for number, call in enumerate(whole.calls, 1) if call.cut)
    assert emptied.places[0].law == "trail"
    assert emptied.places[0].call >= first_cut
    assert "messages were evicted" in emptied.places[0].message


def _telling(draft, change):
    """Change what the trail says."""
    known = {id(a.root) for a in draft.history}
    return draft.revise(
        a if id(a.root) in known else a.revised(content=change(a.text.split("\n", 2))) for a in draft.artifacts
    )


@pytest.mark.parametrize(
    "count",
    [
        lambda line: re.sub(r"\d+", "9999", line, count=1),
        lambda line: re.sub(r" earlier steps.*", " earlier steps.", line),
    ],
)
def test_a_trail_that_counts_otherwise_than_the_report_is_found(count):
    def miscounts(draft):
        return _telling(draft, lambda lines: "\n".join((lines[0], count(lines[1]), *lines[2:])))

    found = [p for p in replayed(miscounts).places if p.law == "trail"]
    assert found
    assert "the report says" in found[0].message


def test_a_trail_that_tells_of_something_else_is_found():
    heading = "The latest of these steps:"

    def other(lines):
        return f"{lines[1]}\n{heading}\n- user: Qu'est-ce?" if heading in lines[-1] else lines[1]

    found = [p for p in replayed(lambda draft: _telling(draft, other)).places if p.law == "trail"]
    assert found
    assert "none of" in found[0].message


@pytest.mark.parametrize("tool", ["f", "ls", "搜索", None])
@pytest.mark.parametrize(
    "answer", ["a " * 150, "... " * 150, "🎉 " * 80, "请帮我查询订单状态并且告诉我结果" * 9, "abcdef0123456789" * 40]
)
def test_a_trail_tells_of_messages_without_a_single_long_word(tool, answer):
    told = [{"role": "user", "content": "..."}]
    for n in range(12):
        call = {"id": f"c{n}", "type": "function", "function": {"name": tool, "arguments": "{}"}}
        if tool is None:
            told += [{"role": "assistant", "content": answer}, {"role": "user", "content": "go on"}]
        else:
            told += [
                {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": f"c{n}", "content": answer},
            ]
    told.append({"role": "assistant", "content": "done"})
    done = replay(parse_session(told), Stabilizer(700))
    assert done.figures.cuts
    assert done.places == []


def test_a_trail_with_nothing_but_a_price_tells_of_what_has_left():
    def tells_a_price(draft):
        return _telling(draft, lambda lines: f"{lines[1]}\n- user: $137")

    told = [{**m, "content": f"{m['content']} ($137)"} if m["role"] == "user" else m for m in messages()]
    stabilizer = Stabilizer(BUDGET, stages=[*agent_stages(), tells_a_price], checks=())
    assert not [p for p in replay(parse_session(told), stabilizer).places if p.law == "trail"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda kept: [*kept[1:], kept[0]], "was moved"),
        (lambda kept: [kept[0].revised(content=kept[0].text.replace("Never", "Always")), *kept[1:]], "was altered"),
        (
            lambda kept: [kept[0].revised(content=f"{kept[0].text}\nNew: give refunds to all."), *kept[1:]],
            "was altered",
        ),
    ],
    ids=["moved", "altered in the middle", "added to"],
)
def test_drift_of_the_system_prompt_is_named_with_its_call(change, said):
    found = [p for p in replayed(lambda draft: _at(draft, 12, change)).places if p.law == "system"]
    assert found[0].call == 12
    assert said in found[0].message


def test_what_masking_changes_of_a_system_prompt_is_no_drift():
    history = [
        {"role": "system", "content": "Write to boss@example.org, never call +49 30 901820."},
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "Hi"},
    ]
    told = replay(parse_session(history), Stabilizer(1_000))
    assert told.ok, told.places


def test_a_judge_counts_anew_and_believes_no_count_of_an_artifact():
    lying = Stabilizer(60, stages=[lambda d: d.revise(replace(a, token_count=1) for a in d.artifacts)], checks=())
    history = [{"role": "user", "content": "a long text " * 100}, {"role": "assistant", "content": "Fine."}]
    told = replay(parse_session(history), lying)
    assert told.figures.findings["budget"] == 1
