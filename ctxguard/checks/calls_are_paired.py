"""The check that every tool call has its result, and every result its call."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

from ctxguard.artifacts import Artifact, Kind, ToolCall
from ctxguard.draft import Draft
from ctxguard.report import Finding


class CallsArePaired:
    """Holds if every result directly follows its call, and every call outside the last tool exchange has a result.

    OpenAI: "An assistant message with 'tool_calls' must be followed by tool messages responding to each
    'tool_call_id'"; Anthropic: "tool_use ids were found without tool_result blocks immediately after". Both answer with
    status 400.

    Each message with calls is compared with the results that directly follow it. If ids are repeated or missing, each
    result uses up one call with the same id or tool, so a result for which no call is left is a finding.

    Args:
        allow_bare: Whether a tool output without a call id is accepted even if it answers no call, because plain
            transcripts contain no calls. Outputs that come from a provider's messages are not accepted.
    """

    name = "CallsArePaired"

    def __init__(self, *, allow_bare: bool = False) -> None:
        self.allow_bare = allow_bare

    def __call__(self, draft: Draft, /) -> Iterator[Finding]:
        """Yield a finding for each violation."""
        calls, abandoned = _Calls(), _Calls()
        for position, artifact in enumerate(draft.artifacts):
            if artifact.kind is not Kind.TOOL:
                if calls.by_id:
                    abandoned.add(calls.unanswered())
                    calls = _Calls()
                if artifact.calls:
                    calls.add(((position, n), call) for n, call in enumerate(artifact.calls))
            elif calls.take(artifact):
                continue
            elif artifact.answers is not None and abandoned.take(artifact):
                yield Finding("a tool result does not follow its call", f"artifacts[{position}]")
            elif not (self.allow_bare and artifact.answers is None and _is_of_transcript(artifact)):
                yield Finding("a tool result answers no open call", f"artifacts[{position}]")
        for (position, n), _ in abandoned.unanswered():
            yield Finding("a tool call has no result", f"artifacts[{position}].calls[{n}]")


_Placed: TypeAlias = tuple[tuple[int, int], ToolCall]
"""The position of an artifact and the index of a call in it, and then the call itself."""


class _Calls:
    """The calls that have no result yet, with their positions. `by_id` is empty only if no call was added."""

    def __init__(self) -> None:
        self.by_id: dict[str | None, deque[_Placed]] = {}

    def add(self, placed: Iterable[_Placed]) -> None:
        for place, call in placed:
            self.by_id.setdefault(call.id, deque()).append((place, call))

    def unanswered(self) -> list[_Placed]:
        return [one for calls in self.by_id.values() for one in calls]

    def take(self, result: Artifact) -> bool:
        """Remove the call that a result answers, and return whether there is such a call.

        The call is found by its id, or by the name of its tool if the call or the result has no id.
        """
        calls = self.by_id.get(result.answers) if result.answers is not None else None
        if calls:
            calls.popleft()
            return True
        for calls in self.by_id.values() if result.answers is None else [self.by_id.get(None, deque())]:
            for one in calls:
                if result.name in (None, one[1].name):
                    calls.remove(one)
                    return True
        return False


def _is_of_transcript(artifact: Artifact) -> bool:
    """Return whether an artifact was created by hand or read from a plain transcript, not from a provider's message.

    The items of a plain transcript have a `kind`.
    """
    return artifact.source is None or (isinstance(artifact.source, Mapping) and "kind" in artifact.source)
