"""Shorten mandatory messages if they exceed the budget by themselves, after everything else was evicted."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final

from ctxguard.artifacts import Artifact, Kind, ToolCall
from ctxguard.draft import Draft
from ctxguard.history import RECALLED, record_title
from ctxguard.stages.bound_tool_output import bound_artifact, bound_text
from ctxguard.stages.window_state import Ledger, Shortened, WindowState

_FLOORS: Final = (24, 8)
"""The smallest limit for each text, in tokens: in the first round, and in the second."""


@dataclass(frozen=True, slots=True)
class Squeezer:
    """Shortens the messages of a window: tool outputs first, then assistant messages, then user messages.

    Attributes:
        ledger: Counts the tokens of the exchanges.
        bounds_people: Whether the task and the last user message are shortened if shortening all others is not enough.
            If False, they stay unchanged.
        handle: Function that arranges for a text to be stored and returns its handle; None if there is no store.
    """

    ledger: Ledger
    bounds_people: bool = False
    handle: Callable[[str], str] | None = None

    def squeeze(self, state: WindowState, number: int) -> WindowState:
        """Return the state with texts shortened until the budget suffices, or until they cannot become shorter.

        Args:
            state: The state after a cut, which still exceeds the budget.
            number: Index in the history of the exchange that caused the cut.
        """
        ledger, history = self.ledger, self.ledger.history
        at = history.members(number)[0]
        # A last message that quotes a record does not count as a request, but is kept like one.
        last = (history.last_asked(number + 1), history.last_user(number + 1), ledger.task)
        people = [history.start(n) for n in dict.fromkeys(last) if n is not None]
        kept = [p for n in state.numbers() if not ledger.stays(n) for p in ledger.positions(n) if p not in people]
        tools, spoken, asked = (
            [p for p in kept if history.artifacts[p].kind is kind] for kind in (Kind.TOOL, Kind.ASSISTANT, Kind.USER)
        )
        # Tool outputs are shortened first, because they are large and the model can request them again. The trail and
        # other records are dropped next, because the messages of user and model are worth more.
        state = self._without_records(self._cap(state, tools, _FLOORS[0], at), number)
        for positions in (spoken, asked):
            state = self._cap(state, positions, _FLOORS[0], at)
        for groups in ((tools, spoken, asked), (people,) if self.bounds_people else ()):
            for is_least in (False, True):
                for positions in groups:
                    state = self._cap(state, positions, _FLOORS[1], at, is_least=is_least)
        return state

    def _without_records(self, state: WindowState, number: int) -> WindowState:
        """Return the state without the trail and older texts that stages wrote, as far as the budget requires."""
        ledger, history = self.ledger, self.ledger.history
        if state.note is not None and state.total > ledger.budget(state):
            state = replace(state, note=None, tokens=state.tokens - ledger.draft.counter.artifact(state.note))
        stay = (number, history.last_user(number + 1))
        for other in state.kept:
            is_record = record_title(history.members(other)[0]) not in (None, RECALLED)
            may_leave = is_record and other not in stay and not ledger.stays(other)
            if may_leave and state.total > ledger.budget(state):
                state = ledger.with_kept(state, (n for n in state.kept if n != other))
        return state

    def _cap(
        self, state: WindowState, positions: list[int], floor: int, at: Artifact, *, is_least: bool = False
    ) -> WindowState:
        """Return the state with each of the artifacts at `positions` limited to the same size, to meet the budget.

        Args:
            state: The state of the window; returned unchanged if it is within the budget.
            positions: Positions of the artifacts in the history; pinned ones stay unchanged.
            floor: The smallest limit, in tokens.
            at: The artifact whose arrival causes the change, see `Draft.mask`.
            is_least: Whether to limit all to `floor`, even if a larger limit should be enough. A view may take a few
                tokens more than its limit, so the larger limit may turn out to be insufficient.
        """
        draft, history = self.ledger.draft, self.ledger.history
        excess = state.total - self.ledger.budget(state)
        if excess <= 0:
            return state
        sizes = {p: self.ledger.tokens_at(p, state.shortened) for p in positions if not history.artifacts[p].pinned}
        available = sum(sizes.values()) - excess
        shortened, saved = dict(state.shortened), dict.fromkeys(sizes, 0)
        # The smallest first, each at most its share of what is left, so that a few huge texts are shortened before many
        # small ones, and a view that takes less than its share, down to "[9 lines]", leaves the rest to the others.
        for number, position in enumerate(sorted(sizes, key=sizes.__getitem__)):
            size = sizes[position]
            cap = floor if is_least else max(floor, available // (len(sizes) - number))
            if size > cap:
                whole = history.artifacts[position]
                is_said = whole.kind is Kind.USER and record_title(whole) is None
                has_handle = self.handle is not None and whole.text and (is_said or whole.kind is Kind.TOOL)
                handle = self.handle(whole.text) if self.handle is not None and has_handle else None
                is_open = self._is_open(position)
                smaller = shorten_to(whole, cap, draft, is_open=is_open, handle=handle, at=at)
                tokens = draft.counter.artifact(smaller)
                if tokens < size:
                    shortened[position] = Shortened(smaller, tokens, "the mandatory messages did not fit")
                    saved[position] = size - tokens
            available -= size - saved[position]
        # The tokens of the task are part of `fixed`, the others of `tokens`.
        fixed = 0 if self.ledger.task is None else saved.pop(history.start(self.ledger.task), 0)
        tokens = state.tokens - sum(saved.values())
        return replace(state, shortened=shortened, fixed=state.fixed - fixed, tokens=tokens)

    def _is_open(self, position: int) -> bool:
        """Return whether some tool calls of an artifact have no results yet.

        The arguments of these calls must not be changed, because tools may be running with them.
        """
        artifacts = self.ledger.history.artifacts
        calls = artifacts[position].calls
        following = artifacts[position + 1 : position + 1 + len(calls)]
        return bool(calls) and sum(a.kind is Kind.TOOL for a in following) < len(calls)


def water_level(tokens: Iterable[int], available: int, floor: int) -> int:
    """Return the largest common limit for sizes such that the limited sizes add up to at most `available`.

    Args:
        tokens: The sizes before they are limited.
        available: Number of tokens for all together.
        floor: The smallest limit that is returned, even if the sizes then add up to more.
    """
    sizes = sorted(tokens)
    for number, size in enumerate(sizes):
        share = available // (len(sizes) - number)
        if size > share:
            return max(floor, share)
        available -= size
    return max(floor, sizes[-1] if sizes else floor)


def shorten_to(
    artifact: Artifact, cap: int, draft: Draft, *, is_open: bool, handle: str | None = None, at: Artifact | None = None
) -> Artifact:
    """Return an artifact shortened to about `cap` tokens, by limiting its text and the arguments of its calls.

    Args:
        artifact: The artifact.
        cap: Maximum number of tokens. The result may have more if nothing can be shortened further.
        draft: Provides the counter and the maskers.
        is_open: Whether calls of the artifact have no results yet; their arguments then stay unchanged.
        handle: Handle under which the full content is stored, so that the view names it; None if it is not stored.
        at: The artifact whose arrival causes the change, see `Draft.mask`.
    """
    count = draft.counter
    if artifact.calls and not is_open:
        sizes = [count.text(artifact.text), *(count.text(call.arguments) for call in artifact.calls)]
        limit = water_level(sizes, sum(sizes) - count.artifact(artifact) + cap, _FLOORS[1] // 2)
        artifact = artifact.revised(calls=tuple(_shorten_call(call, limit, draft) for call in artifact.calls))
    return bound_artifact(artifact, cap, draft, at=at, handle=handle)


def _shorten_call(call: ToolCall, max_tokens: int, draft: Draft) -> ToolCall:
    """Return a call with its arguments shortened; if they are a JSON object, the result is one, too."""
    if draft.counter.text(call.arguments) <= max_tokens:
        return call
    shorter = bound_text(call.arguments, max_tokens, draft)
    # Providers parse arguments. They refuse a truncated object, but accept an empty one.
    return replace(call, arguments=shorter if is_json_object(shorter) or not is_json_object(call.arguments) else "{}")


def is_json_object(text: str) -> bool:
    """Return whether a string is a JSON object."""
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):  # nested too deeply for the arguments of a tool
        return False
