"""What a client asks, and what of its turn the guard has asked before it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ctxguard.formats.answers import Item


class Turn(NamedTuple):
    """Hold what a turn of the model stands for: members of the history as they came in, and as they were sent.

    Attributes:
        name: the name of the tool.
        rounds: answers with hidden calls so far.
        before: the text in front of the turn.
        shown: items that the client gets, as the provider wrote them.
        plain: what stands in the history, with its values.
        masked: the same as the provider has it.
    """

    name: str = ""
    rounds: int = 0
    before: str = ""
    shown: tuple[Item, ...] = ()
    plain: tuple[Item, ...] = ()
    masked: tuple[Item, ...] = ()


@dataclass(frozen=True, slots=True)
class WireRequest:
    """Hold a request as a client sends it.

    Attributes:
        method: The HTTP method.
        path: The path of its URL.
        headers: Its headers, with their names in lower case.
        body: Its body, not compressed.
        query: The query of its URL, as it is sent.
        turn: What it goes on with, where the guard itself asks.
    """

    method: str
    path: str
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)
    query: str = field(default="", repr=False)
    turn: Turn | None = field(default=None, repr=False)
