"""Calls and results come in pairs."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping

from ctxguard.artifacts import Artifact, Kind
from ctxguard.draft import Draft
from ctxguard.history import pair, whole_until
from ctxguard.report import Finding


class CallsArePaired:
    """Hold if every result directly follows its call, and every call outside of an open last exchange has one.

    OpenAI: "An assistant message with 'tool_calls' must be followed by tool messages responding to each
    'tool_call_id'"; Anthropic: "tool_use ids were found without tool_result blocks immediately after". Both answer 400.

    Args:
        allow_bare: accept tool outputs that name no call, unless they come from a provider's messages. Plain
            transcripts, such as the bundles of the long-session harness, have nothing to pair them with.
    """

    name = "CallsArePaired"

    def __init__(self, *, allow_bare: bool = False) -> None:
        self.allow_bare = allow_bare

    def __call__(self, draft: Draft, /) -> Iterator[Finding]:
        """Yield everything that is wrong."""
        artifacts = draft.artifacts
        if whole_until(artifacts) is not None:
            return
        found = pair(artifacts)
        for position in (*found.orphans, *found.duplicates):
            if self.allow_bare and artifacts[position].answers is None and _is_of_transcript(artifacts[position]):
                continue
            yield Finding("a tool result answers no open call", f"artifacts[{position}]")
        last = len(artifacts) - 1
        while last >= 0 and last in found.owner:
            last -= 1
        for position, number in found.unanswered:
            if position != last:
                yield Finding("a tool call has no result", f"artifacts[{position}].calls[{number}]")
        others = [p for p, artifact in enumerate(artifacts) if artifact.kind is not Kind.TOOL]
        for position, (owner, _) in found.owner.items():
            if bisect_left(others, position) > bisect_right(others, owner):
                yield Finding("a tool result does not follow its call", f"artifacts[{position}]")


def _is_of_transcript(artifact: Artifact) -> bool:
    """Return whether an artifact was made by hand or read from a bundle: its items have a kind, messages a role."""
    return artifact.source is None or (isinstance(artifact.source, Mapping) and "kind" in artifact.source)
