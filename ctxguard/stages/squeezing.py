"""Squeeze a window: if the mandatory messages do not fit, shorten their texts."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final

from ctxguard.artifacts import Artifact, Kind, ToolCall
from ctxguard.draft import Draft
from ctxguard.history import RECALLED, record_title
from ctxguard.stages.bound_tool_output import bounded, bounded_text
from ctxguard.stages.window_state import Ledger, Shortened, WindowState

_FLOORS: Final = (24, 8)
"""Tokens to which texts are squeezed: first outputs, then messages of the model and people, then all again."""


@dataclass(frozen=True, slots=True)
class Squeezer:
    """Shorten texts: tool outputs first, then assistant messages, then user messages; the last user message never.

    Attributes:
        ledger: the token costs of the exchanges.
        bounds_people: whether the task and the last user message may be bounded if nothing else helps.
        handle: saves a text in full and returns its handle, which the marker names; None without a store.
    """

    ledger: Ledger
    bounds_people: bool = False
    handle: Callable[[str], str] | None = None

    def squeezed(self, state: WindowState, number: int) -> WindowState:
        """Return a window that exceeds the budget with shortened texts, until it fits or no more tokens can be saved.

        `number` is the exchange at which the window is cut.
        """
        ledger, history = self.ledger, self.ledger.history
        at = history.members(number)[0]
        # A last message that quotes one of our records does not count as a request, but is kept like one.
        last = (history.last_asked(number + 1), history.last_user(number + 1), ledger.task)
        people = [history.start(n) for n in dict.fromkeys(last) if n is not None]
        kept = [p for n in state.numbers() if not ledger.stays(n) for p in ledger.positions(n) if p not in people]
        tools, spoken, asked = (
            [p for p in kept if history.artifacts[p].kind is kind] for kind in (Kind.TOOL, Kind.ASSISTANT, Kind.USER)
        )
        # Tool outputs first: they are large, and the model can ask for them again. Messages of people and of the model
        # are worth more than records and the trail.
        state = self._without_records(self._capped(state, tools, _FLOORS[0], at), number)
        for positions in (spoken, asked):
            state = self._capped(state, positions, _FLOORS[0], at)
        for groups in ((tools, spoken, asked), (people,) if self.bounds_people else ()):
            for is_least in (False, True):
                for positions in groups:
                    state = self._capped(state, positions, _FLOORS[1], at, is_least=is_least)
        return state

    def _without_records(self, state: WindowState, number: int) -> WindowState:
        """Return the state without the trail and other records, as far as is necessary to fit."""
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

    def _capped(
        self, state: WindowState, positions: list[int], floor: int, at: Artifact, *, is_least: bool = False
    ) -> WindowState:
        """Return the state with all texts limited to one size, at least `floor`, to fit the budget if possible.

        `at` is the artifact whose arrival causes the change, see `Draft.mask`. `is_least` limits them to `floor`
        without regard to the excess: a view may take a few tokens more than its limit, so that larger limits may fail.
        """
        draft, history = self.ledger.draft, self.ledger.history
        excess = state.total - self.ledger.budget(state)
        if excess <= 0:
            return state
        sizes = {p: self.ledger.tokens_at(p, state.shortened) for p in positions if not history.artifacts[p].pinned}
        room = sum(sizes.values()) - excess
        shortened, saved = dict(state.shortened), dict.fromkeys(sizes, 0)
        # The smallest first, each at most its share of what is left, so that a few huge texts are shortened before many
        # small ones, and a view that takes less than its share, down to "[9 lines]", leaves the rest to the others.
        for number, position in enumerate(sorted(sizes, key=sizes.__getitem__)):
            size = sizes[position]
            cap = floor if is_least else max(floor, room // (len(sizes) - number))
            if size > cap:
                whole = history.artifacts[position]
                is_said = whole.kind is Kind.USER and record_title(whole) is None
                has_handle = self.handle is not None and whole.text and (is_said or whole.kind is Kind.TOOL)
                handle = self.handle(whole.text) if self.handle is not None and has_handle else None
                is_open = self._is_open(position)
                smaller = squeezed_to(whole, cap, draft, is_open=is_open, handle=handle, at=at)
                tokens = draft.counter.artifact(smaller)
                if tokens < size:
                    shortened[position] = Shortened(smaller, tokens, "the mandatory messages did not fit")
                    saved[position] = size - tokens
            room -= size - saved[position]
        # The tokens of the task are counted as fixed.
        fixed = 0 if self.ledger.task is None else saved.pop(history.start(self.ledger.task), 0)
        tokens = state.tokens - sum(saved.values())
        return replace(state, shortened=shortened, fixed=state.fixed - fixed, tokens=tokens)

    def _is_open(self, position: int) -> bool:
        """Return whether calls of an artifact still wait for results; their arguments are never changed."""
        artifacts = self.ledger.history.artifacts
        calls = artifacts[position].calls
        # A tool may be running with these very arguments.
        following = artifacts[position + 1 : position + 1 + len(calls)]
        return bool(calls) and sum(a.kind is Kind.TOOL for a in following) < len(calls)


def water_level(tokens: Iterable[int], room: int, floor: int) -> int:
    """Return the largest limit, at least `floor`, with which the limited sizes add up to at most `room`."""
    sizes = sorted(tokens)
    for number, size in enumerate(sizes):
        share = room // (len(sizes) - number)
        if size > share:
            return max(floor, share)
        room -= size
    return max(floor, sizes[-1] if sizes else floor)


def squeezed_to(
    artifact: Artifact, cap: int, draft: Draft, *, is_open: bool, handle: str | None = None, at: Artifact | None = None
) -> Artifact:
    """Return an artifact shortened to `cap` tokens as far as possible: the longest of its content and its arguments."""
    count = draft.counter
    if artifact.calls and not is_open:
        sizes = [count.text(artifact.text), *(count.text(call.arguments) for call in artifact.calls)]
        limit = water_level(sizes, sum(sizes) - count.artifact(artifact) + cap, _FLOORS[1] // 2)
        artifact = artifact.revised(calls=tuple(_shorter_call(call, limit, draft) for call in artifact.calls))
    return bounded(artifact, cap, draft, at=at, handle=handle)


def _shorter_call(call: ToolCall, max_tokens: int, draft: Draft) -> ToolCall:
    """Return a call with shorter arguments, which are a JSON object if they were one."""
    if draft.counter.text(call.arguments) <= max_tokens:
        return call
    shorter = bounded_text(call.arguments, max_tokens, draft)
    # Providers parse arguments: they refuse a truncated object, but not an empty one.
    return replace(call, arguments=shorter if is_json_object(shorter) or not is_json_object(call.arguments) else "{}")


def is_json_object(text: str) -> bool:
    """Return whether a text is a JSON object."""
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):  # nested too deeply for the arguments of a tool
        return False
