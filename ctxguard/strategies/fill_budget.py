"""Fill a budget: keep the mandatory messages, then add other exchanges as long as they fit."""

from __future__ import annotations

from itertools import chain, repeat

from ctxguard.artifacts import Artifact, Kind
from ctxguard.draft import Draft
from ctxguard.errors import BESIDE, BudgetExceededError
from ctxguard.history import AUTHORITY, ExchangeSpan, History
from ctxguard.history.conversation import TASK_SHARE
from ctxguard.settings import whole_number


class FillBudget:
    """Keeps system, task, pinned, and latest messages, and adds other exchanges as long as they fit.

    These are the heuristics of the long-session document (FR3): simple and predictable, but the prompt's prefix changes
    whenever the selection does. `StableWindow` is the better choice if the provider caches prompts. A tool output is
    not mandatory in itself: one that answers a mandatory call is replaced by a note of its size if it does not fit.

    Args:
        as_pattern: Whether to fill the budget as the code of the context stabilizer pattern does. Exchanges are then
            added from the oldest to the newest instead of the reverse, and at least one token is left free. The last
            exchange is mandatory, whatever its kind, instead of the last user message.

    Raises:
        BudgetExceededError: When the stage is called, if the mandatory messages do not fit.
    """

    name = "FillBudget"
    part = "fit"

    def __init__(self, *, as_pattern: bool = False) -> None:
        self.as_pattern = as_pattern

    def __call__(self, draft: Draft, /) -> Draft:
        """Return the draft with the artifacts that are kept."""
        limit = draft.budget - self.as_pattern
        if draft.tokens <= limit:
            return draft
        history = History(draft.counter.artifact, draft.artifacts)
        found = history.spans
        must = self._mandatory(history, draft)
        authority = [a for a in draft.artifacts if a.kind in AUTHORITY]
        taken = draft.overhead + draft.counter.artifacts(authority) + sum(found[n].tokens for n in must)
        if taken > draft.budget:
            bounded = _shorten_outputs(draft, history, must, taken - draft.budget)
            if bounded is draft:
                raise _budget_error(draft, found, must)
            return self(bounded)
        kept = set(must)
        rest = [n for n in range(len(found)) if n not in kept]
        # An exchange that does not fit is skipped, and a smaller one may still fit, as the document specifies.
        for number in rest if self.as_pattern else reversed(rest):
            if taken + found[number].tokens <= limit:
                kept.add(number)
                taken += found[number].tokens
        gone = {p for n, u in enumerate(found) if n not in kept for p in range(u.start, u.end)}
        return draft.revise(
            (a for p, a in enumerate(draft.artifacts) if p not in gone), reason="did not fit into what was left"
        )

    def _mandatory(self, history: History, draft: Draft) -> list[int]:
        """Return the indexes of the mandatory exchanges.

        The first user message is not among them: the document makes only `task` artifacts and the latest messages
        mandatory. If the last exchange is a tool output without its call, it is not among them, either.
        """
        last = len(history) - 1
        if self.as_pattern:
            return sorted(
                {*history.pinned, *history.latest_messages(draft.keep_recent, last + 1), *range(max(0, last), last + 1)}
            )
        must = history.must_stay(draft.keep_recent, None, last + 1, draft.budget // TASK_SHARE)
        span = history.spans[last] if history.spans else None
        is_bare = span is not None and history.artifacts[span.start].kind is Kind.TOOL and not span.is_pinned
        return must[:-1] if is_bare else must


def _shorten_outputs(draft: Draft, history: History, must: list[int], excess: int) -> Draft:
    """Replace tool outputs of mandatory exchanges by notes of their size, the largest first.

    Args:
        draft: The draft to shorten.
        history: The exchanges of the draft.
        must: Indexes of the mandatory exchanges.
        excess: Number of tokens that have to be saved.
    """
    spans = (history.spans[number] for number in must)
    outputs = [p for span in spans for p in range(span.start + 1, span.end) if not history.artifacts[p].pinned]
    artifacts = list(draft.artifacts)
    for position in sorted(outputs, key=lambda p: -history.costs[p]):
        if excess <= 0:
            break
        shorter = _replace_by_note(draft, artifacts[position], history.costs[position])
        if (gain := history.costs[position] - draft.counter.artifact(shorter)) > 0:
            artifacts[position] = shorter
            excess -= gain
    return draft.revise(artifacts, action="bounded", reason="did not fit into the budget after the mandatory messages")


def _budget_error(draft: Draft, found: list[ExchangeSpan], must: list[int]) -> BudgetExceededError:
    parts = {BESIDE: draft.overhead}
    for kind in AUTHORITY:
        parts[kind.value] = draft.counter.artifacts(a for a in draft.artifacts if a.kind is kind)
    parts["pinned"] = sum(found[n].tokens for n in must if found[n].is_pinned)
    parts["recent messages"] = sum(found[n].tokens for n in must if not found[n].is_pinned)
    return draft.exceeded(parts)


class DropVerboseOutput:
    """Drops large tool outputs, except for pinned ones and the last artifact of the context.

    An output that answers a call in the context cannot be dropped without the call, so its text is replaced by a note
    of its size.

    Args:
        max_tokens: Number of tokens above which an output is dropped.
    """

    name = "DropVerboseOutput"
    part = "fit"

    def __init__(self, max_tokens: int = 256) -> None:
        self.max_tokens = whole_number(max_tokens, "max_tokens", unit="tokens", least=1)

    def __call__(self, draft: Draft, /) -> Draft:
        """Return the draft without large tool outputs."""
        spans = History(draft.counter.artifact, draft.artifacts).spans
        paired = {p for span in spans for p in range(span.start + 1, span.end)}
        artifacts: list[Artifact] = []
        newest = len(draft.artifacts) - 1
        for position, artifact in enumerate(draft.artifacts):
            tokens = draft.counter.artifact(artifact)
            if artifact.kind is not Kind.TOOL or tokens <= self.max_tokens or artifact.pinned or position == newest:
                artifacts.append(artifact)
            elif position in paired:
                artifacts.append(_replace_by_note(draft, artifact, tokens))
        reason = f"a tool output of more than {self.max_tokens} tokens"
        return draft.revise(artifacts, action="bounded", reason=reason)


def _replace_by_note(draft: Draft, artifact: Artifact, tokens: int) -> Artifact:
    """Return a tool output whose text is replaced by a note of its size; media and signed parts stay as they are."""
    notes = chain([draft.mask(f"[tool output of {tokens} tokens left out]")], repeat(""))
    return artifact.edit(lambda slot, text: next(notes) if slot == "content" else text)
