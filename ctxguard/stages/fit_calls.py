"""Give tool calls ids that the provider accepts, and drop halves of the provider's own calls."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import ClassVar, Final

from ctxguard.artifacts import BY_POSITION, Artifact, Kind, Part, ToolCall
from ctxguard.draft import Draft
from ctxguard.history.pairing import CallIds, lone_halves

_NOTHING: Final = Part("text", "")
_KEPT: Final = 40
"""Number of characters of an id that are kept if a number is added to it."""


@dataclass(frozen=True, slots=True)
class FitCalls:
    """Makes the calls of a context acceptable to its provider, whatever an earlier provider or a gateway wrote.

    * An id that the provider refuses is replaced in the call and in its result. So is an id that an earlier call
      already has, as gateways write that restart at `call_0` with each answer.
    * A call that the provider itself executes, such as a web search, and its result only stay together. A half alone is
      dropped, except for a call at the end, which the provider continues.

    New ids depend on the earlier part of the context alone, so the prompt keeps its prefix. All entry points of the
    adapters append this stage to the chain.

    Attributes:
        ids: The ids that the provider accepts.
    """

    ids: CallIds = field(default_factory=CallIds)
    name: ClassVar[str] = "FitCalls"

    def __call__(self, draft: Draft, /) -> Draft:
        """Return the draft with acceptable calls; the draft itself if nothing had to change."""
        lone = lone_halves(draft.artifacts)
        halved = [_without(a, lone[n]) if n in lone else a for n, a in enumerate(draft.artifacts)] if lone else None
        if halved is not None:
            draft = draft.revise(halved, action="repaired", reason="half of a call that the provider executes")
        return draft.revise(_Renaming(self.ids).all(draft), action="repaired", reason="the provider refuses its id")


def _without(artifact: Artifact, numbers: Collection[int]) -> Artifact:
    """Return a copy of an artifact in which the parts with these indexes are empty texts."""
    return artifact.revised(content=tuple(_NOTHING if n in numbers else p for n, p in enumerate(artifact.content)))  # type: ignore[misc]


class _Renaming:
    """Renames the calls of one context in order."""

    def __init__(self, ids: CallIds) -> None:
        self._ids = ids
        self._is_valid = re.compile(ids.pattern or r"(?s:.+)").fullmatch
        self._used: set[str] = set()
        self._numbers: dict[str, int] = {}
        self._open: dict[str | None, deque[str | None]] = {}

    def all(self, draft: Draft) -> list[Artifact]:
        return [self._caller(a) if a.calls else self._result(a) for a in draft.artifacts]

    def _caller(self, artifact: Artifact) -> Artifact:
        if not self._ids.are_unique:
            self._used.clear()
        self._open = {}
        # calls that only the provider's server has keep their ids, by which the server knows them
        is_fixed = artifact.source == ()
        calls = tuple([self._call(call, is_fixed=is_fixed) for call in artifact.calls])
        return artifact if calls == artifact.calls else artifact.revised(calls=calls)

    def _call(self, call: ToolCall, *, is_fixed: bool) -> ToolCall:
        is_kept = is_fixed or not call.id or call.id == BY_POSITION
        new = call.id if is_kept else self._new_id(str(call.id))
        if is_fixed and call.id:
            self._used.add(call.id)
        self._open.setdefault(call.id, deque()).append(new)
        return call if new == call.id else replace(call, id=new)

    def _new_id(self, given: str) -> str:
        new = given
        if not self._is_valid(given):
            new = f"call_{sha256(given.encode()).hexdigest()[:16]}"  # without its text, which may be anything
        if new in self._used:
            base = new[:_KEPT]
            number = self._numbers.get(base, 1)
            while new in self._used:
                number += 1
                new = f"{base}_{number}"
            self._numbers[base] = number
        self._used.add(new)
        return new

    def _result(self, artifact: Artifact) -> Artifact:
        if artifact.kind is not Kind.TOOL or not artifact.answers:
            return artifact
        waiting = self._open.get(artifact.answers)
        new = waiting.popleft() if waiting else artifact.answers
        return artifact if new == artifact.answers else artifact.revised(answers=new)
