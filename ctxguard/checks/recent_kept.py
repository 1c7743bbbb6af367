"""The latest messages are there."""

from __future__ import annotations

from collections.abc import Iterator

from ctxguard.draft import Draft
from ctxguard.history import asked_by_user, recent_messages
from ctxguard.report import Finding

__all__ = ["RecentKept"]


class RecentKept:
    """Hold where the latest `keep_recent` messages and the last user message of the history are in the result.

    A message that was joined with the one behind it is there where its whole text is. What stands before the first
    message of the user's may be missing where the provider takes no such message.
    """

    name = "RecentKept"

    def __call__(self, draft: Draft, /) -> Iterator[Finding]:
        """Walk everything that is wrong."""
        wanted = recent_messages(draft.history, draft.keep_recent)
        last_user = next((a for a in reversed(draft.history) if asked_by_user(a)), None)
        if last_user is not None and not any(a is last_user for a in wanted):
            wanted.append(last_user)
        there = {id(artifact.root) for artifact in draft.artifacts} | _rightly_gone(draft) | _joined(draft)
        for artifact in wanted:
            if id(artifact.root) not in there:
                position = next(p for p, a in enumerate(draft.history) if a is artifact)
                yield Finding(f"a recent {artifact.kind} message is missing", f"history[{position}]")


def _rightly_gone(draft: Draft) -> set[int]:
    """Return what went because its lifetime was over, or because the provider wants the user to speak first."""
    gone: set[int] = set()
    for change in draft.changes:
        if change.stage in ("ExpireLifetimes", "StartWithUser"):
            gone |= {id(a.root) for a in change.before} - {id(a.root) for a in change.after}
    return gone


def _joined(draft: Draft) -> set[int]:
    """Return what another message of the result holds the text of."""
    gone: set[int] = set()
    for change in draft.changes:
        if change.stage == "MergeMessageRuns":
            left = {id(a.root) for a in change.after}
            lost = [a for a in change.before if id(a.root) not in left]
            gone |= {id(a.root) for a in lost if any(a.kind is b.kind and a.text in b.text for b in draft.artifacts)}
    return gone
