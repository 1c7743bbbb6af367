"""The memory of one conversation: what was worked out about each artifact, and how to take it back.

Histories grow at their end, so most of what a call needs was worked out in an earlier call. It is kept here. What is
remembered changes the speed of a call, never its result.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, MutableMapping, MutableSequence, Sequence
from itertools import compress, count
from operator import is_, is_not
from typing import TypeVar, cast

from ctxguard.artifacts import Artifact

State = TypeVar("State")
Key = TypeVar("Key")
Value = TypeVar("Value")


class Memory:
    """What one stage has worked out about one conversation, in the order in which the artifacts arrived.

    A stage is a function of a draft. It keeps a state of its own here (`of`), and asks for the artifacts that are new
    to it (`new`). Whatever it changes in its state for an artifact, it changes with `append`, `put`, or `set`, or notes
    how to undo the change with `undo`. So if the end of a history was replaced, everything that followed from it is
    taken back in reverse order, and what came before stays.

    Copies and pickles are empty.

    Args:
        compared: How many artifacts at the beginning of two tuples are the same objects, by the `id()` of both, as far
            as this is known. The stages of a chain share it for one call, as most of them get the same tuples.
    """

    __slots__ = ("_compared", "_given", "_marks", "_owner", "_state", "_undo")

    def __init__(self, compared: dict[tuple[int, int], int] | None = None) -> None:
        self._compared = compared
        self.clear()

    def __reduce__(self) -> tuple[type[Memory], tuple[()]]:
        return Memory, ()

    def clear(self) -> None:
        """Forget everything."""
        self._owner: object = None
        self._state: object = None
        self._given: tuple[Artifact, ...] = ()
        self._marks: list[int] = []
        self._undo: list[tuple[Callable[..., object], tuple[object, ...]]] = []

    def of(self, owner: object, make: Callable[[], State]) -> State:
        """Return the state that `make` created when it was first asked for.

        Args:
            owner: Whatever the state depends on besides the artifacts. If it is another one than before, everything is
                forgotten, and a new state is made.
            make: Function that creates the state.
        """
        if self._state is None or self._owner != owner:
            self.clear()
            self._owner, self._state = owner, make()
        return cast("State", self._state)

    def new(self, artifacts: Sequence[Artifact]) -> Generator[Artifact, None, None]:
        """Yield the artifacts that were not taken yet. What the caller changes while it has one belongs to that one.

        Before, everything is taken back that followed from artifacts that are no longer there.

        Args:
            artifacts: The artifacts of the conversation so far.
        """
        now = tuple(artifacts)
        self.rewind(self._same(now))
        self._given = now
        for artifact in self._given[len(self._marks) :]:
            self._marks.append(len(self._undo))
            yield artifact

    @property
    def taken(self) -> int:
        """Number of artifacts that were taken so far, with the one that is being taken."""
        return len(self._marks)

    def rewind(self, count: int) -> None:
        """Take back everything that was changed since the first `count` artifacts were taken."""
        if count < len(self._marks):
            mark = self._marks[count]
            del self._marks[count:]
            self.take_back(mark)

    def is_continued(self, artifacts: tuple[Artifact, ...]) -> bool:
        """Return whether all artifacts that were taken are still there, so that nothing has to be taken back."""
        return self._same(artifacts) >= len(self._marks)

    def _same(self, now: tuple[Artifact, ...]) -> int:
        """Return how many artifacts at the beginning are the same objects as in the last call."""
        if self._compared is None:
            return first_difference(self._given, now)
        both = id(self._given), id(now)
        if both not in self._compared:
            self._compared[both] = first_difference(self._given, now)
        return self._compared[both]

    # -- changes that can be taken back

    @property
    def mark(self) -> int:
        """A value for `take_back`: the number of changes so far."""
        return len(self._undo)

    def take_back(self, mark: int) -> None:
        """Take back the changes since `mark` was read, the latest first."""
        while len(self._undo) > mark:
            function, arguments = self._undo.pop()
            function(*arguments)

    def undo(self, function: Callable[..., object], *arguments: object) -> None:
        """Note the call that takes back a change."""
        self._undo.append((function, arguments))

    def append(self, values: MutableSequence[Value], value: Value) -> None:
        """Append a value to a list."""
        values.append(value)
        self._undo.append((values.pop, ()))

    def put(self, values: MutableMapping[Key, Value], key: Key, value: Value) -> None:
        """Set the value of a key."""
        if key in values:
            self._undo.append((values.__setitem__, (key, values[key])))
        else:
            self._undo.append((values.pop, (key, None)))
        values[key] = value

    def set(self, state: object, name: str, value: object) -> None:
        """Set an attribute."""
        self._undo.append((setattr, (state, name, getattr(state, name))))
        setattr(state, name, value)


def first_difference(ones: Sequence[Artifact], others: Sequence[Artifact]) -> int:
    """Return the number of leading artifacts that are the same objects in both."""
    most = min(len(ones), len(others))
    # Usually all are the same, and this check takes half the time of a search.
    return most if all(map(is_, ones, others)) else next(compress(count(), map(is_not, ones, others)), most)
