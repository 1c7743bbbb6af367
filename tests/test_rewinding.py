"""Histories that do not simply grow: the memory between calls returns to where they part, and changes no result."""

from __future__ import annotations

import copy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ctxguard import Artifact, BudgetExceededError, Stabilizer, ToolCall
from ctxguard.compaction import HistoryCompactor
from ctxguard.config import CompactionConfig
from ctxguard.pii import PEOPLE, STANDARD, Masker
from ctxguard.stages import MaskPII
from ctxguard.stages.fold import WindowFold
from ctxguard.testing import broken_histories, histories

PEOPLE_SAY = (
    "My name is Eva Berger, eva@example.org.",
    "Eva Berger called again; write to bob@example.net.",
    "What is <EMAIL_1>, and who is <PERSON_1>?",
    "Customer: Tom Keller, tom@example.com",
    "Tell Tom Keller that bob@example.net has it.",
)


@st.composite
def replaced_ends(draw):
    """Histories that follow each other: each begins as the one before, and ends otherwise."""
    source = draw(st.one_of(histories(), broken_histories()))
    spare = draw(st.one_of(histories(), broken_histories()))
    now, all_of_them = source[: len(source) // 2], []
    for number in range(draw(st.integers(2, 6))):
        now = now[: max(0, len(now) - draw(st.integers(0, 5)))]
        begin = draw(st.integers(0, max(0, len(spare) - 1)))
        now = [*now, *copy.deepcopy(spare[begin : begin + draw(st.integers(0, 6))])]
        now += [Artifact("user", text) for text in draw(st.lists(st.sampled_from(PEOPLE_SAY), max_size=2))]
        now = now or [Artifact("user", f"hello {number}")]
        all_of_them.append(list(now))
    return all_of_them


@pytest.mark.parametrize(
    "chain",
    [
        {},
        {"masker": Masker(strategy="pseudonymize")},
        {"masker": Masker((STANDARD, PEOPLE), strategy="pseudonymize")},
        {"policy": "agent"},
        {"policy": "recall", "target": 0.5},
        {"policy": "browser"},
        {"policy": "long_session"},
    ],
    ids=["default", "pseudonyms", "names", "agent", "recall", "browser", "long_session"],
)
@settings(max_examples=settings().max_examples)  # each example is up to twelve calls
@given(calls=replaced_ends(), budget=st.sampled_from([120, 250, 500, 1_000]))
def test_a_replaced_end_never_changes_a_result(chain, calls, budget):
    chain = {"policy": "default", "budget": budget, "counter": "estimate", **chain}
    remembering = Stabilizer.from_policy(**chain)
    for history in calls:
        alone = Stabilizer.from_policy(**chain)
        try:
            expected = alone.stabilize(copy.deepcopy(history))
        except BudgetExceededError:
            with pytest.raises(BudgetExceededError):
                remembering.stabilize(history)
            continue
        with pytest.MonkeyPatch.context() as patch:  # short histories rewind as well, where it would not pay
            patch.setattr("ctxguard.session._REPLACED", 0)
            got = remembering.stabilize(history)
        assert got.artifacts == expected.artifacts
        assert got.report.to_dict() == expected.report.to_dict()


OUTPUTS = (
    "done",
    "\n".join(f"row {n} of Eva Berger" for n in range(80)),
    '{"mail": "bob@example.net", "rows": [1, 2]}',
)


@st.composite
def edited(draw):
    """Histories that follow each other: messages are left out, put in, exchanged, or moved to the end.

    Those that stay are the same objects, as in a program that keeps a list of messages.
    """

    def group(number):
        if draw(st.booleans()):
            return [Artifact(draw(st.sampled_from(["user", "assistant", "system"])), draw(st.sampled_from(PEOPLE_SAY)))]
        ids = [f"call_{number}_{n}" for n in range(draw(st.integers(1, 3)))]
        asked = Artifact(
            "assistant", "", calls=tuple(ToolCall("run", f'{{"n": "{PEOPLE_SAY[2]}"}}', id=i) for i in ids)
        )
        return [asked, *(Artifact("tool", draw(st.sampled_from(OUTPUTS)), answers=i) for i in ids)]

    groups = [group(number) for number in range(draw(st.integers(4, 12)))]
    now = [Artifact("user", "Write to everybody."), *(artifact for each in groups for artifact in each)]
    all_of_them = [now[: draw(st.integers(1, len(now)))], list(now)]
    for _ in range(draw(st.integers(1, 5))):
        at = draw(st.integers(0, len(now) - 2))
        match draw(st.sampled_from(["drop", "drop", "insert", "exchange", "move", "add"])):
            case "drop":
                del now[at]
            case "insert":
                now.insert(at, Artifact("user", draw(st.sampled_from(PEOPLE_SAY))))
            case "exchange":
                now[at], now[at + 1] = now[at + 1], now[at]
            case "move":
                now.append(now.pop(at))
            case "add":
                now += group("new")
        now = now if len(now) > 1 else [*now, Artifact("user", "Go on.")]
        all_of_them.append(list(now))
    return all_of_them


def chain_of(name, budget):
    counter, masker = "estimate", Masker((STANDARD, PEOPLE), strategy="pseudonymize")
    if name != "compactor":
        more = {"target": 0.5} if name == "recall" else {}
        return Stabilizer.from_policy(name, budget=budget, counter=counter, masker=masker, **more)
    compactor = HistoryCompactor(
        CompactionConfig(max_tokens=budget // 2, target_tokens=budget // 4),
        summarizer=lambda text: "They wrote to several people.",
        max_failures=1_000,
        counter=counter,
    )
    return Stabilizer(budget, stages=[MaskPII(masker=masker), compactor], counter=counter)


def outcome(stabilizer, history):
    try:
        result = stabilizer.stabilize(history)
    except BudgetExceededError as error:
        return str(error)
    return result.artifacts, result.report.to_dict()


@pytest.mark.parametrize("name", ["default", "recall", "compactor"])
@given(calls=edited(), budget=st.sampled_from([150, 300, 600, 1_500]))
def test_an_edit_anywhere_leads_to_what_a_new_stabilizer_does(name, calls, budget):
    remembering = chain_of(name, budget)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ctxguard.session._REPLACED", 0)
        for history in calls:
            assert outcome(remembering, history) == outcome(chain_of(name, budget), copy.deepcopy(history))


def conversation(turns):
    artifacts = [Artifact("system", "Answer from the passages.")]
    for n in range(turns):
        call = ToolCall("look_up", f'{{"order": "A-{n}"}}', id=f"call_{n}")
        artifacts += [
            Artifact("user", f"Where is order A-{n}, which I sent to street number {n} of the town?"),
            Artifact("assistant", "", calls=(call,)),
            Artifact("tool", f"order A-{n}: " + f"parcel {n} is on truck {n * 7}. " * 12, answers=f"call_{n}"),
            Artifact("assistant", f"Order A-{n} is on truck {n * 7}."),
        ]
    return artifacts


def with_passages(history):
    return [*history[:-1], Artifact("user", f"Passages:\n{'On trucks. ' * 30}\n\n{history[-1].text}")]


def test_passages_in_the_request_alone_do_not_repeat_earlier_cuts(monkeypatch):
    cuts = []
    cut = WindowFold.cut
    monkeypatch.setattr(WindowFold, "cut", lambda self, state, number: cuts.append(number) or cut(self, state, number))
    stabilizer = Stabilizer(1_500, counter="estimate")
    history = conversation(60)
    asked = [position for position, artifact in enumerate(history) if artifact.kind == "user"]
    stabilizer.stabilize(with_passages(history[: asked[50] + 1]))
    assert len(cuts) > 10
    cuts.clear()
    for position in asked[51:]:
        stabilizer.stabilize(with_passages(history[: position + 1]))
    assert len(cuts) <= 2 * len(asked[51:])


def test_a_conversation_keeps_its_memory_while_another_with_the_same_beginning_goes_on(monkeypatch):
    cuts = []
    cut = WindowFold.cut
    monkeypatch.setattr(WindowFold, "cut", lambda self, state, number: cuts.append(number) or cut(self, state, number))
    stabilizer = Stabilizer(1_500, counter="estimate")
    beginning, history = conversation(20), conversation(40)
    others = [*beginning, *(Artifact("user", f"What about parcel {n}? {'It matters. ' * 20}") for n in range(30))]
    stabilizer.stabilize(history[:-1])
    stabilizer.stabilize(others)
    cuts.clear()
    stabilizer.stabilize([*history, Artifact("user", "Thank you.")])
    assert len(cuts) <= 1
