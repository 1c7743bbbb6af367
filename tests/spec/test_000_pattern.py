"""spec/000, the context stabilizer pattern: its walkthrough comes out exactly."""

from __future__ import annotations

import copy
import random
import re

import pytest
from blocks import code_blocks, shimmed

from ctxguard import (
    Artifact,
    BudgetExceededError,
    Stabilizer,
    ToolCall,
    mask_pii,
    stabilize_context,
    validate_no_pii,
)
from ctxguard.artifacts import Lifetime


def walkthrough():
    return [
        Artifact("system", "You are a helpful assistant.", 6),
        Artifact("user", "I need help with my account. My SSN is 123-45-6789.", 15),
        Artifact("assistant", "I see. Let me look that up.", 8),
        Artifact("tool", '{"order": "' + "x" * 1_500 + '"}', 500),
        Artifact("user", "Okay, so what's the status of my last order?", 11),
    ]


def test_the_walkthrough():
    """> This stabilized context preserves the flow of the conversation while being smaller, cheaper, safer, and more focused."""
    history = walkthrough()
    before = copy.deepcopy(history)
    final = stabilize_context(history, 100)
    assert [(a.kind.value, a.content) for a in final] == [
        ("system", "You are a helpful assistant."),
        ("user", "I need help with my account. My SSN is [REDACTED_SSN]."),
        ("assistant", "I see. Let me look that up."),
        ("user", "Okay, so what's the status of my last order?"),
    ]
    assert sum(a.token_count for a in final) <= 100
    assert validate_no_pii(final)
    assert history == before


def test_history_is_added_from_oldest_to_newest_while_it_fits():
    """> Add historical messages from oldest to newest if they fit."""
    history = [
        Artifact("system", "s", 10),
        *(Artifact("user" if n % 2 == 0 else "assistant", f"m{n}", 10) for n in range(9)),
    ]
    assert [a.content for a in stabilize_context(history, 45)] == ["s", "m0", "m1", "m8"]


def test_the_newest_message_is_masked_too():
    """> assert validate_no_pii(final_artifacts)"""
    final = stabilize_context([Artifact("system", "s", 1), Artifact("user", "SSN 123-45-6789", 9)], 50)
    assert final[-1].content == "SSN [REDACTED_SSN]"


def test_a_tool_output_of_256_tokens_stays_and_one_of_257_goes():
    """> if artifact.kind == "tool" and artifact.token_count > 256:"""

    def kept(tokens):
        history = [Artifact("system", "s", 1), Artifact("tool", "data", tokens), Artifact("user", "q", 1)]
        return [a.kind.value for a in stabilize_context(history, 1_000)]

    assert kept(256) == ["system", "tool", "user"]
    assert kept(257) == ["system", "user"]


def test_what_cannot_fit_is_refused_with_both_numbers():
    """> Always preserve the system prompt and the most recent message."""
    history = [Artifact("system", "s", 90), Artifact("user", "q", 30)]
    with pytest.raises(BudgetExceededError) as caught:
        stabilize_context(history, 100)
    assert (caught.value.needed, caught.value.budget) == (120, 100)
    assert sum(caught.value.parts.values()) == 120


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("My SSN is 123-45-6789.", "My SSN is [REDACTED_SSN]."),
        ("two: 123-45-6789, 987-65-4321", "two: [REDACTED_SSN], [REDACTED_SSN]"),
        ("no data here", "no data here"),
        ("", ""),
    ],
)
def test_mask_pii(text, masked):
    """> return re.sub(r'\\d{3}-\\d{2}-\\d{4}', '[REDACTED_SSN]', text)"""
    assert mask_pii(text) == masked


def test_validate_no_pii():
    """> assert validate_no_pii(final_artifacts)"""
    assert validate_no_pii([Artifact("user", "hello", 1)])
    assert not validate_no_pii([Artifact("user", "hello", 1), Artifact("tool", "it is 123-45-6789", 5)])


def test_an_artifact_is_kind_content_and_token_count():
    """> kind can be "system", "user", "assistant", "tool\""""
    artifact = Artifact("user", "hello", 2)
    assert (artifact.kind, artifact.content, artifact.token_count) == ("user", "hello", 2)
    for kind in ("system", "user", "assistant", "tool"):
        assert Artifact(kind, "x", 1).kind == kind


def test_lifetimes_are_applied():
    """> B1[Apply Lifetimes] --> B2[Compress/Truncate] --> B3[Validate]"""
    history = walkthrough()
    history[2] = Artifact("assistant", "I see. Let me look that up.", 8, lifetime=Lifetime(turns=1))
    final = stabilize_context(history, 100)
    assert [a.kind.value for a in final] == ["system", "user", "user"]


