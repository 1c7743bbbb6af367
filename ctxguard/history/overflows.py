"""Memory of the conversations whose prompt the provider refused as too long, and of their smaller budget.

The history does not show that a prompt was refused, so the refusal must be remembered. With the old budget, the next
prompt would be too long again. It would also contain reasoning that the provider signed for a shorter prompt, which
Anthropic's models refuse. If the memory is lost (a new process, another worker), one more prompt is refused.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Final

from ctxguard.artifacts import Artifact

_MOST: Final = 4_096
"""Maximum number of conversations that are remembered."""


@dataclass(frozen=True, slots=True)
class Overflow:
    """The token limits of a conversation whose prompt the provider refused.

    Attributes:
        at: Number of artifacts in the refused history, or in its part up to the latest reply. Reasoning in these
            artifacts was written under other prompts than those that are sent now.
        budget: Number of tokens that prompts may take after the refusal.
        before: Number of tokens that prompts could take before the refusal.
    """

    at: int
    budget: int
    before: int


class Overflows:
    """Remembers the conversations whose prompt was refused, by hashes of their histories. Thread-safe.

    Applications may add passages or notes after the latest reply for one prompt only. Later histories then do not begin
    with the whole refused history, but still begin with its part up to the latest reply. So a refusal is also
    remembered for this part. The least recently used conversations are forgotten first. Copies and pickles start empty.
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
            budget: Number of tokens that its prompts may take from now on.
            before: Number of tokens that its prompts could take until now.
        """
        keys = list(_own_keys(tuple(history)))
        with self._lock:
            for key in keys:
                self._known[key] = Overflow(key[0], budget, before)
                self._known.move_to_end(key)
            while len(self._known) > _MOST:
                self._known.popitem(last=False)

    def forget(self, history: Iterable[Artifact]) -> None:
        """Forget the refusal of this history's own prompt; refusals of shorter histories stay in memory."""
        keys = list(_own_keys(tuple(history)))
        with self._lock:
            for key in keys:
                self._known.pop(key, None)

    def of(self, history: Iterable[Artifact]) -> Overflow | None:
        """Return the limits that the latest refusal in a conversation set; None if no refusal is remembered.

        Args:
            history: The history of the conversation, which may have grown since the refusal.
        """
        if not self._known:  # saves hashing the history
            return None
        keys = list(_keys(history))
        with self._lock:
            found = [key for key in keys if key in self._known]
            for key in found:
                self._known.move_to_end(key)
            return self._known[found[-1]] if found else None


def _own_keys(history: Sequence[Artifact]) -> Iterator[tuple[int, int]]:
    """Yield the keys of the history up to its latest reply, if there is one, and of the whole history."""
    keys = list(_keys(history))
    latest = next((at for at in range(len(keys), 0, -1) if history[at - 1].kind == "assistant"), 0)
    yield from dict.fromkeys(keys[at - 1] for at in (latest, len(keys)) if at)


def _keys(history: Iterable[Artifact]) -> Iterator[tuple[int, int]]:
    """Yield a key for each prefix of a history, from the first artifact alone to the whole history.

    Keys ignore fields that clients change when they send a message again, such as the breakpoints of prompt caches.
    """
    key = 0
    for at, one in enumerate(history, 1):
        key = hash((key, one.kind, one.content, tuple(one.calls), one.answers))
        yield at, key
