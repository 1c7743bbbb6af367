"""The check that system and task instructions are complete."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ctxguard.artifacts import Artifact, Kind
from ctxguard.draft import Draft
from ctxguard.history import AUTHORITY
from ctxguard.history.pairing import well_formed
from ctxguard.report import Finding


class SystemIntact:
    """Holds if the system prompt and all task artifacts of the history are in the result, in order, only masked.

    An artifact that has a lifetime may be missing, because it may have expired. Texts of white space and halves of
    surrogate pairs may be missing, because providers refuse them. An artifact may be part of another system or task
    artifact, because chat templates accept a single system message. A system message that arrived after the
    conversation had begun may be shortened or evicted, if such messages take more than their share of the budget.
    """

    name = "SystemIntact"

    def __call__(self, draft: Draft, /) -> Iterator[Finding]:
        """Yield a finding for each violation."""
        there = {id(a.root): (place, a) for place, a in enumerate(draft.artifacts) if a.kind in AUTHORITY}
        latest = dict.fromkeys(AUTHORITY, -1)
        for position, artifact in _authority(draft):
            if artifact.lifetime is not None:
                continue
            path = f"history[{position}]"
            if id(artifact.root) not in there:
                if _is_repeated(draft, artifact):
                    continue
                yield Finding(f"a {artifact.kind} artifact is missing", path)
                continue
            place, now = there[id(artifact.root)]
            if now is not artifact and not _only_masked(draft, artifact):
                yield Finding(f"a {artifact.kind} artifact was altered", path)
            if place < latest[artifact.kind]:
                yield Finding(f"a {artifact.kind} artifact lost its order", path)
            latest[artifact.kind] = max(latest[artifact.kind], place)


def _authority(draft: Draft) -> Iterator[tuple[int, Artifact]]:
    """Yield the system prompt and the task artifacts, with their positions in the history."""
    known = draft.authority
    if known is None:
        known = tuple((p, artifact) for p, artifact in enumerate(draft.history) if artifact.kind in AUTHORITY)
    for number, (position, artifact) in enumerate(known):
        if artifact.kind is Kind.TASK or position == number:  # only such artifacts precede it
            yield position, artifact


def _only_masked(draft: Draft, was: Artifact) -> bool:
    """Return whether masking is the only stage that changed an artifact."""
    root = id(was.root)
    actions = {
        change.actions.get(id(before), change.action)
        for change in draft.changes
        for before in change.before
        for after in change.after
        if id(before.root) == id(after.root) == root and before is not after and not _is_joined(change.before, after)
    }
    return actions <= {"masked", "kept"}


def _is_repeated(draft: Draft, artifact: Artifact) -> bool:
    """Return whether the texts of an artifact, as masked, are part of another system or task artifact of the result."""
    latest = artifact
    for change in draft.changes:
        latest = next((after for after in change.after if after.root is artifact.root), latest)
    others = (other.text for other in draft.artifacts if other.kind in AUTHORITY)
    return any(all(text in other for text in _said(latest)) for other in others)


def _is_joined(before: Iterable[Artifact], after: Artifact) -> bool:
    """Return whether an artifact says nothing but what artifacts of its kind said, which includes its own texts."""
    rest = "\n".join(_said(after))
    own = [artifact for artifact in before if artifact.kind is after.kind]
    kept = all(text in rest for artifact in own if artifact.root is after.root for text in _said(artifact))
    for text in (text for artifact in own for text in _said(artifact)):
        rest = rest.replace(text, "", 1)
    return kept and not rest.strip()


def _said(artifact: Artifact) -> list[str]:
    """Return what a prompt says: without blank texts and "…", and with U+FFFD in place of half of a surrogate pair."""
    texts = (text for slot, text in artifact.texts() if slot == "content" and text.strip() not in ("", "…"))
    return [well_formed(text) for text in texts]
