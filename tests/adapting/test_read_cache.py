"""What an adapter remembers of messages never shows: changed, retried and mixed histories are read as they are."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field

import pytest
from builders import chat_call
from hypothesis import given, settings
from hypothesis import strategies as st
from openai.types.chat import ChatCompletionMessage
from pydantic import BaseModel

from ctxguard import Artifact, Stabilizer
from ctxguard.adapting.read_cache import ReadCache
from ctxguard_openai import OpenAIAdapter, stabilize_messages


class Model(BaseModel, extra="allow"):
    text: str
    tags: list[str] = []


@dataclass
class Record:
    text: str
    parts: list[Model] = field(default_factory=list)


class Base:
    __slots__ = ("origin",)


@dataclass
class HalfSlotted(Base):
    origin: str
    text: str


@dataclass
class Labelled(dict):
    text: str


def counting():
    reads = []

    def read(message):
        reads.append(message)
        return Artifact("user", repr(message))

    return ReadCache(read), reads


def test_messages_are_read_once_as_long_as_nothing_in_them_changes():
    cache, reads = counting()
    messages = [{"a": [1, {"b": "x"}]}, Model(text="t", tags=["u"]), Record("r", [Model(text="v")])]
    first = cache.read(messages)
    again = cache.read([*messages, {"new": "one"}])
    assert reads == [*messages, {"new": "one"}]
    assert all(a is b for a, b in zip(first, again, strict=False))


def test_whatever_is_changed_in_place_is_read_anew():
    def changes():
        yield {"a": [1, {"b": "x"}]}, lambda m: m["a"][1].update(b="y")
        yield {"a": "x"}, lambda m: m.update(c="y")
        yield Model(text="t", tags=["u"]), lambda m: m.tags.append("v")
        yield Model(text="t", deep={"k": ["v"]}), lambda m: m.deep["k"].append("w")
        yield Record("r", [Model(text="v")]), lambda m: setattr(m.parts[0], "text", "w")

    for message, change in changes():
        cache, _ = counting()
        messages = [{"before": 1}, message, {"behind": 2}]
        cache.read(messages)
        change(message)
        assert [a.content for a in cache.read(messages)] == [repr(m) for m in messages]
        assert [a.content for a in cache.read([*messages, {"new": 1}])][:3] == [repr(m) for m in messages]


@pytest.mark.parametrize(
    ("was", "now"),
    [(0, False), (1, True), (1, 1.0), (0.0, -0.0), ({"a": 1, "b": 2}, {"b": 2, "a": 1}), ({1: 2}, {True: 2})],
)
@pytest.mark.parametrize("spelled", [None, frozenset({"args"})])
def test_what_equals_and_is_written_otherwise_is_read_anew(was, now, spelled):
    reads = []
    cache = ReadCache(lambda m: reads.append(m) or Artifact("user", repr(m)), exact=spelled)
    for message in ({"args": {"dry": was}}, Model(text="t", args={"dry": [was]})):
        cache.read([message])
        holder = message["args"] if isinstance(message, dict) else message.args
        holder["dry"] = now if isinstance(message, dict) else [now]
        assert cache.read([message])[0].content == repr(message)
        reads.clear()
        cache.read([message])
        assert reads == []


def test_a_message_that_stands_twice_is_read_twice_and_remembered():
    cache, _ = counting()
    message = {"a": "x"}
    first = cache.read([message, {"b": 1}, message])
    assert first[0] is not first[2]
    assert cache.read([message, {"b": 1}, message, message])[0] is first[0]
    history = [message, message]
    assert [a is b for a, b in zip(cache.read(history), cache.read([*history, message]), strict=False)] == [True, True]
    assert first[2] is cache.read(history)[1]


def test_what_is_no_data_is_read_each_time():
    class Odd:
        text = "x"

    cache, reads = counting()
    odd = {"held": Odd()}
    cache.read([{"a": 1}, odd])
    cache.read([{"a": 1}, odd, {"b": 1}])
    assert sum(read is odd for read in reads) == 2


def test_an_equal_message_keeps_its_own_object():
    one, two = {"role": "user", "content": "hi"}, {"role": "user", "content": "hi"}
    adapter = OpenAIAdapter()
    assert adapter.read([one])[0].source is one
    assert adapter.read([two])[0].source is two


def test_an_sdk_object_in_the_list_is_remembered_too():
    reply = ChatCompletionMessage(role="assistant", content="hello")
    messages = [{"role": "user", "content": "hi"}, reply]
    adapter = OpenAIAdapter()
    first = adapter.read(messages)
    assert adapter.read([*messages, {"role": "user", "content": "more"}])[1] is first[1]
    reply.content = "changed"
    assert adapter.read(messages)[1].content == "changed"


MOVES = st.lists(
    st.tuples(st.sampled_from(["say", "answer", "call", "retry", "edit", "copy"]), st.integers(0, 10**6)), max_size=25
)


@settings(max_examples=20)
@given(MOVES, st.sampled_from([80, 200, 600]))
def test_retries_edits_and_copies_give_what_a_fresh_stabilizer_gives(moves, budget):
    remembering = Stabilizer(budget, counter="estimate")
    messages: list[dict] = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "start"}]
    for move, number in moves:
        messages = _moved(messages, move, number)
        fresh = Stabilizer(budget, counter="estimate")
        assert _outcome(remembering, messages) == _outcome(fresh, copy.deepcopy(messages))


def _moved(messages, move, number):
    if move == "say":
        return [*messages, {"role": "user", "content": f"question {number} " * (number % 30)}]
    if move == "answer":
        return [*messages, {"role": "assistant", "content": f"answer {number}"}]
    if move == "call":
        call = chat_call(f"c{number % 5}")
        return [
            *messages,
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"c{number % 7}", "content": f"row {number}\n" * (number % 40)},
        ]
    if move == "retry":
        return messages[: max(2, len(messages) - 1 - number % 3)]
    if move == "edit":
        messages[number % len(messages)]["content"] = f"edited {number}"
        return messages
    return copy.deepcopy(messages)


def _outcome(stabilizer, messages):
    from ctxguard import BudgetExceededError

    try:
        out, report = stabilize_messages(messages, stabilizer)
    except BudgetExceededError as error:
        return str(error)
    return out, report.to_dict()


def test_objects_that_hold_more_than_their_dict_are_read_anew_once_changed():
    cache, reads = counting()
    message = HalfSlotted("here", "old")
    first = cache.read([message])[0]
    assert cache.read([message])[0] is first
    message.origin = "there"
    assert "there" in cache.read([message])[0].text
    assert len(reads) == 2
    assert "Labelled" in cache.read([Labelled("x")])[0].text


def pairs_of(items):
    return [tuple(items[n : n + 2]) for n in range(0, len(items), 2)]


def cache_of_pairs():
    reads = []

    def read(pair):
        reads.append(pair)
        return Artifact("user", " ".join(item["text"] for item in pair))

    return ReadCache(read, key=lambda pair: tuple(map(id, pair)), size=3), reads


def test_messages_made_of_the_same_objects_are_read_once():
    cache, reads = cache_of_pairs()
    items = [{"text": str(n)} for n in range(4)]
    first = cache.read(pairs_of(items))
    assert [artifact.text for artifact in first] == ["0 1", "2 3"]
    assert all(now is was for now, was in zip(cache.read(pairs_of([*items, {"text": "4"}])), first, strict=False))
    assert len(reads) == 3


def test_a_message_made_of_another_or_a_changed_object_is_read_anew():
    cache, _ = cache_of_pairs()
    items = [{"text": "a"}, {"text": "b"}]
    cache.read(pairs_of(items))
    items[1]["text"] = "c"
    assert cache.read(pairs_of(items))[0].text == "a c"
    assert cache.read(pairs_of([items[0], {"text": "d"}]))[0].text == "a d"
    assert cache.read(pairs_of(items))[0].text == "a c"


def test_more_messages_than_are_remembered_are_read_all_the_same():
    cache, reads = cache_of_pairs()
    histories = [[{"text": f"{m} {n}"} for n in range(8)] for m in range(3)]
    for history in histories * 2:
        assert [a.text for a in cache.read(pairs_of(history))] == [
            f"{a['text']} {b['text']}" for a, b in pairs_of(history)
        ]
    assert len(reads) > 12, "some were forgotten"


def test_two_histories_in_turn_are_remembered_both():
    cache, reads = counting()
    one, two = [{"a": 1}], [{"b": 2}]
    for _ in range(3):
        cache.read(one)
        cache.read(two)
        one.append({"a": len(one)})
    assert len(reads) == 4
