"""What is remembered of a conversation can be taken back to any point, and never changes a result."""

from __future__ import annotations

import copy
import pickle

from hypothesis import given
from hypothesis import strategies as st

from ctxguard import Artifact
from ctxguard.history import History, Memory, pair
from ctxguard.testing import histories

WORDS = st.lists(st.sampled_from(["a", "b", "c"]), max_size=12)


class Counted:
    """Whatever a stage may keep: a list, a mapping, and a value."""

    def __init__(self, memory):
        self.memory = memory
        self.texts, self.latest, self.longest = [], {}, ""

    def add(self, artifact):
        self.memory.append(self.texts, artifact.text)
        self.memory.put(self.latest, artifact.text, len(self.texts))
        if len(artifact.text) >= len(self.longest):
            self.memory.set(self, "longest", artifact.text)

    def __eq__(self, other):
        return (self.texts, self.latest, self.longest) == (other.texts, other.latest, other.longest)

    __hash__ = None


def counted(memory, artifacts):
    state = memory.of("counted", lambda: Counted(memory))
    for artifact in memory.new(artifacts):
        state.add(artifact)
    return state


@given(st.lists(WORDS, min_size=1, max_size=6))
def test_a_state_is_what_it_would_be_without_earlier_calls(calls):
    spare = {(place, word): Artifact("user", word) for place in range(12) for word in "abc"}
    remembering = Memory()
    for words in calls:
        history = tuple(spare[place, word] for place, word in enumerate(words))
        assert counted(remembering, history) == counted(Memory(), history)


@given(st.lists(WORDS, min_size=2, max_size=4))
def test_only_what_is_new_is_taken(calls):
    memory, spare = Memory(), {(place, word): Artifact("user", word) for place in range(12) for word in "abc"}
    before = ()
    for words in calls:
        history = tuple(spare[place, word] for place, word in enumerate(words))
        same = next((n for n, (a, b) in enumerate(zip(before, history, strict=False)) if a is not b), None)
        expected = history[min(len(before), len(history)) if same is None else same :]
        assert tuple(memory.new(history)) == expected
        before = history


@given(histories(), st.data())
def test_exchanges_are_taken_back_as_they_came(artifacts, data):
    memory = Memory()
    end = data.draw(st.integers(0, len(artifacts)))
    history = History(lambda a: len(a.text), memory=memory, has_notices=data.draw(st.booleans()))
    for artifact in memory.new(artifacts):
        history.append(artifact)
    memory.rewind(end)
    alone = History(lambda a: len(a.text), artifacts[:end], has_notices=history._has_notices)
    for name in ("artifacts", "costs", "spans", "authority", "users", "asked", "messages", "replies", "pinned"):
        assert getattr(history, name) == getattr(alone, name), name
    assert pair(history.artifacts) == pair(artifacts[:end])


def test_another_owner_finds_nothing():
    memory, history = Memory(), (Artifact("user", "a"),)
    assert counted(memory, history).texts == ["a"]
    assert memory.of("another", list) == []
    assert tuple(memory.new(history)) == history


def test_copies_and_pickles_are_empty():
    memory, history = Memory(), (Artifact("user", "a"),)
    counted(memory, history)
    for again in (copy.copy(memory), copy.deepcopy(memory), pickle.loads(pickle.dumps(memory))):
        assert tuple(again.new(history)) == history
