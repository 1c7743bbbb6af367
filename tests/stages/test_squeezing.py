"""What is squeezed names the handle of its full text, whole, and fits into every budget above the least."""

from __future__ import annotations

import json
import random
import re

import pytest
from builders import assistant, exchange, user
from tiers import crossed

from ctxguard import Artifact, BudgetExceededError, Stabilizer, ToolCall
from ctxguard.content.results import recall_tool
from ctxguard.stores import MemoryStore

WORDS = (
    "room",
    "hotel",
    "rating",
    "Paris",
    "price",
    "240",
    "euro",
    "night",
    "great",
    "flight",
    "EU-17",
    "arrive",
    "14:05",
)
HANDLE = re.compile(r"handle (\w+)|^\[([a-z]{12,})\]$", re.MULTILINE)


def looking_at(number):
    outputs = [f"page_{number}_{n}.html: " + f"row_{number}_{n} is fine. " * 200 for n in range(4)]
    return exchange(*outputs, tool="look")


def handles_in(artifacts):
    return [named or alone for artifact in artifacts for named, alone in HANDLE.findall(artifact.text)]


@pytest.mark.parametrize("asked", range(100, 1_000, 50))
def test_outputs_that_are_squeezed_keep_the_handles_that_they_named(asked):
    store = MemoryStore()
    stabilizer = Stabilizer.from_policy("agent", 1_500, store=store, counter="estimate")
    recall = recall_tool(store)
    history = [user("Look at all pages."), *looking_at(1)]
    before = handles_in(stabilizer.stabilize(history).artifacts)
    assert len(before) == 4
    history.append(user("Tell me. " * asked))
    try:
        squeezed = stabilizer.stabilize(history).artifacts
    except BudgetExceededError:
        assert asked > 400
        return
    assert handles_in(squeezed) == before
    assert [handle for handle in before if "nothing is saved" in recall(handle)] == []


@pytest.mark.slow
def test_a_table_that_is_squeezed_keeps_its_handle():
    store = MemoryStore()
    stabilizer = Stabilizer.from_policy("agent", 3_000, store=store, counter="estimate")
    table = "\n".join(("id,name,value", *(f"{n},name_{n},{n * 7}" for n in range(400))))
    history = [user("Look."), *exchange(table, tool="look")]
    before = handles_in(stabilizer.stabilize(history).artifacts)
    assert len(before) == 1
    served = 0
    for asked in range(700, 1_100, 4):
        try:
            squeezed = stabilizer.stabilize([*history, user("Tell me. " * asked)]).artifacts
        except BudgetExceededError:
            continue
        served += 1
        assert handles_in(squeezed) == before
    assert served > 50


@pytest.mark.parametrize("policy", ["agent", "chat", "recall"])
@pytest.mark.parametrize("budget", range(250, 900, 50))
def test_every_handle_that_is_named_can_be_read(policy, budget):
    store = MemoryStore()
    stabilizer = Stabilizer.from_policy(policy, budget, store=store, counter="estimate")
    recall = recall_tool(store)
    history = [user("Look at all pages.")]
    for number in range(8):
        history += looking_at(number)
        try:
            artifacts = stabilizer.stabilize(history).artifacts
        except BudgetExceededError:
            continue
        assert [handle for handle in handles_in(artifacts) if "nothing is saved" in recall(handle)] == []


def small_session(seed):
    """Return a session of a few short messages, outputs of lines and of words among them."""
    draw = random.Random(seed)

    def words(least, most):
        return " ".join(draw.choices(WORDS, k=draw.randint(least, most)))

    history = [Artifact("system", words(20, 20)), user(words(5, 60))]
    for _ in range(draw.randint(1, 3)):
        lines = "\n".join(f"{words(1, 1)}: {words(1, 12)}" for _ in range(draw.randint(1, 8)))
        history += [assistant(words(1, 30)), *exchange(*draw.choices([lines, words(3, 120)], k=draw.randint(1, 2)))]
    return [*history, assistant(words(5, 90))] if draw.random() < 0.5 else history


@pytest.mark.parametrize(("on_overflow", "seed"), crossed(2, ["raise", "bound"], range(8, 13)))
def test_a_larger_budget_is_never_refused_where_a_smaller_one_was_enough(seed, on_overflow):
    history, served, refused = small_session(seed), 0, []
    for budget in range(40, 400):
        try:
            Stabilizer(budget, headroom=0, on_overflow=on_overflow).stabilize(history)
            served += 1
        except BudgetExceededError:
            refused += [budget] if served else []
        if served == 40:
            break
    assert served == 40
    assert refused == []


PAGE = "\n".join(f"line {n} of the page, written at length" for n in range(400))


def written(said, *contents):
    """Return the message that the model is left with, in a window that its calls exceed."""
    calls = tuple(
        ToolCall("write", json.dumps({"path": f"{n}.md", "content": c}), f"c{n}") for n, c in enumerate(contents)
    )
    results = [Artifact("tool", "done", answers=call.id) for call in calls]
    history = [user("Write the page."), Artifact("assistant", said, calls=calls), *results]
    result = Stabilizer.from_policy("agent", 1_000, counter="estimate").stabilize(history)
    assert result.report.tokens_after <= 1_000
    return result.artifacts[1]


@pytest.mark.parametrize("contents", [(PAGE,), (PAGE, PAGE), ("short", PAGE), (PAGE, "short", "short, too")])
def test_of_a_message_the_longest_texts_are_squeezed_and_short_ones_stay(contents):
    said = "Now I write the whole page, with all changes at once."
    message = written(said, *contents)
    assert message.text == said
    for call, content in zip(message.calls, contents, strict=True):
        arguments = json.loads(call.arguments)
        assert len(call.arguments) < len(PAGE) / 2 if content is PAGE else arguments["content"] == content


def test_short_arguments_stay_when_the_text_of_their_message_is_squeezed():
    message = written(PAGE, "short")
    assert 0 < len(message.text) < len(PAGE)
    assert json.loads(message.calls[0].arguments)["content"] == "short"
