"""A client's request, and the part of a model's turn that precedes a follow-up request of the guard.

If a model calls the guard's `recall` tool, the guard answers the call and sends a follow-up request, see `readback`.
These calls are *hidden*: the client does not see them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ctxguard.formats.weave import Item


class Turn(NamedTuple):
    """The part of a model's turn that precedes a follow-up request of the guard.

    Attributes:
        name: The name of the recall tool.
        rounds: Number of responses so far that called the recall tool. The client does not see these calls.
        before: The text of the message before the turn.
        shown: The output items that the client receives, in the provider's form: with placeholders.
        plain: The messages that the turn adds to the history, with masked values restored.
        masked: The same messages as the provider has them, with placeholders.
        numbering: The numbering of these placeholders, see `sessions.numberings_of`.
    """

    name: str = ""
    rounds: int = 0
    before: str = ""
    shown: tuple[Item, ...] = ()
    plain: tuple[Item, ...] = ()
    masked: tuple[Item, ...] = ()
    numbering: str = ""


@dataclass(frozen=True, slots=True)
class WireRequest:
    """A request as a client sends it.

    Attributes:
        method: The HTTP method.
        path: The path of the URL.
        headers: The headers, with names in lower case.
        body: The body, decompressed.
        query: The query string of the URL.
        turn: The turn that the request continues, if the guard itself sends the request.
    """

    method: str
    path: str
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)
    query: str = field(default="", repr=False)
    turn: Turn | None = field(default=None, repr=False)
