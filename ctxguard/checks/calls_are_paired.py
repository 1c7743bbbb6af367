"""The check that every tool call has its result, and every result its call."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from ctxguard.artifacts import BY_POSITION, Artifact, Kind, ToolCall
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
            elif artifact.answers and abandoned.take(artifact):
                yield Finding("a tool result does not follow its call", f"artifacts[{position}]")
            elif not (self.allow_bare and not artifact.answers and _is_of_transcript(artifact)):
                yield Finding("a tool result answers no open call", f"artifacts[{position}]")
        for (position, n), _ in abandoned.unanswered():
            yield Finding("a tool call has no result", f"artifacts[{position}].calls[{n}]")
        yield from _halves(draft.artifacts)


_NO_RESULT: Final = "a call of the provider's own tool has no result"
_Placed: TypeAlias = tuple[tuple[int, int], ToolCall]
"""The position of an artifact and the index of a call in it, and then the call itself."""


def _halves(artifacts: Sequence[Artifact]) -> Iterator[Finding]:
    """Yield a finding for each half of a call that the provider executes without its other half.

    Anthropic: "`web_search` tool use with id … was found without a corresponding `web_search_tool_result` block". A
    call may wait for its result until the user speaks again.
    """
    open_calls: dict[str | None, str] = {}
    for position, artifact in enumerate(artifacts):
        if artifact.kind is Kind.USER:
            yield from (Finding(_NO_RESULT, place) for place in open_calls.values())
            open_calls = {}
        for number, part in enumerate(artifact.content if isinstance(artifact.content, tuple) else ()):
            if part.half is None:
                continue
            place = f"artifacts[{position}].content[{number}]"
            if part.half.is_result and open_calls.pop(part.half.id, None) is None and part.half.id is not None:
                yield Finding("a result of the provider's own tool has no call before it", place)
            elif not part.half.is_result:
                open_calls[part.half.id] = place


class _Calls:
    """The calls that have no result yet, with their positions. `by_id` is empty only if no call was added."""

    def __init__(self) -> None:
        self.by_id: dict[str | None, deque[_Placed]] = {}

    def add(self, placed: Iterable[_Placed]) -> None:
        for place, call in placed:
            self.by_id.setdefault(call.id or None, deque()).append((place, call))

    def unanswered(self) -> list[_Placed]:
        return [one for calls in self.by_id.values() for one in calls]

    def take(self, result: Artifact) -> bool:
        """Remove the call that a result answers, and return whether there is such a call.

        The call is found by its id, or by the name of its tool if the call or the result has no id.
        """
        calls = self.by_id.get(result.answers) if result.answers else None
        if calls:
            calls.popleft()
            return True
        for calls in [self.by_id.get(None, deque())] if result.answers else self.by_id.values():
            for one in calls:
                # a call in OpenAI's older form is only answered by a result in that form
                if one[1].id != BY_POSITION and result.name in (None, one[1].name):
                    calls.remove(one)
                    return True
        return False


def _is_of_transcript(artifact: Artifact) -> bool:
    """Return whether an artifact was created by hand or read from a plain transcript, not from a provider's message.

    The items of a plain transcript have a `kind`.
    """
    return artifact.source is None or (isinstance(artifact.source, Mapping) and "kind" in artifact.source)
