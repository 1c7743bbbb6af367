"""Move system and task artifacts to the front."""

from __future__ import annotations

from ctxguard.artifacts import Kind
from ctxguard.draft import Draft
from ctxguard.history import AUTHORITY

_RANK = {Kind.SYSTEM: 0, Kind.TASK: 1}


class OrderByAuthority:
    """Moves system artifacts to the front, followed by task artifacts. Otherwise the order stays the same."""

    name = "OrderByAuthority"

    def __call__(self, draft: Draft, /) -> Draft:
        """Return the draft with system artifacts first, then task artifacts, then all others."""
        artifacts = draft.artifacts
        last = next((p for p in range(len(artifacts) - 1, -1, -1) if artifacts[p].kind in AUTHORITY), -1)
        ranks = [_RANK.get(artifact.kind, 2) for artifact in artifacts[: last + 1]]
        if ranks == sorted(ranks):
            return draft
        ranks += [2] * (len(artifacts) - len(ranks))
        order = sorted(range(len(ranks)), key=ranks.__getitem__)
        ordered = [draft.artifacts[position] for position in order]
        return draft.revise(ordered, action="kept", reason="system and task messages come first")
