"""The judge in bits, and how much of the newest tool outputs is sent."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxguard.artifacts import Artifact, ToolCall
from ctxguard.harness import parse_session, replay
from ctxguard.harness.contestants import synthetic_session
from ctxguard.harness.gain import (
    LONGEST,
    MEMORY,
    ORDER,
    Bits,
    Compressor,
    Gain,
    floor,
    gain,
    newest_exchange,
    newest_sent,
    priming,
    rendered,
)
from ctxguard.harness.requests import WireReader
from ctxguard.harness.requests import newest_exchange as newest_on_the_wire
from ctxguard.stabilizer import Stabilizer
from ctxguard.tokens import ArtifactCounter, find_counter

COUNT = ArtifactCounter(find_counter("estimate"))
NOTE = "the valve of pump 7 was set to 41 percent after the second trial, and the gasket holds"
SAID = [
    Artifact("system", "You look after pumps."),
    Artifact("user", "What was done?"),
    Artifact("assistant", "", calls=(ToolCall("read", '{"page": 3}', "c1"),)),
    Artifact("tool", NOTE, answers="c1"),
    Artifact("assistant", "I have read it."),
    Artifact("user", "Write it up."),
]
NEXT = Artifact("assistant", f"Report: {NOTE}.")


def cost(text: bytes) -> int:
    from pyppmd import Ppmd7Encoder

    encoder = Ppmd7Encoder(ORDER, MEMORY)
    return 8 * (len(encoder.encode(text)) + len(encoder.flush()))


@given(st.lists(st.text(max_size=200), max_size=5), st.text(max_size=200))
def test_one_pass_costs_what_the_difference_of_two_does(texts, following):
    context = [Artifact("user", text) for text in texts if text.isprintable()]
    said = following if following.isprintable() else "Done."
    before = priming() + rendered(context).encode()
    assert Compressor().bits(context, Artifact("assistant", said)) == cost(before + said.encode()) - cost(before)


@given(st.lists(st.tuples(st.sampled_from(["user", "assistant"]), st.text(max_size=300)), max_size=6))
def test_one_pass_over_a_history_costs_what_each_message_does_alone(said):
    history = [Artifact(kind, text * 30 if text.isprintable() else "Done.") for kind, text in said]
    for end, bits in enumerate(Compressor().bits_of_each(history)):
        if history[end].kind == "assistant":
            assert abs(bits - Compressor().bits(history[:end], history[end])) <= 8


def test_what_the_whole_history_is_worth_is_found_in_one_pass(monkeypatch):
    read = []
    one = Compressor.bits
    monkeypatch.setattr(
        Compressor, "bits", lambda self, context, said: read.append(len(context)) or one(self, context, said)
    )
    history = [Artifact(("user", "assistant")[n % 2], f"text {n}") for n in range(60)]
    judge = Gain(history)
    for end in range(1, 60, 2):
        assert judge(end, [history[end - 1]], 10_000, COUNT) is not None
    assert max(read) == 1


def test_only_the_beginning_of_a_long_message_is_judged():
    bits = Compressor().bits
    long = NOTE * 200
    assert bits([], Artifact("assistant", long)) == bits([], Artifact("assistant", long[:LONGEST]))


def test_the_ends_of_the_scale_are_the_floor_and_the_whole_history():
    judge = Gain([*SAID, NEXT])
    end, least = len(SAID), floor(SAID)
    assert [a.text for a in least] == ["You look after pumps.", "Write it up."]
    at = {name: gain([judge(end, context, 10_000, COUNT)]) for name, context in {"floor": least, "whole": SAID}.items()}
    assert at == {"floor": 0.0, "whole": 1.0}
    text = gain([judge(end, [*least, SAID[3]], 10_000, COUNT)])
    names = gain([judge(end, [*least, Artifact("user", "41 7 gasket pump trial valve")], 10_000, COUNT)])
    assert names is not None
    assert text is not None
    assert text > 0.9 > 0.6 > names


def test_where_the_floor_does_not_fit_nothing_is_judged():
    assert Gain([*SAID, NEXT])(len(SAID), SAID, COUNT.artifacts(floor(SAID)) - 1, COUNT) is None


def test_bits_add_up_before_a_share_is_taken():
    assert gain([Bits(100, 50, 0), None, Bits(300, 300, 0)]) == 50 / 400
    assert gain([]) is gain([None]) is gain([Bits(5, 5, 5)]) is None


@pytest.mark.parametrize(
    ("messages", "begins"),
    [
        ([], 0),
        (SAID[:2], 2),
        (SAID[:4], 2),
        (SAID, 6),
        ([*SAID[:4], Artifact("user", "Wait.")], 2),
        ([*SAID[:3], SAID[3], Artifact("tool", "late", answers="c2")], 2),
    ],
)
def test_the_newest_exchange_is_the_one_whose_outputs_nobody_has_read(messages, begins):
    assert newest_exchange(messages) == begins


def test_on_the_wire_the_newest_exchange_is_found_in_every_format():
    chat = [
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "a", "function": {"name": "f"}}]},
        {"role": "tool", "tool_call_id": "a", "content": "1"},
    ]
    anthropic = [
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "1"}]},
    ]
    items = [
        {"role": "user", "content": "x"},
        {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"},
        {"type": "function_call", "call_id": "b", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "a", "output": "1"},
        {"type": "function_call_output", "call_id": "b", "output": "2"},
    ]
    converse = [
        {"role": "user", "content": [{"text": "x"}]},
        {"role": "assistant", "content": [{"toolUse": {"toolUseId": "a", "name": "f", "input": {}}}]},
        {"role": "user", "content": [{"toolResult": {"toolUseId": "a", "content": [{"text": "1"}]}}]},
    ]
    gemini = [
        {"role": "user", "parts": [{"text": "x"}]},
        {"role": "model", "parts": [{"functionCall": {"name": "f", "args": {}}}]},
        {"role": "user", "parts": [{"functionResponse": {"name": "f", "response": {"output": "1"}}}]},
    ]
    for messages in (chat, anthropic, items, converse, gemini):
        assert newest_on_the_wire(WireReader().messages(messages)) == 1
        answered = [*messages, {"role": "assistant", "content": "Done."}, {"role": "user", "content": "And?"}]
        assert newest_on_the_wire(WireReader().messages(answered)) == len(answered)


OUTPUT = " ".join(
    f"row {n}: {n * 7919 % 1000} liters at {n * 31 % 24}:00, seen by eva{n}@example.org" for n in range(60)
)


@pytest.mark.parametrize(
    ("sent", "least", "most"),
    [
        (OUTPUT, 1.0, 1.0),
        (OUTPUT.replace("eva7@example.org", "[REDACTED_EMAIL]").replace("eva9@example.org", "<EMAIL_2>"), 1.0, 1.0),
        (OUTPUT[: len(OUTPUT) // 2], 0.45, 0.5),
        ("60 rows of liters; seen by many", 0.0, 0.01),
        ("", 0.0, 0.0),
    ],
)
def test_what_is_sent_of_the_newest_output_counts_in_characters(sent, least, most):
    history = [*SAID[:3], Artifact("tool", OUTPUT, answers="c1")]
    context = [*SAID[:3], Artifact("tool", sent, answers="c1")]
    got, fitting = newest_sent(history, context, 100_000, COUNT)
    assert fitting == len(OUTPUT)
    assert least <= got / fitting <= most


def test_only_what_fits_into_half_of_the_free_room_counts():
    history = [*SAID[:3], Artifact("tool", OUTPUT, answers="c1"), Artifact("tool", NOTE, answers="c2")]
    large, small = COUNT.artifact(history[3]), COUNT.artifact(history[4])
    free = COUNT.artifacts(SAID[:3])
    sums = {room: newest_sent(history, history, free + 2 * room, COUNT) for room in (large + small, large, small, 0)}
    both = len(OUTPUT) + len(NOTE)
    assert sums == {large + small: (both, both), large: (len(OUTPUT),) * 2, small: (len(NOTE),) * 2, 0: (0, 0)}


@pytest.mark.slow
def test_a_replay_adds_both_up():
    figures = replay(parse_session(synthetic_session(1, turns=40)["messages"]), Stabilizer(2_500)).figures
    assert figures.weighed == figures.pressed > 20
    assert figures.gain is not None
    assert 0 < figures.gain < 1.1
    assert figures.newest is not None
    assert figures.newest_sent <= figures.newest_fitting
    fits = replay(parse_session(synthetic_session(1, turns=4)["messages"]), Stabilizer(20_000)).figures
    assert (fits.weighed, fits.gain, fits.newest) == (0, None, None)


def test_without_the_compressor_gain_is_not_measured(monkeypatch):
    monkeypatch.setattr("ctxguard.harness.gain.find_spec", lambda name: None)
    assert Gain([*SAID, NEXT])(len(SAID), SAID, 10_000, COUNT) is None
