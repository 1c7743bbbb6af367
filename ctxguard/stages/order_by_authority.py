"""Put what has authority first."""

from __future__ import annotations

from ctxguard.artifacts import Kind
from ctxguard.draft import Draft

__all__ = ["OrderByAuthority"]

_RANK = {Kind.SYSTEM: 0, Kind.TASK: 1}


class OrderByAuthority:
    """Order a draft: system, then task, then the rest, each in the order it had."""

    name = "OrderByAuthority"

    def __call__(self, draft: Draft, /) -> Draft:
        """Return the new draft."""
        ranks = [_RANK.get(artifact.kind, 2) for artifact in draft.artifacts]
        if ranks == sorted(ranks):
            return draft
        order = sorted(range(len(ranks)), key=ranks.__getitem__)
        ordered = [draft.artifacts[position] for position in order]
        return draft.revise(ordered, action="kept", reason="authority stands first")