@pytest.mark.parametrize("budget", [40, 60, 100, 1_000])
def test_the_policy_and_the_function_agree(budget):
    """> def stabilize_context(history: list[Artifact], budget: int) -> list[Artifact]:"""
    for history in (walkthrough(), [*walkthrough()[:3], Artifact("tool", "short", 20), *walkthrough()[4:]]):
        result = Stabilizer.from_policy("pattern", budget=budget).stabilize(history)
        assert result.artifacts == stabilize_context(history, budget)
        assert result.report.ok


def test_the_context_stays_within_the_budget_however_long_the_history():
    """> The history exceeds the model's maximum context window, causing errors."""
    history = [Artifact("system", "s", 10), *(Artifact("user", f"m{n}", 10) for n in range(5_000))]
    assert sum(a.token_count for a in stabilize_context(history, 200)) <= 200


def documents_code(history, budget):
    """Run the document's pseudo-code, on copies that it may change; None where its assertion fails."""
    items = [[a.kind.value, a.content, a.token_count] for a in history]
    system_prompt, last_message = next(a for a in items if a[0] == "system"), items[-1]
    intermediate = items[1:-1]
    for artifact in intermediate:
        if artifact[0] == "user":
            artifact[1] = re.sub(r"\d{3}-\d{2}-\d{4}", "[REDACTED_SSN]", artifact[1])
    final, token_count = [system_prompt], system_prompt[2]
    for artifact in intermediate:
        if artifact[0] == "tool" and artifact[2] > 256:
            continue
        if token_count + artifact[2] < budget - last_message[2]:
            final.append(artifact)
            token_count += artifact[2]
    final.append(last_message)
    return [(kind, text) for kind, text, _ in final] if token_count + last_message[2] <= budget else None


def random_history(r):
    history = [Artifact("system", "s", r.randint(0, 60))]
    for n in range(r.randint(1, 12)):
        kind = r.choice(["user", "assistant", "tool"])
        text = f"m{n}: my SSN is 123-45-6789" if kind == "user" and r.random() < 0.02 else f"m{n}"
        history.append(Artifact(kind, text, r.choice([r.randint(0, 40), r.randint(0, 600)])))
    return history


@pytest.mark.parametrize("histories", [1_000, pytest.param(10_000, marks=pytest.mark.slow)])
def test_it_equals_the_documents_code(histories):
    """> Always preserve the system prompt and the most recent message."""
    r = random.Random(36)
    differ, recounted = [], 0
    for _ in range(histories):
        history, budget = random_history(r), r.randint(1, 1_500)
        try:
            ours = [(a.kind.value, a.text) for a in stabilize_context(history, budget)]
        except BudgetExceededError:
            ours = None
        theirs = documents_code(history, budget)
        theirs = theirs and [(kind, mask_pii(text)) for kind, text in theirs]  # ours masks the newest message, too
        if ours != theirs:
            differ.append(history)
            recounted += any("SSN" in a.text for a in history)
    assert len(differ) == recounted < histories / 100


def test_the_newest_message_stays_whatever_its_kind():
    """> Always preserve the system prompt and the most recent message."""
    history = [Artifact("system", "s", 10), Artifact("user", "u", 10), Artifact("tool", "t", 500)]
    assert stabilize_context(history, 1_000) == history
    assert stabilize_context(history, 515) == [history[0], history[2]]
    answer = Artifact("assistant", "a", 90)
    result = Stabilizer.from_policy("pattern", budget=100).stabilize([*history[:2], answer])
    assert result.artifacts == [history[0], answer]
    assert result.report.ok


def test_an_answer_that_does_not_fit_is_replaced_by_a_note_of_its_size():
    """> Skip verbose tool output"""
    call = Artifact("assistant", calls=(ToolCall("look", "{}", "c"),))
    history = [
        Artifact("system", "s", 10),
        Artifact("user", "u", 10),
        call,
        Artifact("tool", "row " * 500, answers="c"),
    ]
    assert stabilize_context(history, 1_000) == history
    assert stabilize_context(history, 100)[-1].text.startswith("[tool output of 50")


def test_the_code_blocks_of_000_run_as_written():
    """> def mask_pii(text: str) -> str:"""
    space = shimmed("000")
    for block in code_blocks("000"):
        exec(block, space)
    theirs = [space["Artifact"](a.kind.value, a.content, a.token_count) for a in walkthrough()]
    final = space["stabilize_context"](theirs, 100)
    assert [(a.kind, a.content) for a in final] == [
        (a.kind.value, a.content) for a in stabilize_context(walkthrough(), 100)
    ]
