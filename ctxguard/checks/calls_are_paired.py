"""Calls and results come in pairs."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from ctxguard.artifacts import Kind
from ctxguard.draft import Draft
from ctxguard.history import pair, whole_until
from ctxguard.report import Finding

__all__ = ["CallsArePaired"]


class CallsArePaired:
    """Hold where every result directly follows its call and every call has a result, but in an open last exchange.

    OpenAI: "An assistant message with 'tool_calls' must be followed by tool messages responding to each
    'tool_call_id'"; Anthropic: "tool_use ids were found without tool_result blocks immediately after". Both answer 400.
    """

    name = "CallsArePaired"

    def __call__(self, draft: Draft, /) -> Iterator[Finding]:
        """Walk everything that is wrong."""
        artifacts = draft.artifacts
        if whole_until(artifacts) is not None:
            return
        found = pair(artifacts)
        for position in (*found.orphans, *found.duplicates):
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
