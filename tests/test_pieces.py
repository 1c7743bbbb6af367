"""Pieces of a message are kept and dropped alone, and joined to the very message where all are as they were."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ctxguard import Artifact
from ctxguard.adapting.pieces import pieces, rejoined

MESSAGE = ("a", "b", "c")


def read(*numbers):
    own = pieces(MESSAGE, numbers)
    return [Artifact("user", "".join(MESSAGE[n] for n in piece.numbers), source=piece) for piece in own]


def write(artifact):
    members = [MESSAGE[n] for n in artifact.source.numbers]
    return members if artifact.origin is None else [artifact.text]


def test_each_reading_of_a_message_is_its_own():
    first, second = (pieces(MESSAGE, [(0,), (1, 2)]) for _ in range(2))
    assert first[0].reading is first[1].reading
    assert first[0].reading is not second[0].reading
    assert [piece.is_whole for piece in first] == [False, False]
    assert pieces(MESSAGE, [(0, 1, 2)])[0].is_whole


@pytest.mark.parametrize("numbers", [[(0, 1, 2)], [(0,), (1, 2)]], ids=["one", "two"])
def test_what_is_as_it_was_is_not_written(numbers):
    assert rejoined(read(*numbers), MESSAGE, write) is None


def test_what_was_changed_dropped_or_moved_is_written():
    first, second = read((0,), (1, 2))
    assert rejoined([first.revised(content="A"), second], MESSAGE, write) == ["A", "b", "c"]
    assert rejoined([second], MESSAGE, write) == ["b", "c"]
    assert rejoined([second, first], MESSAGE, write) == ["b", "c", "a"]


def test_an_equal_member_is_another_one():
    message = [["a"]]
    (artifact,) = [Artifact("user", "a", source=piece) for piece in pieces(message, [(0,)])]
    assert rejoined([artifact.revised(content="a")], message, lambda _: [["a"]]) == [["a"]]
    assert rejoined([replace(artifact)], message, lambda _: message) is None
