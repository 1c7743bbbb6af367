"""Pieces of a message are kept and dropped alone, and joined to the very message where all are as they were."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ctxguard import Artifact
from ctxguard.adapting.message_view import join_fragments, split_message

MESSAGE = ("a", "b", "c")


def read(*numbers):
    own = split_message(MESSAGE, numbers)
    return [Artifact("user", "".join(MESSAGE[n] for n in piece.indexes), source=piece) for piece in own]


def write(artifact):
    members = [MESSAGE[n] for n in artifact.source.indexes]
    return members if artifact.origin is None else [artifact.text]


def test_each_reading_of_a_message_is_its_own():
    first, second = (split_message(MESSAGE, [(0,), (1, 2)]) for _ in range(2))
    assert first[0].occurrence is first[1].occurrence
    assert first[0].occurrence is not second[0].occurrence
    assert [piece.is_whole for piece in first] == [False, False]
    assert split_message(MESSAGE, [(0, 1, 2)])[0].is_whole


@pytest.mark.parametrize("numbers", [[(0, 1, 2)], [(0,), (1, 2)]], ids=["one", "two"])
def test_what_is_as_it_was_is_not_written(numbers):
    assert join_fragments(read(*numbers), MESSAGE, write) is None


def test_what_was_changed_dropped_or_moved_is_written():
    first, second = read((0,), (1, 2))
    assert join_fragments([first.revised(content="A"), second], MESSAGE, write) == ["A", "b", "c"]
    assert join_fragments([second], MESSAGE, write) == ["b", "c"]
    assert join_fragments([second, first], MESSAGE, write) == ["b", "c", "a"]


def test_an_equal_member_is_another_one():
    message = [["a"]]
    (artifact,) = [Artifact("user", "a", source=piece) for piece in split_message(message, [(0,)])]
    assert join_fragments([artifact.revised(content="a")], message, lambda _: [["a"]]) == [["a"]]
    assert join_fragments([replace(artifact)], message, lambda _: message) is None
