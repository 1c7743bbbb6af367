"""What is remembered of a history is found for the very same objects alone, and stays bounded."""

from __future__ import annotations

import copy
import os
import pickle
import signal
import threading
import warnings
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxguard import Artifact, Stabilizer
from ctxguard.adapting.prefix_memory import PrefixMemory
from ctxguard.compaction import HistoryCompactor
from ctxguard.pii import CallableDetector
from ctxguard.policies import POLICIES
from ctxguard.session import Intake
from ctxguard.stages import (
    BoundToolOutput,
    CheckpointManager,
    IntelligentPruner,
    MaskPII,
    MergeSimilar,
    RepairExchanges,
    SlidingWindow,
    StableWindow,
)
from ctxguard.stages.recall_relevant import recall_stages
from ctxguard.stores import MemoryStore


class Item:
    """Equal to every other, so that only identity tells them apart."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Item)

    def __hash__(self) -> int:
        return 0


def test_the_beginning_that_was_kept_is_found_again():
    items = [Item() for _ in range(10)]
    memory: PrefixMemory[str] = PrefixMemory()
    memory.keep(items[:7], "seven")
    found = memory.find(items)
    assert found is not None
    assert (found.length, found.value) == (7, "seven")


def test_equal_items_that_are_not_the_same_are_not_found():
    memory: PrefixMemory[str] = PrefixMemory()
    items = [Item() for _ in range(3)]
    memory.keep(items, "these")
    assert memory.find([Item(), *items[1:]]) is None
    assert memory.find(items[1:]) is None
    assert memory.find(items[:2]) is None


def test_what_was_worked_out_from_a_part_is_found_wherever_that_part_stands_first():
    items = [Item() for _ in range(5)]
    memory: PrefixMemory[str] = PrefixMemory()
    memory.keep(items, "three of them", length=3)
    assert memory.find([*items[:3], Item()]).length == 3
    assert memory.find([Item(), *items[1:3], Item()]) is None
    assert len(memory) == 3
    memory.keep(items, "none of them", length=0)
    assert len(memory) == 3


def test_only_the_very_sequence_that_is_known_to_stand_first_is_not_looked_at():
    was = tuple(Item() for _ in range(5))
    memory: PrefixMemory[str] = PrefixMemory()
    memory.keep(was, "these")
    other = (Item(), *was[1:])
    assert memory.find(other, begins_with=[*was]) is None
    assert memory.find((*was, Item()), begins_with=was).value == "these"
    assert memory.find((*was, Item()), begins_with=other).value == "these"


def test_a_variant_is_another_value():
    items = [Item()]
    memory: PrefixMemory[int] = PrefixMemory()
    memory.keep(items, 1, "a")
    memory.keep(items, 2, "b")
    assert [memory.find(items, variant).value for variant in ("a", "b")] == [1, 2]
    assert memory.find(items, "c") is None


def test_a_retry_from_the_last_step_finds_the_step_before():
    items = [Item() for _ in range(6)]
    memory: PrefixMemory[int] = PrefixMemory()
    memory.keep(items[:2], 2)
    memory.keep(items[:4], 4, after=memory.find(items[:4]))
    memory.keep(items, 6, after=memory.find(items))
    retried = memory.find([*items[:4], Item()])
    assert retried is not None
    assert retried.value == 4
    assert memory.find(items[:3]) is None, "of one history only the latest two are held"
    assert len(memory) == 10


def test_what_is_taken_is_found_no_more():
    items = [Item() for _ in range(3)]
    memory: PrefixMemory[str] = PrefixMemory()
    memory.keep(items, "these")
    taken = memory.take([*items, Item()])
    assert taken is not None
    assert taken.value == "these"
    assert memory.take(items) is None
    assert memory.find(items) is None
    assert len(memory) == 0


@given(st.lists(st.integers(1, 80), max_size=60), st.integers(10, 60))
def test_it_never_holds_more_than_its_bound(lengths, most):
    memory: PrefixMemory[int] = PrefixMemory(most=most)
    histories = [[Item() for _ in range(length)] for length in lengths]
    for history in histories:
        memory.keep(history, len(history))
        assert len(memory) <= max(most, len(history))
        assert memory.find(history) is not None, "the latest one is held however long it is"
    memory.clear()
    assert len(memory) == 0
    assert all(memory.find(history) is None for history in histories)


@pytest.mark.parametrize("policy", sorted(POLICIES))
@pytest.mark.parametrize("again", [copy.deepcopy, lambda stabilizer: pickle.loads(pickle.dumps(stabilizer))])
def test_a_stabilizer_is_copied_and_sent_to_other_processes_without_what_it_remembers(policy, again):
    history = [
        Artifact("system", "You help."),
        *(Artifact("assistant" if n % 2 else "user", f"Message {n} to ann{n}@corp-mail.net. " * 4) for n in range(31)),
    ]
    stabilizer = Stabilizer.from_policy(policy, budget=400)
    result = stabilizer.stabilize(history)
    assert again(stabilizer).stabilize(copy.deepcopy(history)).artifacts == result.artifacts
    assert b"corp-mail" not in pickle.dumps(stabilizer)


@pytest.mark.parametrize("again", [copy.deepcopy, lambda stabilizer: pickle.loads(pickle.dumps(stabilizer))])
def test_strategies_without_a_store_are_copied_and_sent_to_other_processes_too(again):
    history = [Artifact(("assistant", "user")[n % 2], f"Message {n}. Error: lost ann{n}. " * 4) for n in range(61)]
    stabilizer = Stabilizer(900, stages=[MergeSimilar(), IntelligentPruner(), SlidingWindow(), *recall_stages()])
    result = stabilizer.stabilize(history)
    assert again(stabilizer).stabilize(copy.deepcopy(history)).artifacts == result.artifacts
    assert b"ann7" not in pickle.dumps(stabilizer)


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, pickle.dumps])
@pytest.mark.parametrize("make", [MemoryStore, CheckpointManager, HistoryCompactor])
def test_what_holds_a_store_is_made_in_each_process_and_says_so(make, again):
    with pytest.raises(TypeError, match=rf"^a {make.__name__} belongs to the process that made it; make one in each"):
        again(make())


def test_what_a_check_remembers_of_other_stabilizers_is_not_sent_along():
    rules = CallableDetector(lambda text: [], name="of this process alone")
    Stabilizer(400, stages=[MaskPII(rules)]).stabilize([Artifact("user", "Hi.")])
    stabilizer = Stabilizer(400, stages=[MaskPII()])
    assert pickle.loads(pickle.dumps(stabilizer)).budget == copy.deepcopy(stabilizer).budget == 400


class Slow:
    """A variant whose hash is worked out, inside the memory, only when it is let go on."""

    def __init__(self) -> None:
        self.asked, self.gate = threading.Event(), threading.Event()

    def __hash__(self) -> int:
        self.asked.set()
        return int(self.gate.wait(30))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_process_that_was_forked_while_a_thread_remembered_something_goes_on():
    memory: PrefixMemory[str] = PrefixMemory()
    slow, items = Slow(), [Item() for _ in range(3)]
    thread = threading.Thread(target=memory.keep, args=(items, "of the thread", slow))
    thread.start()
    assert slow.asked.wait(30)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of forking beside threads
        child = os.fork()
    if child == 0:
        signal.alarm(5)
        memory.keep(items, "of the child")
        found = memory.find(items)
        os._exit(0 if found is not None and found.value == "of the child" else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    slow.gate.set()
    thread.join(30)


def test_what_a_stage_of_ones_own_puts_into_the_draft_is_not_taken_for_what_was_there():
    def later_reworded(draft):
        first = Artifact("user", "Something else, from bob@corp-mail.net")
        return replace(draft, artifacts=(first, *draft.artifacts[1:])) if len(draft.artifacts) > 9 else draft

    def stages():
        return [RepairExchanges(), later_reworded, MaskPII(), BoundToolOutput(), StableWindow()]

    remembering = Stabilizer(400, stages=stages(), checks=())
    history = []
    for turn in range(40):
        history += [Artifact("user", f"Question {turn} of ann{turn}@corp-mail.net"), Artifact("assistant", "Yes. " * 9)]
        alone = Stabilizer(400, stages=stages(), checks=()).stabilize(history)
        assert remembering.stabilize(history).artifacts == alone.artifacts


def test_what_stands_twice_is_told_apart_whatever_another_thread_takes_in_meanwhile():
    intake, shared = Intake(), [Artifact("user", str(number)) for number in range(3)]
    others = [*shared, Artifact("user", "of another thread")]

    class Slow:
        """An artifact of another class, which is asked for while its history is taken in."""

        @property
        def __class__(self) -> type:
            intake.take(others)
            return Artifact

    intake.take(shared)
    history, _ = intake.take([*shared, Slow(), shared[0]])
    assert history[-1] is not shared[0]
    assert history[-1] == shared[0]
    assert len(set(map(id, history))) == len(history)
