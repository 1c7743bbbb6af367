"""Fit a history by filling: what must stay first, then whatever else still fits."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain, repeat
from typing import Literal

from ctxguard.artifacts import Artifact, Kind, Part
from ctxguard.draft import Draft
from ctxguard.errors import BESIDE, BudgetExceededError, ConfigError
from ctxguard.history import AUTHORITY, ExchangeSpan, History


class FillBudget:
    """Keep system, task, pins and the latest messages, then add other exchanges while they fit.

    The heuristics of the long-session PRD (FR3): simple and predictable, at the price of a prompt prefix that changes
    whenever the selection does. `StableWindow` is the better choice where prompts are cached.

    Args:
        order: `newest` adds the latest exchanges first, `oldest` the earliest.
        strict: leave at least one token of the budget free while adding, as the walkthrough of the pattern does.

    Raises:
        ConfigError: `order` is neither.
        BudgetExceededError: (when called) what must stay does not fit.
    """

    name = "FillBudget"

    def __init__(self, *, order: Literal["newest", "oldest"] = "newest", strict: bool = False) -> None:
        if order not in ("newest", "oldest"):
            raise ConfigError(f"order is 'newest' or 'oldest', not {order!r}", setting="order")
        self.order = order
        self.strict = strict

    def __call__(self, draft: Draft, /) -> Draft:
        """Return the new draft."""
        if draft.tokens <= draft.budget - self.strict:
            return draft
        history = History(draft.counter.artifact, draft.artifacts)
        found = history.spans
        # No task here: the PRD keeps the system prompt and the latest messages, nothing else.
        must = history.must_stay(draft.keep_recent, None, len(history))
        authority = [a for a in draft.artifacts if a.kind in AUTHORITY]
        taken = draft.overhead + draft.counter.artifacts(authority) + sum(found[n].tokens for n in must)
        if taken > draft.budget:
            raise _exceeded(draft, found, must)
        kept = set(must)
        rest = [n for n in range(len(found)) if n not in kept]
        # One that does not fit is passed over, and smaller ones may still fit: so the PRD has it.
        for number in rest if self.order == "oldest" else reversed(rest):
            if taken + found[number].tokens + self.strict <= draft.budget:
                kept.add(number)
                taken += found[number].tokens
        gone = {p for n, u in enumerate(found) if n not in kept for p in range(u.start, u.end)}
        return draft.revise(
            (a for p, a in enumerate(draft.artifacts) if p not in gone), reason="did not fit into what was left"
        )


def _exceeded(draft: Draft, found: list[ExchangeSpan], must: list[int]) -> BudgetExceededError:
    parts = {BESIDE: draft.overhead}
    for kind in AUTHORITY:
        parts[kind.value] = draft.counter.artifacts(a for a in draft.artifacts if a.kind is kind)
    parts["pinned"] = sum(found[n].tokens for n in must if found[n].is_pinned)
    parts["recent messages"] = sum(found[n].tokens for n in must if not found[n].is_pinned)
    return draft.exceeded(parts)


class DropVerboseOutput:
    """Drop tool outputs above a limit that have no call in the history to pair with.

    An output that answers a call cannot go alone; its text is replaced by a note of how much there was.

    Args:
        max_tokens: outputs above it go, in tokens.
    """

    name = "DropVerboseOutput"

    def __init__(self, max_tokens: int = 256) -> None:
        if max_tokens < 1:
            raise ConfigError(f"max_tokens must be 1 or more, not {max_tokens}", setting="max_tokens")
        self.max_tokens = max_tokens

    def __call__(self, draft: Draft, /) -> Draft:
        """Return the new draft."""
        paired = {
            p
            for u in History(draft.counter.artifact, draft.artifacts).spans
            if u.end - u.start > 1
            for p in range(u.start + 1, u.end)
        }
        artifacts: list[Artifact] = []
        for position, artifact in enumerate(draft.artifacts):
            tokens = draft.counter.artifact(artifact)
            if artifact.kind is not Kind.TOOL or tokens <= self.max_tokens or artifact.pinned:
                artifacts.append(artifact)
            # A result cannot go without its call; its text can.
            elif position in paired:
                note = draft.mask(f"[tool output of {tokens} tokens left out]")
                content = _with_note(artifact.content, note)
                artifacts.append(artifact if content == artifact.content else artifact.revised(content=content))
        reason = f"a tool output of more than {self.max_tokens} tokens"
        return draft.revise(artifacts, action="bounded", reason=reason)


def _with_note(content: str | tuple[Part, ...], note: str) -> str | tuple[Part, ...]:
    """Return a content with a note in place of its texts; media and signed parts stay, and are counted."""
    if isinstance(content, str):
        return note
    notes = chain([note], repeat(""))
    is_text = (part.text is not None and part.editable for part in content)
    return tuple(replace(part, text=next(notes)) if told else part for part, told in zip(content, is_text, strict=True))
