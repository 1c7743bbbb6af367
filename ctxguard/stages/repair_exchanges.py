"""Repair histories that a provider would refuse because their tool calls and results do not match."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final, Literal, TypeAlias

from ctxguard.artifacts import Artifact, Kind, ToolCall
from ctxguard.draft import Draft
from ctxguard.errors import ConfigError, PairingError
from ctxguard.history import Memory, Pairing, pair
from ctxguard.history.pairing import holds_all_results, is_repeated, whole_until
from ctxguard.history.soundness import make_sound

INTERRUPTED: Final = "[no result: the call was interrupted]"
"""The text of the result that is inserted for a call without a result."""
UNCLEAR: Final = "[no result: it is not known which of several calls the results that came belong to]"
"""The text of the result that is inserted for a call if it is unclear which results belong to it."""

OnBroken = Literal["repair", "raise", "ignore"]
Copies: TypeAlias = "dict[tuple[int, object], Artifact]"
"""Changed copies of artifacts. The key is the `id()` of the original together with the change. The caller must keep the
originals alive."""


class RepairExchanges:
    """Ensures that each tool call is directly followed by its result, and that both have the same id.

    OpenAI and Anthropic refuse a whole history (status 400) for any of these faults, which are repaired as follows:

    * A call without a result gets a result that says so.
    * A result without a call, or a repeated result of the same call, is dropped.
    * A late result is moved to its call.
    * Missing ids are filled in.
    * If ids are missing or occur twice, and there are fewer results than calls, it is unclear which call each result
      answers. The results are dropped, and each of the calls gets a result that says so.
    * If a call was answered in two steps, such as "pending" first, the later result takes the place of the earlier one.

    Providers also refuse texts and arguments that cannot be sent as JSON. Each repair depends on the message alone:

    * Half of a surrogate pair, as in a text that was cut inside an emoji, is replaced with U+FFFD.
    * Arguments of a function that are not a JSON object, as when a reply ended at the output limit, are put into one,
      under the key `arguments`.

    Calls of the last exchange may still wait for results, so no results are inserted there. But if results came
    together in one message, as Anthropic, Bedrock, and Gemini require, that message is taken to be complete.

    Args:
        on_broken: `repair` repairs the faults; `raise` raises a `PairingError` that names each of them; `ignore` does
            nothing. Use it for input that contains only new messages because the provider has stored the calls.
        keep_bare: Whether to keep tool outputs that name no call. Plain transcripts have such outputs, because they
            contain no calls. In native messages of a provider, such outputs are always dropped.

    Raises:
        ConfigError: If `on_broken` has any other value.
        HistoryError: If half of a surrogate pair is in a value that cannot be changed, such as the name of a tool.
    """

    name = "RepairExchanges"

    def __init__(self, *, on_broken: OnBroken = "repair", keep_bare: bool = False) -> None:
        if on_broken not in ("repair", "raise", "ignore"):
            raise ConfigError(f"on_broken is 'repair', 'raise' or 'ignore', not {on_broken!r}", setting="on_broken")
        self.on_broken = on_broken
        self.keep_bare = keep_bare

    def __call__(self, draft: Draft, /) -> Draft:
        """Return the repaired draft.

        Raises:
            PairingError: If there is a fault and `on_broken` is `raise`.
        """
        if self.on_broken == "ignore":
            return draft
        repairing = draft.memory.of(self, lambda: _Repairing(draft.memory, keep_bare=self.keep_bare))
        repairing.take(draft)
        if self.on_broken == "repair":
            return repairing.repaired(draft)
        repairing.refuse_broken(draft)
        return draft


class _Repairing:
    """Repairs one conversation for `RepairExchanges`. Each call only processes the new end of the history.

    All messages but the last are repaired once and then do not change. If a late result arrives for a call in these
    messages, the whole history is repaired again.
    """

    def __init__(self, memory: Memory, *, keep_bare: bool) -> None:
        self._memory = memory
        self._artifacts: list[Artifact] = []
        self._unsound: dict[int, tuple[Artifact, str]] = {}
        self._nothing = _Settled(keep_bare=keep_bare)
        self._settled = self._nothing
        self._copies: Copies = {}

    def take(self, draft: Draft) -> None:
        """Make the texts and arguments of new artifacts sound."""
        for artifact in self._memory.new(draft.artifacts):
            sound, why = make_sound(artifact, len(self._artifacts))
            if sound is not artifact:
                self._memory.put(self._unsound, len(self._artifacts), (artifact, why))
            self._memory.append(self._artifacts, sound)

    def refuse_broken(self, draft: Draft) -> None:
        """Raise an error that names all faults, if there are any."""
        unsound = [f"message @ artifacts[{place}]: {why}" for place, (_, why) in self._unsound.items()]
        repair = _Repair(draft.artifacts, pair(draft.artifacts), {}, keep_bare=self._nothing.keep_bare)
        if faults := (*repair.findings(), *unsound):
            raise PairingError(faults)

    def repaired(self, draft: Draft) -> Draft:
        """Return the repaired draft."""
        known = len(self._copies)
        ended = self._repair_all()
        # Copies are found by the `id()` of their originals, which other objects may have once these are forgotten.
        for key in islice(self._copies, known, None):
            self._memory.undo(self._copies.pop, key, None)
        reasons: Mapping[int, str] = {} if ended is None else ended.reasons
        mended = None if ended is None else ended.mended
        if self._unsound:
            mended = tuple(self._artifacts) if mended is None else mended
            told = {id(was): reasons.get(id(self._artifacts[p]), why) for p, (was, why) in self._unsound.items()}
            reasons = {**reasons, **told}
        return draft if mended is None else draft.revise(mended, action="repaired", reason=reasons, cause="fault")

    def _repair_all(self) -> _Settled | None:
        """Return the whole history repaired; None if there was no fault."""
        artifacts = self._artifacts
        # Results of the last message may be incomplete; everything before that message can be settled.
        last = next((p for p in range(len(artifacts) - 1, 0, -1) if artifacts[p].kind is not Kind.TOOL), 0)
        # If the history has become shorter than what was settled, start again.
        before = self._settled if self._settled.length <= last else self._nothing
        settled = before.extend(artifacts, self._copies, end=last)
        if settled is None:  # a late result belongs to a call in the settled part
            settled = self._nothing.extend(artifacts, self._copies, end=last)
        ended = settled and settled.extend(artifacts, self._copies, end=len(artifacts), is_end=True)
        if settled is not None and ended is not None:
            known = self._settled
            if settled.length != known.length or settled.mended is not known.mended:
                self._memory.set(self, "_settled", settled)
            return None if ended.mended is None else ended
        everything = _Repair(artifacts, pair(artifacts), self._copies, keep_bare=self._nothing.keep_bare)
        return _Settled(len(artifacts), tuple(everything.mend()), everything.reasons)


@dataclass(frozen=True, slots=True)
class _Settled:
    """The repaired beginning of a history. The repair of a longer history can continue from it.

    Attributes:
        length: Number of artifacts in that beginning before the repair.
        mended: The artifacts after the repair; None if there was no fault.
        reasons: The reason for each change, by `id()` of the artifact.
        pairing: Which calls have no result yet, and the position of the latest user message in the history.
        keep_bare: See `RepairExchanges`.
    """

    length: int = 0
    mended: tuple[Artifact, ...] | None = None
    reasons: Mapping[int, str] = field(default_factory=dict)
    pairing: Pairing = field(default_factory=Pairing)
    keep_bare: bool = False

    def extend(
        self, artifacts: Sequence[Artifact], copies: Copies, *, end: int, is_end: bool = False
    ) -> _Settled | None:
        """Return the repaired beginning of `end` artifacts; None if the new ones may change what was repaired before.

        Args:
            artifacts: The whole history.
            copies: The changed copies of artifacts made so far. They are used again.
            end: Number of artifacts in the new beginning.
            is_end: Whether the history ends there. Calls of its last exchange may then have no results yet.
        """
        if self._is_sound(artifacts, end, is_end=is_end):
            mended = None if self.mended is None else (*self.mended, *artifacts[self.length : end])
            return replace(self, length=end, mended=mended, pairing=self._with_latest_turn(artifacts, end))
        begin, artifacts = self.length, artifacts[:end]
        found = pair(artifacts, begin, earlier=self.pairing, is_end=is_end)
        # A late result changes the settled part, so the caller starts again.
        if begin and any(owner < begin for owner, _ in found.owner.values()):
            return None
        if begin and found.orphans:
            return None  # an orphan may be a second result, or the result of an earlier call
        if begin and any(not artifacts[p].answers for p in found.duplicates):
            return None  # there may be earlier calls of the same tool
        repair = _Repair(artifacts, found, copies, begin, is_end=is_end, keep_bare=self.keep_bare)
        mended = (*(artifacts[:begin] if self.mended is None else self.mended), *repair.mend())
        pairing = Pairing(unanswered=found.unanswered, turn=found.turn)
        reasons = {**self.reasons, **repair.reasons}
        return _Settled(len(artifacts), mended, reasons, pairing, self.keep_bare)

    def _is_sound(self, artifacts: Sequence[Artifact], end: int, *, is_end: bool) -> bool:
        """Return whether the artifacts from `length` to `end` certainly have no fault. In doubt, return False."""
        if self.pairing.unanswered:
            return False
        whole = whole_until(artifacts, self.length, end)
        if whole is None or whole == end:
            return whole is not None
        return is_end and not holds_all_results(artifacts[end - 1])

    def _with_latest_turn(self, artifacts: Sequence[Artifact], end: int) -> Pairing:
        turns = (p for p in range(end - 1, self.length - 1, -1) if artifacts[p].kind is Kind.USER)
        return Pairing(turn=next(turns, self.pairing.turn))


class _Repair:
    """Finds and repairs the faults in a history from a position on.

    Args:
        artifacts: The history.
        found: The pairing of results and calls, from position `begin` on.
        copies: Changed copies made so far. They are reused in each call, so that later stages recognize the objects.
        begin: The position in the history at which to start.
        is_end: Whether the history ends with `artifacts`. Calls of its last exchange may then have no results yet.
        keep_bare: See `RepairExchanges`.
    """

    def __init__(
        self,
        artifacts: Sequence[Artifact],
        found: Pairing,
        copies: Copies,
        begin: int = 0,
        *,
        is_end: bool = True,
        keep_bare: bool = False,
    ) -> None:
        self.artifacts = artifacts
        self.found = found
        self.orphans = [p for p in found.orphans if not (keep_bare and _is_bare(artifacts[p]))]
        self.copies = copies
        self.begin = begin
        self.results: dict[int, list[int]] = {}
        # Grouped here, because searching the results of each call would take quadratic time.
        for position, (owner, _) in found.owner.items():
            self.results.setdefault(owner, []).append(position)
        self.open_at = self._find_open_exchange() if is_end else None
        self.dangling: dict[int, list[int]] = {}
        for position, number in found.unanswered:
            if position != self.open_at:
                self.dangling.setdefault(position, []).append(number)
        self.reasons: dict[int, str] = {}

    def _find_open_exchange(self) -> int | None:
        """Return the position of the last assistant message with calls if these may still get results; otherwise None.

        The message must be followed by nothing but its own results.
        """
        for position in range(len(self.artifacts) - 1, self.begin - 1, -1):
            # If anything else follows, calls without results were abandoned.
            owner = self.found.owner.get(position)
            if owner is None:
                return position if self.artifacts[position].calls else None
            if holds_all_results(self.artifacts[position]):
                return None
        return None

    def _misplaced_results(self) -> list[int]:
        return [p for owner, places in self.results.items() for n, p in enumerate(places, 1) if p != owner + n]

    def _positions_without_id(self) -> list[int]:
        """Return the positions of calls and results with a missing id, and of results whose id is not their call's."""
        missing = []
        for position, (owner, number) in self.found.owner.items():
            call = self.artifacts[owner].calls[number].id
            if not call or self.artifacts[position].answers != call:
                missing.append(position)
        return missing + [p for p, number in self.found.unanswered if not self.artifacts[p].calls[number].id]

    def findings(self) -> list[str]:
        """Return a line for each fault, which says what the fault is and where in the history."""
        lines = [f"call {n} @ artifacts[{p}] has no result" for p, numbers in self.dangling.items() for n in numbers]
        lines += [f"result @ artifacts[{p}] {self._why_orphan(p)}" for p in self.orphans]
        lines += [f"result @ artifacts[{p}] answers a call that has its result" for p in self.found.duplicates]
        lines += [f"result @ artifacts[{p}] does not follow its call" for p in self._misplaced_results()]
        lines += [f"id @ artifacts[{p}] is missing or differs" for p in self._positions_without_id()]
        return lines

    def _why_orphan(self, position: int) -> str:
        if is_repeated(self.artifacts[position]):
            return "the same item stands before it"
        return "may answer one of several calls" if position in self.found.unclear else "answers no call"

    def mend(self) -> list[Artifact]:
        """Return the repaired artifacts from position `begin` on, and note the reason for each change in `reasons`."""
        gone = {position: self._why_orphan(position) for position in self.orphans}
        gone |= dict.fromkeys(self.found.duplicates, "answers a call that has its result")
        later = self._later_results()
        gone |= dict.fromkeys(later, "a later result of the same call takes its place")
        self.reasons |= {id(self.artifacts[position]): why for position, why in gone.items()}
        misplaced = set(self._misplaced_results())
        mended: list[Artifact] = []
        for position, artifact in enumerate(self.artifacts[self.begin :], self.begin):
            if position in gone or position in self.found.owner:
                continue
            if not artifact.calls:
                mended.append(artifact)
                continue
            caller = self._with_ids(position)
            mended.append(caller)
            # Providers only accept results directly after their calls.
            mended += [
                self._place_result(p, caller, moved=p in misplaced, instead=later.get(p))
                for p in self.results.get(position, ())
            ]
            mended += self._stand_ins(position, caller)
        return mended

    def _with_ids(self, position: int) -> Artifact:
        artifact = self.artifacts[position]
        # If no id is missing, the object is not copied, so that its native message is sent unchanged.
        if all(call.id for call in artifact.calls):
            return artifact
        given = {
            number: self.artifacts[p].answers
            for p in self.results.get(position, ())
            for number in (self.found.owner[p][1],)
        }
        calls = tuple(
            call if call.id else replace(call, id=given.get(number) or f"call_{position}_{number}")
            for number, call in enumerate(artifact.calls)
        )
        self.reasons[id(artifact)] = "a call had no id"
        return self._copy(artifact, calls, lambda: artifact.revised(calls=calls))

    def _later_results(self) -> dict[int, int]:
        """Return the positions of results that a later result of their call replaces, and those of the later results.

        A result that says nothing, or the same, or that its call was interrupted, replaces none.
        """
        later: dict[int, int] = {}
        for position, first in self.found.duplicates.items():
            result, before = self.artifacts[position], self.artifacts[later.get(first, first)]
            is_empty = isinstance(result.content, str) and (result.text.strip() in ("", INTERRUPTED, UNCLEAR))
            if not is_empty and result.content != before.content:
                later[first] = position
        return later

    def _place_result(self, position: int, caller: Artifact, *, moved: bool, instead: int | None) -> Artifact:
        artifact = self.artifacts[position if instead is None else instead]
        call = caller.calls[self.found.owner[position][1]]
        if instead is not None:
            self.reasons[id(artifact)] = "takes the place of an earlier result of its call"
        elif moved:
            self.reasons[id(artifact)] = "came late: moved behind its call"
        if artifact.answers == call.id:
            return artifact
        self.reasons[id(artifact)] = "the result had no id of its call"
        return self._copy(artifact, call.id, lambda: artifact.revised(answers=call.id))

    def _stand_ins(self, position: int, caller: Artifact) -> list[Artifact]:
        if position == self.open_at:
            return []
        stand_ins = []
        for number in self.dangling.get(position, ()):
            is_doubtful = (position, number) in self.found.doubtful
            stand_ins.append(self._stand_in(caller, number, UNCLEAR if is_doubtful else INTERRUPTED))
            why = "it is not clear which result is the call's" if is_doubtful else "the call had no result"
            self.reasons[id(stand_ins[-1])] = why
        return stand_ins

    def _stand_in(self, caller: Artifact, number: int, text: str) -> Artifact:
        return self._copy(caller, (number, caller.calls[number].id, text), lambda: stand_in(caller.calls[number], text))

    def _copy(self, artifact: Artifact, what: object, make: Callable[[], Artifact]) -> Artifact:
        # Each call returns the same copy, because later stages would take another object for a change.
        known = self.copies.get((id(artifact), what))
        if known is None:
            known = self.copies[id(artifact), what] = make()
        return known


def _is_bare(result: Artifact) -> bool:
    """Return whether a tool output names no call and is from a plain transcript rather than from a native message."""
    source = result.source
    return not result.answers and (source is None or (isinstance(source, Mapping) and "role" not in source))


def stand_in(call: ToolCall, text: str = INTERRUPTED) -> Artifact:
    """Return a tool result that takes the place of the missing result of a call."""
    return Artifact(Kind.TOOL, text, answers=call.id, name=call.name)
