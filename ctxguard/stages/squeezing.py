"""Squeeze a window: make what must stay smaller, text by text, where it does not fit as it is."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final

from ctxguard.artifacts import Artifact, Kind, ToolCall
from ctxguard.draft import Draft
from ctxguard.history import RECALLED, record_title
from ctxguard.stages.bound_tool_output import bounded, bounded_text
from ctxguard.stages.window_state import Deferred, Ledger, WindowState

_FLOORS: Final = (64, 24, 8)
"""Tokens that texts are squeezed down to, step by step."""
_NAMED: Final = re.compile(r"(?:;| -) full text: handle (\w+)")
"""How markers name a handle: those of `ctxguard.content.views.note` and digests, and those of tables."""


@dataclass(frozen=True, slots=True)
class Squeezer:
    """Make texts smaller: tool outputs first, then what the model said, then what people said, the last never.

    Attributes:
        ledger: what the exchanges cost.
        bounds_people: whether the task and the last user message may be bounded where nothing else helps.
        handle: stores a text in full and returns its handle; None where there is no store. What a person said is
            nowhere else to be had, so its marker names the handle.
    """

    ledger: Ledger
    bounds_people: bool = False
    handle: Callable[[str], str] | None = None

    def squeezed(self, state: WindowState, number: int) -> WindowState:
        """Return a window that is too large with texts made smaller, until it fits or nothing is left to give.

        `number` is the exchange at which is cut.
        """
        ledger, history = self.ledger, self.ledger.history
        kept = [p for n in state.numbers() if not ledger.stays(n) for p in ledger.positions(n)]
        last = history.last_asked(number + 1)
        last_user = None if last is None else history.start(last)
        kinds = {p: history.artifacts[p].kind for p in kept}
        tools = [p for p in kept if kinds[p] is Kind.TOOL]
        spoken = [p for p in kept if kinds[p] is Kind.ASSISTANT]
        asked = [p for p in kept if kinds[p] is Kind.USER and p != last_user]
        # Tool outputs first: they are large, and the model can ask for them again.
        state = self._shrunk(state, tools, _FLOORS[:2])
        # Then the trail and records. What people and the model said is worth more than a list of what is gone.
        state = self._without_note(state)
        state = self._without(state, self._records(state, number))
        state = self._without(state, self._openers(state, number, only_media=True))
        # Only now what was said, the model before people; each once more down to the lowest floor.
        for group in (spoken, asked, tools):
            state = self._shrunk(state, group, _FLOORS)
        state = self._without(state, self._openers(state, number, only_media=False))
        if not self.bounds_people:
            return state
        people = [p for p in (last_user, None if ledger.task is None else history.start(ledger.task)) if p is not None]
        return self._shrunk(state, list(dict.fromkeys(people)), _FLOORS)

    def _without_note(self, state: WindowState) -> WindowState:
        if state.note is None or state.total <= self.ledger.limit(state):
            return state
        return replace(state, note=None, tokens=state.tokens - state.note.tokens)

    def _without(self, state: WindowState, numbers: Iterable[int]) -> WindowState:
        """Return the state without exchanges that may leave where nothing else helps."""
        for number in numbers:
            if state.total > self.ledger.limit(state):
                state = self.ledger.with_kept(state, (n for n in state.kept if n != number))
        return state

    def _records(self, state: WindowState, number: int) -> list[int]:
        history = self.ledger.history
        stay = (number, history.last_user(number + 1))
        may_leave = (n for n in state.kept if n not in stay and not self.ledger.stays(n))
        return [n for n in may_leave if record_title(history.members(n)[0]) not in (None, RECALLED)]

    def _openers(self, state: WindowState, number: int, *, only_media: bool) -> list[int]:
        """Return the message that opened the turn of what is kept, where the task starts the context without it."""
        history, ledger = self.ledger.history, self.ledger
        first = next((n for n in state.kept if not ledger.stays(n)), number)
        if not history.spans[first].is_asked or first == history.last_asked(number + 1) or ledger.task is None:
            return []
        if first in history.latest_messages(ledger.draft.keep_recent, number + 1):
            return []
        return [] if only_media and not _holds_media(history.members(first)[0]) else [first]

    def _shrunk(self, state: WindowState, positions: list[int], floors: Iterable[int]) -> WindowState:
        for floor in floors:
            excess = state.total - self.ledger.limit(state)
            if excess > 0:
                state = self._capped(state, positions, excess, floor)
        return state

    def _capped(self, state: WindowState, positions: list[int], excess: int, floor: int) -> WindowState:
        """Return the state with texts cut to one size, so that they take `excess` tokens less if they can."""
        draft, history = self.ledger.draft, self.ledger.history
        count = draft.counter.artifact
        now = {p: self.ledger.artifact(state, p) for p in positions if not history.artifacts[p].pinned}
        sizes = {p: count(artifact) for p, artifact in now.items()}
        # What digests may take at most counts as saved where they take less.
        counted = {p: state.shortened[p].tokens if p in state.shortened else size for p, size in sizes.items()}
        # One size for all, so that a few huge texts give way before many small ones do.
        cap = water_level(sizes.values(), sum(sizes.values()) - excess, floor)
        shortened, saved = dict(state.shortened), dict.fromkeys(now, 0)
        for position, size in sizes.items():
            if size > cap:
                whole, handle = self._with_handle(now[position], history.artifacts[position])
                most = min(cap, count(whole) - 1)  # so that a marker is written, which names the handle
                smaller = squeezed_to(whole, most, draft, is_open=self._is_open(position), handle=handle)
                tokens = count(smaller)
                if tokens < size:
                    shortened[position] = Deferred.of(smaller, tokens)
                    saved[position] = counted[position] - tokens
        task = None if self.ledger.task is None else history.start(self.ledger.task)
        # The task is accounted for among what never leaves.
        fixed = saved.pop(task, 0) if task is not None else 0
        tokens = state.tokens - sum(saved.values())
        return replace(state, shortened=shortened, fixed=state.fixed - fixed, tokens=tokens)

    def _with_handle(self, now: Artifact, was: Artifact) -> tuple[Artifact, str | None]:
        """Return what is squeezed, and the handle that its marker names: the one that an earlier marker named already.

        That one is taken out of the text, which a squeeze may cut in the middle of a handle.
        """
        if self.handle is None:
            return now, None
        if was.kind is Kind.TOOL and isinstance(now.content, str):
            named = _NAMED.search(now.content)
            return (now, None) if named is None else (now.revised(content=_NAMED.sub("", now.content)), named[1])
        is_said = was.kind is Kind.USER and record_title(was) is None and was.text
        return now, self.handle(was.text) if is_said else None

    def _is_open(self, position: int) -> bool:
        """Return whether the calls of an artifact still wait for results; such arguments are never touched."""
        artifacts = self.ledger.history.artifacts
        calls = artifacts[position].calls
        # A tool may be running with these very arguments.
        following = artifacts[position + 1 : position + 1 + len(calls)]
        return bool(calls) and sum(a.kind is Kind.TOOL for a in following) < len(calls)


def _holds_media(artifact: Artifact) -> bool:
    return not isinstance(artifact.content, str) and any(part.tokens is not None for part in artifact.content)


def water_level(tokens: Iterable[int], room: int, floor: int) -> int:
    """Return the largest cap, `floor` at least, under which capped sizes add up to at most `room`."""
    sizes = sorted(tokens)
    for number, size in enumerate(sizes):
        share = room // (len(sizes) - number)
        if size > share:
            return max(floor, share)
        room -= size
    return max(floor, sizes[-1] if sizes else floor)


def squeezed_to(artifact: Artifact, cap: int, draft: Draft, *, is_open: bool, handle: str | None = None) -> Artifact:
    """Return an artifact of at most `cap` tokens, as far as its content and then its arguments can give."""
    squeezed = bounded(artifact, cap, draft, handle=handle)
    count = draft.counter
    if is_open or count.artifact(squeezed) <= cap:
        return squeezed
    excess = count.artifact(squeezed) - cap
    calls = []
    for call in squeezed.calls:
        room = count.text(call.arguments)
        shorter = _shorter_call(call, max(4, room - excess), draft)
        excess -= room - count.text(shorter.arguments)
        calls.append(shorter)
    return squeezed.revised(calls=tuple(calls)) if squeezed.calls else squeezed


def _shorter_call(call: ToolCall, max_tokens: int, draft: Draft) -> ToolCall:
    """Return a call with shorter arguments that are still a JSON object, if they were one."""
    if draft.counter.text(call.arguments) <= max_tokens:
        return call
    shorter = bounded_text(call.arguments, max_tokens, draft)
    # Providers parse arguments: a truncated object would be refused, an empty one is not.
    return replace(call, arguments=shorter if is_json_object(shorter) or not is_json_object(call.arguments) else "{}")


def is_json_object(text: str) -> bool:
    """Return whether a text is a JSON object."""
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):  # nested too deep to be one that a tool takes
        return False
