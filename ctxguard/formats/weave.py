"""Join the streamed responses to one request of the client, and hide the calls of one tool in them.

In read-back, the guard gives the model a tool that reads stored results, and answers its calls itself, invisible to the
client. To do so, it must find these calls in a response, hide them, and join the model's next response to it. What an
event of an API means is said by its format, which derives a class from `Weave`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ctxguard.formats.format import Body, Event, Format

Item = dict[str, Any]
"""What an API lists in a response: an output item, a content block, or a part; in Chat Completions, a message without
its calls, or one of the calls."""


class Weave(ABC):
    """Joins the streamed responses to one request of the client into one stream. Call `feed` for each event.

    Args:
        kind: The format of the responses.
        name: Name of the tool whose calls are hidden.

    Attributes:
        items: Items of the current response so far, including hidden calls.
        is_over: Whether the current response has ended.
        goes_on: Whether the current response has ended, and all of its calls (at least one) were hidden. Its end was
            then hidden as well.
        renamed: Two ids of the joined response: the one that the client sees, and the one under which the provider
            stores the last response. None for APIs that do not store responses, and if nothing was hidden.
        round: Index of the current response; 0 for the first.
        shown: Items of earlier responses that the client has received.
    """

    def __init__(self, kind: Format, name: str) -> None:
        self.format, self.name = kind, name
        self.round = -1
        self.renamed: tuple[str, str] | None = None
        self.shown: list[Item] = []
        self.items: list[Item] = []
        self.again()

    def again(self) -> None:
        """Prepare for the events of the next response."""
        self.shown += self.format.without_calls(self.items, self.name)
        self.items, self.hidden, self.goes_on, self.is_over = [], set[int](), False, False
        self.round += 1

    @abstractmethod
    def feed(self, event: Event) -> Event | None:
        """Return the event for the client, or None to hide it. Until something is hidden, this is `event` itself."""

    def _is_hidden(self, item: Body) -> bool:
        return not self.format.without_calls([item], self.name)

    def _ends(self) -> bool:
        """Record that the response has ended, and return whether the client gets its end.

        The end is hidden if the response has calls and all of them are hidden.
        """
        calls = [self._is_hidden(item) for item in self.items if self.format.call_in(item) is not None]
        self.is_over, self.goes_on = True, bool(calls) and all(calls)
        return not self.goes_on

    def _place(self, number: int) -> int:
        """Return the index at which the client sees the item with the index `number` in the current response."""
        return len(self.shown) + number - sum(other < number for other in self.hidden)


def add_to(record: Item, more: Body) -> None:
    """Append pieces of text to the texts of a record; replace any other values."""
    for key, value in more.items():
        if isinstance(value, str) and isinstance(record.get(key), str) and key != "role":
            record[key] += value
        elif value is not None:
            record[key] = value
