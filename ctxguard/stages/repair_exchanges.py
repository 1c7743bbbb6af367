"""Mend what a provider would refuse: dangling calls, orphan and duplicate results, late results, missing ids."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from operator import is_
from typing import Final, Literal

from ctxguard.artifacts import Artifact, Kind, Pairing, ToolCall, pair, whole_until
from ctxguard.draft import Draft
from ctxguard.errors import ConfigError, PairingError
from ctxguard.prefix_memory import PrefixMemory, Remembered

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
        keep_bare: keep tool outputs that name no call, unless they come from a provider's messages: plain transcripts
            have no calls to pair with.

    Raises:
        ConfigError: `on_broken` is none of these.
    """

    name = "RepairExchanges"

    def __init__(self, *, on_broken: OnBroken = "repair", keep_bare: bool = False) -> None:
        if on_broken not in ("repair", "raise", "ignore"):
            raise ConfigError(f"on_broken is 'repair', 'raise' or 'ignore', not {on_broken!r}", setting="on_broken")
        self.on_broken = on_broken
        self.keep_bare = keep_bare
        self._well_formed: PrefixMemory[None] = PrefixMemory()
        self._mended: PrefixMemory[_Settled] = PrefixMemory()

    def __call__(self, draft: Draft, /) -> Draft:
        """Return the new draft."""
        if self.on_broken == "ignore":
            return draft
        found = self._mended.find(draft.artifacts, begins_with=draft.begins_with)
        if found is None and self._is_well_formed(draft):
            return draft
        if self.on_broken == "raise":
            _refuse_broken(draft.artifacts, keep_bare=self.keep_bare)
            return draft
        return self._repaired(draft, found)

    def _is_well_formed(self, draft: Draft) -> bool:
        """Tell at a glance that every call is followed by its results, all with ids; False may be wrong, True not."""
        artifacts = draft.artifacts
        found = self._well_formed.find(artifacts, begins_with=draft.begins_with)
        whole = whole_until(artifacts, found.length if found else 0)
        if whole is not None and not (found and found.length == whole):
            self._well_formed.keep(artifacts, None, length=whole, after=found)
        return whole is not None

    def _repaired(self, draft: Draft, found: Remembered[_Settled] | None) -> Draft:
        """Mend what is new since the last call of the session, and all where a result came late."""
        artifacts = draft.artifacts
        last = next((p for p in range(len(artifacts) - 1, 0, -1) if artifacts[p].kind is not Kind.TOOL), 0)
        before = found.value if found and found.length <= last else _Settled(keep_bare=self.keep_bare)
        settled = before.followed(artifacts[:last])
        if settled is None:
            before = _Settled(keep_bare=self.keep_bare)
            settled = before.followed(artifacts[:last])
        ended = settled and settled.followed(artifacts, is_end=True)
        if settled is None or ended is None:
            everything = _Repair(artifacts, pair(artifacts), keep_bare=self.keep_bare)
            return draft.revise(everything.mend(), action="repaired", reason=everything.reasons)
        self._mended.keep(artifacts, replace(settled, result=ended.mended), length=last, after=found)
        begins_with = before.result if ended.goes_on_from(before) else ()
        return draft.revise(ended.mended, action="repaired", reason=ended.reasons, begins_with=begins_with)


def _refuse_broken(artifacts: tuple[Artifact, ...], *, keep_bare: bool) -> None:
    repair = _Repair(artifacts, pair(artifacts), keep_bare=keep_bare)
    faults = tuple(repair.findings())
    if faults:
        raise PairingError(faults)


