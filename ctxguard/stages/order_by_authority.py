"""Put the system prompt and the task first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ctxguard.artifacts import Kind
from ctxguard.draft import Draft
from ctxguard.history import AUTHORITY


@dataclass(frozen=True, slots=True)
class OrderByAuthority:
    """Moves the system prompt to the front, followed by task artifacts. Otherwise the order stays the same.

    The system prompt is what the system says before anybody else does. A system message that arrives later keeps its
    place: clients send notices in the middle of a conversation, and moving one to the front would change the prompt
    before all messages, which no prompt cache survives.

    Attributes:
        moves_notices: Whether later system messages move to the front as well, as the documents of the policies
            `pattern` and `long_session` ask.
    """

    moves_notices: bool = False
    name: ClassVar[str] = "OrderByAuthority"

    def __call__(self, draft: Draft, /) -> Draft:
        """Return the draft with the system prompt first, then task artifacts, then all others."""
        artifacts = draft.artifacts
        last = next((p for p in range(len(artifacts) - 1, -1, -1) if artifacts[p].kind in AUTHORITY), -1)
        ranks: list[int] = []
        has_begun = False
        for artifact in artifacts[: last + 1]:
            has_begun = has_begun or artifact.kind not in AUTHORITY
            is_notice = artifact.kind is Kind.SYSTEM and has_begun and not self.moves_notices
            ranks.append(2 if is_notice else _RANK.get(artifact.kind, 2))
        if ranks == sorted(ranks):
            return draft
        ranks += [2] * (len(artifacts) - len(ranks))
        order = sorted(range(len(ranks)), key=ranks.__getitem__)
        ordered = [artifacts[position] for position in order]
        return draft.revise(ordered, action="kept", reason="system prompt and task come first", cause="order")


_RANK = {Kind.SYSTEM: 0, Kind.TASK: 1}
