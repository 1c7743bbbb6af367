"""Put system and task artifacts first."""

from __future__ import annotations

from ctxguard.artifacts import Kind
from ctxguard.draft import Draft
from ctxguard.history import AUTHORITY

_RANK = {Kind.SYSTEM: 0, Kind.TASK: 1}


class OrderByAuthority:
    """Order a draft: system, then task, then the rest, each in the order it had."""

    name = "OrderByAuthority"

    def __call__(self, draft: Draft, /) -> Draft:
        """Return the new draft."""
        artifacts = draft.artifacts
        last = next((p for p in range(len(artifacts) - 1, -1, -1) if artifacts[p].kind in AUTHORITY), -1)
        ranks = [_RANK.get(artifact.kind, 2) for artifact in artifacts[: last + 1]]
        if ranks == sorted(ranks):
            return draft
        ranks += [2] * (len(artifacts) - len(ranks))
        order = sorted(range(len(ranks)), key=ranks.__getitem__)
        ordered = [draft.artifacts[position] for position in order]
        return draft.revise(ordered, action="kept", reason="system and task messages come first")
