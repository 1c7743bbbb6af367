"""Reasoning that stands beside the content is sent back: it is counted, masked where it is text, and never half changed."""

from __future__ import annotations

import pytest

from ctxguard import Stabilizer
from ctxguard.errors import HistoryError
from ctxguard_openai import OpenAIAdapter, stabilize_messages

MAIL = "jane.doe@corp-mail.net"
USER = {"role": "user", "content": "go"}
FORMAT = "anthropic-claude-v1"


def text(said, **fields):
    return {"type": "reasoning.text", "text": said, "format": "unknown", "index": 0, **fields}


def encrypted(size, **fields):
    return {"type": "reasoning.encrypted", "data": "A" * size, **fields}


def assistant(**fields):
    return {"role": "assistant", "content": "Done.", **fields}


def tokens(message):
    _, report = stabilize_messages([USER, message, USER], Stabilizer(100_000))
    return report.tokens_before


def masked(message):
    out, report = stabilize_messages([USER, message, USER], Stabilizer(100_000))
    assert report.ok, str(report)
    return out[1]


def test_the_reasoning_text_is_counted_and_masked():
    assert tokens(assistant(reasoning="word " * 300)) > tokens(assistant()) + 250
    assert masked(assistant(reasoning=f"write to {MAIL}")) == assistant(reasoning="write to [REDACTED_EMAIL]")


def test_details_are_counted_by_their_text_or_size():
    bare = tokens(assistant())
    assert tokens(assistant(reasoning_details=[text("word " * 300)])) > bare + 250
    assert tokens(assistant(reasoning_details=[{"type": "reasoning.summary", "summary": "word " * 300}])) > bare + 250
    assert tokens(assistant(reasoning_details=[encrypted(16_000)])) > bare + 2_900


def test_a_text_that_repeats_its_details_is_counted_once():
    details = [text("word " * 100), text("other " * 100)]
    repeated = "word " * 100 + "other " * 100
    assert tokens(assistant(reasoning=repeated, reasoning_details=details)) == tokens(
        assistant(reasoning_details=details)
    )


@pytest.mark.parametrize(
    "details",
    [
        [text("fine"), text(f"write to {MAIL}", signature="s", format=FORMAT)],
        [{"type": "reasoning.summary", "summary": f"write to {MAIL}"}, encrypted(64)],
    ],
)
def test_details_go_as_a_whole_where_one_would_change(details):
    said = "".join(str(detail.get("text") or detail.get("summary") or "") for detail in details)
    assert masked(assistant(reasoning=said, reasoning_details=details)) == assistant()
    assert masked(assistant(reasoning=f"of its own {MAIL}", reasoning_details=details)) == assistant(
        reasoning="of its own [REDACTED_EMAIL]"
    )


def test_details_without_personal_data_come_back_as_they_are():
    message = assistant(reasoning="ab", reasoning_details=[text("a"), text("b", signature="s"), encrypted(64)])
    assert masked(message) is message


def test_thinking_that_anthropic_signed_goes_after_a_cut():
    history = [USER]
    for number in range(30):
        history += [assistant(reasoning_details=[text(f"thought {number}", signature="s", format=FORMAT)])]
        history += [{"role": "user", "content": f"Question {number}. " + "word " * 60}]
    out, report = stabilize_messages(history, Stabilizer(1_200, counter="estimate"))
    assert report.ok
    told = [message for message in out if message["role"] == "assistant"]
    assert report.cut is not None
    assert "reasoning_details" not in told[0]
    assert "reasoning_details" in history[-2]


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"refusal": {"to": MAIL}}, "refusal must be a text, not dict"),
        ({"reasoning_content": [MAIL]}, "reasoning_content must be a text, not list"),
        ({"reasoning": 5}, "reasoning must be a text, not int"),
        ({"reasoning_details": {"text": MAIL}}, "reasoning_details must be a list of details, not dict"),
        ({"reasoning_details": [MAIL]}, "reasoning_details[0] must be a dict with 'type', not str"),
    ],
)
def test_what_stands_beside_the_content_and_cannot_be_read_is_refused(fields, fault):
    with pytest.raises(HistoryError) as caught:
        OpenAIAdapter().read([USER, assistant(**fields)])
    assert str(caught.value) == f"message 1: {fault}"


def test_langchain_reads_and_frees_the_same():
    messages = pytest.importorskip("langchain_core.messages")
    from ctxguard.adapting.adapter import stabilize_native
    from ctxguard_langchain import LangChainAdapter

    stored = {"id": "rs_1", "type": "reasoning", "summary": [{"type": "summary_text", "text": f"write to {MAIL}"}]}
    details = [text(f"write to {MAIL}", signature="s", format=FORMAT)]
    history = [
        messages.HumanMessage("go"),
        messages.AIMessage("Done.", additional_kwargs={"reasoning": stored, "k": 1}),
        messages.AIMessage("Done.", additional_kwargs={"reasoning_details": details, "reasoning": f"write to {MAIL}"}),
        messages.AIMessage("Done.", additional_kwargs={"reasoning": f"write to {MAIL}"}),
        messages.HumanMessage("go"),
    ]
    out, _ = stabilize_native(Stabilizer(100_000), LangChainAdapter(), history)
    assert [message.additional_kwargs for message in out[1:4]] == [
        {"k": 1},
        {},
        {"reasoning": "write to [REDACTED_EMAIL]"},
    ]
