"""The invariants of a context that need no rules: it fits, authority is first and whole, its end and pairs are kept.

Personal data is searched by `ctxguard.checks.no_pii`, and what one provider requires is in
`ctxguard.checks.provider_profiles`.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from ctxguard.artifacts import BY_POSITION, Artifact, Kind, ToolCall
from ctxguard.draft import Draft
from ctxguard.history import AUTHORITY
from ctxguard.history.pairing import well_formed
from ctxguard.report import Finding


class WithinBudget:
    """Holds if the number of tokens in the whole request, by the counter in use, is within the budget.

    Every provider rejects or silently truncates a prompt that exceeds the model's window.
    """

    name = "WithinBudget"

    def __call__(self, draft: Draft, /) -> Iterator[Finding]:
        """Yield a finding for each violation."""
        tokens = draft.tokens
        if tokens > draft.budget:
            yield Finding(f"{tokens} tokens exceed the budget of {draft.budget}", "artifacts")


class AuthorityFirst:
    """Holds if the system prompt comes first, then task artifacts, then all others.

    Models give more weight to the beginning. A system message that arrived after the conversation had begun keeps its
    place; a provider that refuses the role there gets it as user text, which its format writes.
    """

    name = "AuthorityFirst"

    def __call__(self, draft: Draft, /) -> Iterator[Finding]:
        """Yield a finding for each violation."""
        begun = next((p for p, a in enumerate(draft.artifacts) if a.kind not in AUTHORITY), len(draft.artifacts))
        prompt = {id(artifact.root) for _, artifact in _authority(draft) if artifact.kind is Kind.SYSTEM}
        had_task = False
        for position, artifact in enumerate(draft.artifacts):
            if artifact.kind is Kind.TASK:
                had_task = True
                is_late = position > begun
            else:
                is_late = id(artifact.root) in prompt and (position > begun or had_task)
            if is_late:
                yield Finding(
                    f"a {artifact.kind} artifact follows a message of lower authority", f"artifacts[{position}]"
                )


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
                if _is_part_of_another(draft, artifact):
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
        if id(before.root) == id(after.root) == root and before is not after and not _only_joins(change.before, after)
    }
    return actions <= {"masked", "kept"}


def _is_part_of_another(draft: Draft, artifact: Artifact) -> bool:
    """Return whether the texts of an artifact, as masked, are part of another system or task artifact of the result."""
    latest = artifact
    for change in draft.changes:
        latest = next((after for after in change.after if after.root is artifact.root), latest)
    others = (other.text for other in draft.artifacts if other.kind in AUTHORITY)
    return any(all(text in other for text in _prompt_texts(latest)) for other in others)


def _only_joins(before: Iterable[Artifact], after: Artifact) -> bool:
    """Return whether an artifact says nothing but what artifacts of its kind said, which includes its own texts."""
    rest = "\n".join(_prompt_texts(after))
    own = [artifact for artifact in before if artifact.kind is after.kind]
    kept = all(text in rest for artifact in own if artifact.root is after.root for text in _prompt_texts(artifact))
    for text in (text for artifact in own for text in _prompt_texts(artifact)):
        rest = rest.replace(text, "", 1)
    return kept and not rest.strip()


def _prompt_texts(artifact: Artifact) -> list[str]:
    """Return what a prompt says: without blank texts and "…", and with U+FFFD in place of half of a surrogate pair."""
    texts = (text for slot, text in artifact.texts() if slot == "content" and text.strip() not in ("", "…"))
    return [well_formed(text) for text in texts]


_MESSAGES: Final = (Kind.USER, Kind.ASSISTANT)
"""Kinds of artifacts that count as messages for `keep_recent`."""
_STAGE_WROTE: Final = re.compile(r"\[[^\[\]\n]{1,200} Record [a-z]{7,13}\]\n")
"""Matches the first line of texts that stages write in the user's role. A user's own message may begin with such a
line, too. The check cannot tell them apart, so it does not require messages that begin with such a line."""
_MAY_DROP: Final = ("lifetime", "order", "merge")
"""Causes of changes by which a recent message may be missing, see `ctxguard.draft.Cause`."""


class RecentKept:
    """Holds if the latest `keep_recent` messages and the last user message of the history are in the result.

    A message that was merged with the next one counts as present if its whole text is present. Messages before the
    first user message may be missing if the provider requires that the user begins.
    """

    name = "RecentKept"

    def __call__(self, draft: Draft, /) -> Iterator[Finding]:
        """Yield a finding for each violation."""
        missing = {id(artifact.root): artifact for artifact in _latest_messages(draft.history, draft.keep_recent)}
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


def _latest_messages(history: Sequence[Artifact], keep: int) -> list[Artifact]:
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
        yield from _unpaired_halves(draft.artifacts)


_NO_RESULT: Final = "a call of the provider's own tool has no result"
_Placed: TypeAlias = tuple[tuple[int, int], ToolCall]
"""The position of an artifact and the index of a call in it, and then the call itself."""


def _unpaired_halves(artifacts: Sequence[Artifact]) -> Iterator[Finding]:
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
