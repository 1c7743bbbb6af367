"""The check that instructions come first."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from operator import attrgetter

from ctxguard.artifacts import Kind
from ctxguard.draft import Draft
from ctxguard.report import Finding


class AuthorityFirst:
    """Holds if system artifacts come before task artifacts, and both come before all others.

    Strict chat templates reject a system message anywhere else, and models give more weight to the beginning.
    """

    name = "AuthorityFirst"

    def __call__(self, draft: Draft, /) -> Iterator[Finding]:
        """Yield a finding for each violation."""
        lead = next((n for n, artifact in enumerate(draft.artifacts) if artifact.kind not in _RANK), 0)
        # fast path: in most contexts, the system prompt is the only such artifact
        if lead <= 1 and _RANK.keys().isdisjoint(map(_kind, islice(draft.artifacts, lead, None))):
            return
        highest = 0
        for position, artifact in enumerate(draft.artifacts):
            rank = _RANK.get(artifact.kind, 2)
            if rank < highest:
                yield Finding(
                    f"a {artifact.kind} artifact stands behind what has less authority", f"artifacts[{position}]"
                )
            else:
                highest = rank


_RANK = {Kind.SYSTEM: 0, Kind.TASK: 1}
_kind = attrgetter("kind")
