"""Map a cached result to the artifacts of the current call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from operator import is_

from ctxguard.artifacts import Artifact
from ctxguard.tokens import ArtifactCounter


def in_own_objects(
    artifacts: list[Artifact], known: Sequence[Artifact], given: Sequence[Artifact], history: Sequence[Artifact]
) -> list[Artifact]:
    """Replace the artifacts of earlier calls in a result with the equal artifacts of this call.

    Parsing a request creates new objects in each call, while the result was computed for the earlier ones.

    Args:
        artifacts: the result, computed for `known`.
        known: the history of the earlier calls, as the session stores it.
        given: the same history, as the earlier calls passed it.
        history: the history of this call, which equals it.
    """
    if all(map(is_, given, history)):
        return artifacts
    pairs = [(was, now) for was, now in zip(known, history, strict=True) if was is not now]
    same = {id(was): now for was, now in pairs}
    # a history may contain changed copies from an earlier result; copies of them share their root
    roots = {id(was.root): now for was, now in pairs}
    return [same.get(id(one)) or _in_place_of(one, roots.get(id(one.origin))) for one in artifacts]


def _in_place_of(artifact: Artifact, own: Artifact | None) -> Artifact:
    return artifact if own is None else replace(artifact, origin=own.root, source=own.source)


def with_own_count(artifact: Artifact, counter: ArtifactCounter) -> Artifact:
    """Count a changed copy if the caller counted the original; return any other artifact unchanged."""
    if artifact.origin is None or artifact.origin.token_count is None or artifact.token_count is not None:
        return artifact
    return replace(artifact, token_count=counter.artifact(artifact))
