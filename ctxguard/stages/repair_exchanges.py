"""Mend what a provider would refuse: dangling calls, orphan and duplicate results, late results, missing ids."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final, Literal

from ctxguard.artifacts import Artifact, Kind, Pairing, ToolCall, pair, whole_until
from ctxguard.draft import Draft
from ctxguard.errors import ConfigError, PairingError
from ctxguard.prefix_memory import PrefixMemory

__all__ = ["INTERRUPTED", "RepairExchanges"]

INTERRUPTED: Final = "[no result: the call was interrupted]"
"""What stands for the result of a call that never got one."""

OnBroken = Literal["repair", "raise", "ignore"]


class RepairExchanges:
    """Pair every call with its result, right behind it, both with an id.

    A dangling call gets a result that says so, a result without a call is dropped, a second result of the same call
    too; a result that came late moves up behind its call; missing ids are filled in. The last exchange may stay open.
    OpenAI and Anthropic refuse a whole history for any one of these (400).

    Args:
        on_broken: `repair`; `raise` a `PairingError` that names each fault; or `ignore` (incremental input whose calls
            are on the provider's side).

    Raises:
        ConfigError: `on_broken` is none of these.
    """

    name = "RepairExchanges"

    def __init__(self, *, on_broken: OnBroken = "repair") -> None:
        if on_broken not in ("repair", "raise", "ignore"):
            raise ConfigError(f"on_broken is 'repair', 'raise' or 'ignore', not {on_broken!r}", setting="on_broken")
        self.on_broken = on_broken
        self._well_formed: PrefixMemory[None] = PrefixMemory()

    def __call__(self, draft: Draft, /) -> Draft:
        """Return the new draft."""
        artifacts = draft.artifacts
        if self.on_broken == "ignore" or self._is_well_formed(draft):
            return draft
        found = pair(artifacts)
        repair = _Repair(artifacts, found)
        if not repair.needed():
            return draft
        if self.on_broken == "raise":
            raise PairingError(tuple(repair.findings()))
        mended, reasons = repair.mend()
        return draft.revise(mended, action="repaired", reason=reasons)

    def _is_well_formed(self, draft: Draft) -> bool:
        """Tell at a glance that every call is followed by its results, all with ids; False may be wrong, True not."""
        artifacts = draft.artifacts
        found = self._well_formed.find(artifacts, begins_with=draft.begins_with)
        whole = whole_until(artifacts, found.length if found else 0)
        if whole is not None and not (found and found.length == whole):
            self._well_formed.keep(artifacts, None, length=whole, after=found)
        return whole is not None


class _Repair:
    """Work out the mended history of one draft."""

    def __init__(self, artifacts: tuple[Artifact, ...], found: Pairing) -> None:
        self.artifacts = artifacts
        self.found = found
        self.results: dict[int, list[int]] = {}
        for position, (owner, _) in found.owner.items():
            self.results.setdefault(owner, []).append(position)
        self.open_at = self._open_exchange()
        self.dangling: dict[int, list[int]] = {}
        for position, number in found.unanswered:
            if position != self.open_at:
                self.dangling.setdefault(position, []).append(number)
        self.reasons: dict[int, str] = {}

    def _open_exchange(self) -> int | None:
        """Return the position of the calling artifact that nothing but its own results follows."""
        for position in range(len(self.artifacts) - 1, -1, -1):
            owner = self.found.owner.get(position)
            if owner is None:
                return position if self.artifacts[position].calls else None
        return None

    def needed(self) -> bool:
        found = self.found
        return bool(found.orphans or found.duplicates or self.dangling or self._misplaced() or self._nameless())

    def _misplaced(self) -> list[int]:
        return [p for owner, places in self.results.items() for n, p in enumerate(places, 1) if p != owner + n]

    def _nameless(self) -> list[int]:
        """Return positions of calls and results where an id is missing, or differs between the two."""
        missing = []
        for position, (owner, number) in self.found.owner.items():
            call = self.artifacts[owner].calls[number].id
            if call is None or self.artifacts[position].answers != call:
                missing.append(position)
        return missing + [p for p, number in self.found.unanswered if self.artifacts[p].calls[number].id is None]

    def findings(self) -> list[str]:
        lines = [f"call {n} @ artifacts[{p}] has no result" for p, numbers in self.dangling.items() for n in numbers]
        lines += [f"result @ artifacts[{p}] answers no call" for p in self.found.orphans]
        lines += [f"result @ artifacts[{p}] answers a call that has its result" for p in self.found.duplicates]
        lines += [f"result @ artifacts[{p}] does not follow its call" for p in self._misplaced()]
        lines += [f"id @ artifacts[{p}] is missing or differs" for p in self._nameless()]
        return lines

    def mend(self) -> tuple[list[Artifact], dict[int, str]]:
        gone = dict.fromkeys(self.found.orphans, "answers no call")
        gone |= dict.fromkeys(self.found.duplicates, "answers a call that has its result")
        self.reasons |= {id(self.artifacts[position]): why for position, why in gone.items()}
        misplaced = set(self._misplaced())
        mended: list[Artifact] = []
        for position, artifact in enumerate(self.artifacts):
            if position in gone or position in self.found.owner:
                continue
            if not artifact.calls:
                mended.append(artifact)
                continue
            caller = self._with_ids(position)
            mended.append(caller)
            mended += [self._result(p, caller, moved=p in misplaced) for p in self.results.get(position, ())]
            mended += self._stand_ins(position, caller)
        return mended, self.reasons

    def _with_ids(self, position: int) -> Artifact:
        artifact = self.artifacts[position]
        if all(call.id is not None for call in artifact.calls):
            return artifact
        given = {
            number: self.artifacts[p].answers
            for p in self.results.get(position, ())
            for number in (self.found.owner[p][1],)
        }
        calls = tuple(
            call if call.id is not None else replace(call, id=given.get(number) or f"call_{position}_{number}")
            for number, call in enumerate(artifact.calls)
        )
        self.reasons[id(artifact)] = "a call had no id"
        return _remembered(artifact, calls, lambda: artifact.revised(calls=calls))

    def _result(self, position: int, caller: Artifact, *, moved: bool) -> Artifact:
        artifact = self.artifacts[position]
        call = caller.calls[self.found.owner[position][1]]
        if moved:
            self.reasons[id(artifact)] = "came late: moved behind its call"
        if artifact.answers == call.id:
            return artifact
        self.reasons[id(artifact)] = "the result had no id of its call"
        return _remembered(artifact, call.id, lambda: artifact.revised(answers=call.id))

    def _stand_ins(self, position: int, caller: Artifact) -> list[Artifact]:
        if position == self.open_at:
            return []
        stand_ins = [_remembered_stand_in(caller, number) for number in self.dangling.get(position, ())]
        for artifact in stand_ins:
            self.reasons[id(artifact)] = "the call had no result"
        return stand_ins


def _remembered(artifact: Artifact, what: object, make: Callable[[], Artifact]) -> Artifact:
    """Return the same copy at every call, so that the stages behind this one know it again."""
    key = (RepairExchanges, what)
    known = artifact.memo.get(key)
    if known is None:
        known = make()
        artifact.memo.keep(key, known)
    return known  # type: ignore[return-value]  # only artifacts stand under such a key


def _remembered_stand_in(caller: Artifact, number: int) -> Artifact:
    call = caller.calls[number]
    return _remembered(caller, (number, call.id), lambda: stand_in(call))


def stand_in(call: ToolCall) -> Artifact:
    """Return the result that stands for one that never came."""
    return Artifact(Kind.TOOL, INTERRUPTED, answers=call.id, name=call.name)
