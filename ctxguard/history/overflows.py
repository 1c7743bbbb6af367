"""Conversations whose prompt the provider refused as too long, and the smaller budget that applies to them.

The refusal is not part of the history, but must be remembered. With the old budget, the next prompt would be too long
again. And thinking that the provider signed for the shorter prompt would be sent with a longer one, which Anthropic's
models refuse. If it is forgotten (a new process, another worker), the next prompt is refused once more.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from threading import Lock
from typing import Final

from ctxguard.artifacts import Artifact

_MOST: Final = 4_096  # conversations that are remembered, so that memory is bounded


@dataclass(frozen=True, slots=True)
class Overflow:
    """The limits of a conversation since the provider refused its prompt.

    Attributes:
        at: Number of artifacts in the history then. Thinking in these was written under prompts that are no longer
            sent.
        budget: Tokens that prompts may take since then.
        before: Tokens that they might take until then.
    """

    at: int
    budget: int
    before: int


class Overflows:
    """Remember the conversations whose prompt was refused, by digests of their histories. Safe for many threads.

    The least recently used ones are forgotten first. Copies and pickles start empty.
    """

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[int, int], Overflow] = OrderedDict()
        self._lock = Lock()

    def __reduce__(self) -> tuple[type[Overflows], tuple[()]]:
        return Overflows, ()

    def note(self, history: Iterable[Artifact], budget: int, *, before: int) -> None:
        """Remember that the prompt of a history was refused.

        Args:
            history: The whole history of the conversation.
            budget: Tokens that its prompts may take from now on.
            before: Tokens that they might take until now.
        """
        keys = list(_keys(history))
        if not keys:
            return
        with self._lock:
            self._known[keys[-1]] = Overflow(len(keys), budget, before)
            while len(self._known) > _MOST:
                self._known.popitem(last=False)

    def forget(self, history: Iterable[Artifact]) -> None:
        """Forget that the prompt of exactly this history was refused."""
        keys = list(_keys(history))
        with self._lock:
            self._known.pop(keys[-1], None)

    def of(self, history: Iterable[Artifact]) -> Overflow | None:
        """Return the latest overflow of the conversation that a history continues; None if it had none."""
        if not self._known:  # histories are only hashed if there is something to find
            return None
        keys = list(_keys(history))
        with self._lock:
            found = [key for key in keys if key in self._known]
            for key in found:
                self._known.move_to_end(key)
            return self._known[found[-1]] if found else None


def _keys(history: Iterable[Artifact]) -> Iterator[tuple[int, int]]:
    """Yield the keys of the history up to each of its artifacts.

    Fields that clients change when they send a message again are left out, such as the breakpoints of prompt caches.
    """
    key = 0
    for at, one in enumerate(history, 1):
        key = hash((key, one.kind, one.content, tuple(one.calls), one.answers))
        yield at, key