@dataclass(frozen=True, slots=True)
class _Settled:
    """Hold what became of the beginning of a history: what follows changes nothing in it, unless a result comes late.

    Attributes:
        length: how many artifacts it had.
        mended: those that it became.
        reasons: why, by `id()`.
        pairing: what of it is still unanswered, and where its last turn began.
        result: the whole mended history of the call that settled it.
        keep_bare: as for `RepairExchanges`.
    """

    length: int = 0
    mended: tuple[Artifact, ...] = ()
    reasons: Mapping[int, str] = field(default_factory=dict)
    pairing: Pairing = field(default_factory=Pairing)
    result: tuple[Artifact, ...] = ()
    keep_bare: bool = False

    def followed(self, artifacts: tuple[Artifact, ...], *, is_end: bool = False) -> _Settled | None:
        """Return what the beginning and what follows it become; None where that may change the beginning.

        Args:
            artifacts: the beginning and what follows it.
            is_end: whether the history ends there, so that its last exchange may stay open.
        """
        begin = self.length
        found = pair(artifacts, begin, earlier=self.pairing)
        if begin and any(owner < begin for owner, _ in found.owner.values()):
            return None
        if begin and any(artifacts[p].answers is not None for p in found.orphans):
            return None  # it may be a second result
        repair = _Repair(artifacts, found, begin, is_end=is_end, keep_bare=self.keep_bare)
        mended = self.mended + tuple(repair.mend())
        pairing = Pairing(unanswered=found.unanswered, turn=found.turn)
        reasons = {**self.reasons, **repair.reasons}
        return _Settled(len(artifacts), mended, reasons, pairing, keep_bare=self.keep_bare)

    def goes_on_from(self, before: _Settled) -> bool:
        """Tell whether what an earlier call's history became stands at the beginning of this."""
        shared = len(before.mended)
        earlier, now = before.result[shared:], self.mended[shared:]
        return len(earlier) <= len(now) and all(map(is_, earlier, now))


class _Repair:
    """Work out what a history becomes, from a position on."""

    def __init__(
        self,
        artifacts: tuple[Artifact, ...],
        found: Pairing,
        begin: int = 0,
        *,
        is_end: bool = True,
        keep_bare: bool = False,
    ) -> None:
        self.artifacts = artifacts
        self.found = found
        self.orphans = [p for p in found.orphans if not (keep_bare and _is_bare(artifacts[p]))]
        self.begin = begin
        self.results: dict[int, list[int]] = {}
        for position, (owner, _) in found.owner.items():
            self.results.setdefault(owner, []).append(position)
        self.open_at = self._open_exchange() if is_end else None
        self.dangling: dict[int, list[int]] = {}
        for position, number in found.unanswered:
            if position != self.open_at:
                self.dangling.setdefault(position, []).append(number)
        self.reasons: dict[int, str] = {}

    def _open_exchange(self) -> int | None:
        """Return the position of the calling artifact that nothing but its own results follows."""
        for position in range(len(self.artifacts) - 1, self.begin - 1, -1):
            owner = self.found.owner.get(position)
            if owner is None:
                return position if self.artifacts[position].calls else None
        return None

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
        lines += [f"result @ artifacts[{p}] answers no call" for p in self.orphans]
        lines += [f"result @ artifacts[{p}] answers a call that has its result" for p in self.found.duplicates]
        lines += [f"result @ artifacts[{p}] does not follow its call" for p in self._misplaced()]
        lines += [f"id @ artifacts[{p}] is missing or differs" for p in self._nameless()]
        return lines

    def mend(self) -> list[Artifact]:
        gone = dict.fromkeys(self.orphans, "answers no call")
        gone |= dict.fromkeys(self.found.duplicates, "answers a call that has its result")
        self.reasons |= {id(self.artifacts[position]): why for position, why in gone.items()}
        misplaced = set(self._misplaced())
        mended: list[Artifact] = []
        for position, artifact in enumerate(self.artifacts[self.begin :], self.begin):
            if position in gone or position in self.found.owner:
                continue
            if not artifact.calls:
                mended.append(artifact)
                continue
            caller = self._with_ids(position)
            mended.append(caller)
            mended += [self._result(p, caller, moved=p in misplaced) for p in self.results.get(position, ())]
            mended += self._stand_ins(position, caller)
        return mended

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


def _is_bare(result: Artifact) -> bool:
    """Tell a tool output of a plain transcript from a provider's message that lacks its id."""
    source = result.source
    return result.answers is None and (source is None or (isinstance(source, Mapping) and "role" not in source))


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
