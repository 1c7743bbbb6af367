"""Roles take turns where a template wants them to, in every policy, and nothing is lost."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from prefix_law import grown

from ctxguard import Artifact, BudgetExceededError, Kind, Stabilizer, ToolCall
from ctxguard.artifacts import Part
from ctxguard.history import CHECKPOINT, RECALLED, SUMMARY, is_asked, write_record
from ctxguard.history.records import leading_records
from ctxguard.policies import POLICIES
from ctxguard.stages import MergeMessageRuns, StableWindow
from ctxguard.testing import histories
from ctxguard_openai import stabilize_messages

STRICT = {
    (policy, budget): Stabilizer.from_policy(policy, budget=budget, provider="strict", counter="estimate")
    for policy in sorted(POLICIES)
    for budget in (250, 2_000)
}

STABLE = [name for name in sorted(STRICT) if name[0] not in ("long_session", "pattern")]
"""Those that do not fill up with what fits, as the documents of these two want it."""


def merged(*artifacts):
    stabilizer = Stabilizer(10_000, stages=[MergeMessageRuns()], checks=[], counter="estimate")
    return stabilizer.stabilize(artifacts).artifacts


def roles(artifacts):
    return [a.kind for a in artifacts if a.kind not in (Kind.SYSTEM, Kind.TOOL)]


def test_messages_of_a_role_in_a_row_become_one_with_all_texts():
    call = ToolCall("f", "{}", "1")
    result = merged(
        Artifact("user", "one"),
        Artifact("user", "two"),
        Artifact("assistant", "I look."),
        Artifact("assistant", "", calls=(call,)),
        Artifact("tool", "found", answers="1"),
        Artifact("assistant", "Done."),
        Artifact("user", ""),
        Artifact("user", "three"),
    )
    assert [a.content for a in result] == ["one\n\ntwo", "I look.", "found", "Done.", "three"]
    assert result[1].calls == (call,)


def test_text_stands_before_the_picture_of_the_message_behind_it():
    picture = Artifact("user", (Part("image", tokens=85), Part("text", "What is it?")))
    assert merged(Artifact("user", "Look:"), picture)[0].text == "Look:\n\nWhat is it?"


@pytest.mark.parametrize(
    ("first", "last"),
    [
        (Artifact("user", (Part("image", tokens=85),)), Artifact("user", "x")),
        (Artifact("user", "x", name="ann"), Artifact("user", "y", name="bob")),
        (Artifact("user", "x"), Artifact("user", (Part("image", tokens=85),))),
    ],
)
def test_what_cannot_be_joined_without_loss_stays_apart(first, last):
    assert merged(first, last) == [first, Artifact("assistant", "…"), last]


def test_system_messages_at_the_beginning_are_joined_and_a_later_one_speaks_as_the_user():
    system, more = Artifact("system", "Be brief."), Artifact("system", "Be kind.")
    told = [system, more, Artifact("user", "Hi"), Artifact("assistant", "Hello"), Artifact("system", "It is late.")]
    out = merged(*told, Artifact("user", "So?"))
    assert [(a.kind, a.text) for a in out] == [
        ("system", "Be brief.\n\nBe kind."),
        ("user", "Hi"),
        ("assistant", "Hello"),
        ("user", "It is late.\n\nSo?"),
    ]


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_several_system_messages_and_an_interrupted_tool_pass_the_checks(policy):
    call = ToolCall("f", "{}", "1")
    told = [Artifact("system", "Be brief."), Artifact("system", "Write to ann@example.com."), Artifact("user", "Hi")]
    told += [Artifact("assistant", "", calls=(call,)), Artifact("tool", "found", answers="1")]
    out = STRICT[policy, 2_000].stabilize([*told, Artifact("system", "It is late."), Artifact("user", "Stop.")])
    assert out.report.ok, str(out.report)
    assert [a.kind for a in out.artifacts] == ["system", "user", "assistant", "tool", "assistant", "user"]


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_a_long_chat_with_a_strict_template_passes_its_checks(policy):
    history = [Artifact("system", "Be brief."), Artifact("user", "Help me plan a trip to Rome.")]
    for turn in range(60):
        history += [Artifact("assistant", f"answer {turn} " * 20), Artifact("user", f"question {turn} " * 10)]
    result = STRICT[policy, 2_000].stabilize(history)
    assert result.report.ok, str(result.report)
    assert any(d.action == "dropped" for d in result.report.decisions)
    assert "Rome" in result.artifacts[1].text or policy == "long_session"  # which keeps the newest alone
    assert all(a is not b for a, b in pairwise(roles(result.artifacts)))


@given(history=histories(max_turns=9), name=st.sampled_from(STABLE))
def test_the_profile_holds_and_prompts_grow_between_cuts(history, name):
    previous, served = None, 0
    replies = [p for p, a in enumerate(history) if a.kind is Kind.ASSISTANT and p] + [len(history)]
    for end in replies:
        if history[end - 1].kind is Kind.ASSISTANT:
            continue  # no call: the model would answer itself
        try:
            result = STRICT[name].stabilize(history[:end])
        except BudgetExceededError as error:
            assert error.needed > error.budget
            previous = None
            continue
        assert result.report.ok, str(result.report)
        previous, served = grown(previous, result), served + 1
    assume(served)  # where every call is refused, Hypothesis says so


def test_native_messages_are_joined():
    messages = [{"role": "user", "content": "one"}, {"role": "user", "content": [{"type": "text", "text": "two"}]}]
    out, report = stabilize_messages(messages, Stabilizer(1_000, provider="strict"))
    assert out == [{"role": "user", "content": [{"type": "text", "text": "one\n\ntwo"}]}]
    assert report.ok, str(report)
    assert [d.reason for d in report.decisions if d.action == "dropped"] == [
        "merged into the following message, because roles must alternate"
    ]


def test_a_stage_that_is_there_is_not_added_again():
    stages = [StableWindow(), MergeMessageRuns()]
    assert len(Stabilizer(1_000, stages=stages, provider="strict").stages) == 3
    assert len(Stabilizer(1_000, stages=[StableWindow()], provider="openai").stages) == 1


def test_a_message_of_a_role_that_nobody_knows_stays_apart():
    history = [
        Artifact("user", "go"),
        Artifact("assistant", "Done."),
        Artifact("assistant", "Not good.", role="critic", pinned=True),
        Artifact("user", "and now?"),
    ]
    result = Stabilizer(1_000, provider="strict").stabilize(history)
    assert [artifact.text for artifact in result.artifacts] == ["go", "Done.", "Not good.", "and now?"]


@pytest.mark.parametrize("opening", [SUMMARY, RECALLED, CHECKPOINT])
@pytest.mark.parametrize("counter", ["estimate", "o200k_base", "cl100k_base"])
def test_what_a_stage_wrote_is_parted_from_the_words_behind_it_at_no_cost(opening, counter):
    written, asked = Artifact("user", write_record(opening, "It was red.")), Artifact("user", "Which colour has mine?")
    counted = Stabilizer(1_000, counter=counter).counter
    (joined,) = merged(written, asked)
    assert joined.text.startswith(written.text)
    assert joined.text.endswith(asked.text)
    assert is_asked(joined)
    assert [record.body for record in leading_records(joined.text)] == ["It was red."]
    assert counted.artifact(joined) <= counted.artifacts([written, asked])
