"""The check that the latest messages are kept."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from ctxguard.artifacts import Artifact, Kind
from ctxguard.draft import Draft
from ctxguard.report import Finding

_MESSAGES: Final = (Kind.USER, Kind.ASSISTANT)
_STAGE_WROTE: Final = re.compile(r"\[[^\[\]\n]{1,200} Record [a-z]{7,13}\]\n")
"""Matches the first line of texts that stages write in the user's role. A user's own message may begin with such a
line, too. The check cannot tell them apart, so it does not require messages that begin with such a line."""


class RecentKept:
    """Holds if the latest `keep_recent` messages and the last user message of the history are in the result.

    A message that was merged with the next one counts as present if its whole text is present. Messages before the
    first user message may be missing if the provider requires that the user begins.
    """

    name = "RecentKept"

    def __call__(self, draft: Draft, /) -> Iterator[Finding]:
        """Yield a finding for each violation."""
        missing = {id(artifact.root): artifact for artifact in _latest(draft.history, draft.keep_recent)}
        # search from the end, where these messages normally are
        for artifact in reversed(draft.artifacts):
            if not missing:
                return
            missing.pop(id(artifact.root), None)
        excused = _may_be_missing(draft)
        for root, artifact in missing.items():
            if root not in excused:
                position = next(p for p, a in enumerate(draft.history) if a is artifact)
                yield Finding(f"a recent {artifact.kind} message is missing", f"history[{position}]")


def _latest(history: Sequence[Artifact], keep: int) -> list[Artifact]:
    """Return the latest `keep` messages and the last user message, except messages that a stage may have written."""
    latest: list[Artifact] = []
    last_user: Artifact | None = None
    for artifact in reversed(history):
        if artifact.kind in _MESSAGES:
            if len(latest) < keep:
                latest.append(artifact)
            if artifact.kind is Kind.USER and last_user is None:
                last_user = artifact
        if last_user is not None and len(latest) >= keep:
            break
    required = latest if last_user is None or any(a is last_user for a in latest) else [*latest, last_user]
    return [artifact for artifact in required if not _STAGE_WROTE.match(artifact.text)]


def _may_be_missing(draft: Draft) -> set[int]:
    """Return the `id()` of each message that may be missing.

    A message may be missing if it expired, if it preceded the first user message and the provider requires that the
    user begins, or if it was merged into a message of the result that contains its text.
    """
    gone: set[int] = set()
    for change in draft.changes:
        left = {id(a.root) for a in change.after}
        lost = [a for a in change.before if id(a.root) not in left] if change.cause in _MAY_DROP else []
        if change.cause == "merge":
            lost = [a for a in lost if any(a.kind is b.kind and a.text in b.text for b in draft.artifacts)]
        gone.update(id(a.root) for a in lost)
    return gone


_MAY_DROP: Final = ("lifetime", "order", "merge")
