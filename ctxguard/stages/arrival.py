"""The stages that read each message once, when it arrives: repair its calls, end its lifetime, drop its old thinking.

A history with calls or results that do not match is refused by providers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING, ClassVar, Final, Literal, TypeAlias

from ctxguard.artifacts import Artifact, Kind, Lifetime, Part, ToolCall
from ctxguard.draft import Action, Change, Draft
from ctxguard.errors import ConfigError, PairingError
from ctxguard.history import Exchange, Memory, Pairing, exchanges, is_asked, pair
from ctxguard.history.pairing import holds_all_results, is_repeated, make_sound, whole_until

if TYPE_CHECKING:
    from ctxguard.draft import Draft


class ChangedOnce:
    """Calls a function once for each artifact of a growing history, in order, and remembers the results.

    Args:
        change: Function that returns the artifact itself or a changed copy. The result may depend on earlier artifacts,
            but never on later ones.
        action: What was done to changed artifacts, for the report.
        reason: Why artifacts were changed, for the report: one string for all, or a mapping by `id()` of the original
            artifact.
    """

    def __init__(
        self, change: Callable[[Artifact], Artifact], *, action: Action, reason: str | Mapping[int, str]
    ) -> None:
        self._change = change
        self._action: Action = action
        self._reason = reason
        self._results: list[Artifact] = []
        self._is_changed = False

    def revised(self, draft: Draft) -> Draft:
        """Return the draft with the changed artifacts; the draft itself if none was changed."""
        memory = draft.memory
        for artifact in memory.new(draft.artifacts):
            result = self._change(artifact)
            memory.append(self._results, result)
            if result is not artifact and not self._is_changed:
                memory.set(self, "_is_changed", value=True)
        if not self._is_changed:
            return draft
        return draft.changed(Change(draft.artifacts, tuple(self._results), self._action, self._reason))


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
            repairs = {id(was): reasons.get(id(self._artifacts[p]), why) for p, (was, why) in self._unsound.items()}
            reasons = {**reasons, **repairs}
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
            return "a duplicate of an earlier item"
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


class ExpireLifetimes:
    """Drops each exchange that contains an artifact whose lifetime has ended.

    A lifetime with `until` ends when a later artifact lists that name in its `events`, or when a later exchange has a
    result of the tool with that name. For example, `{"snapshot": Lifetime(until="snapshot")}` keeps only the latest
    snapshot. Pinned artifacts never expire, and neither does an open exchange, whose tool calls have no results yet.

    Args:
        rules: Lifetimes of artifacts that have no lifetime of their own, by name of the tool or by kind (such as
            `"tool"`). The name of a tool takes precedence over the kind.

    Raises:
        ConfigError: If `rules` is not a mapping, or a value in it is not a `Lifetime`.
    """

    name = "ExpireLifetimes"

    def __init__(self, rules: Mapping[str, Lifetime] | None = None) -> None:
        self.rules = _parse_rules({} if rules is None else rules)

    def __call__(self, draft: Draft, /) -> Draft:
        """Return the draft without expired exchanges."""
        if not self.rules and not any(map(attrgetter("lifetime"), draft.artifacts)):
            return draft
        ages = _ages(draft.artifacts)
        found = exchanges(draft.artifacts)
        last_seen = {event: position for position, one in enumerate(draft.artifacts) for event in one.events}
        last_results = _last_results(found)
        expired: dict[int, str] = {}
        for exchange in found:
            why = self._why_expired(exchange, ages, last_seen, last_results)
            # An open exchange still waits for results, which could not be sent without their calls.
            if why and not exchange.open:
                expired.update((id(artifact), why) for artifact in exchange.artifacts)
        left = (a for a in draft.artifacts if id(a) not in expired)
        return draft.revise(left, reason=expired, cause="lifetime")

    def _why_expired(
        self, exchange: Exchange, ages: list[int], last_seen: Mapping[str, int], last_results: Mapping[str, int]
    ) -> str:
        for artifact, position in zip(exchange.artifacts, exchange.positions, strict=True):
            lifetime = artifact.lifetime or self._by_rule(artifact, exchange)
            # A pin takes precedence over a lifetime.
            if lifetime is None or artifact.pinned:
                continue
            if lifetime.turns is not None and ages[position] >= lifetime.turns:
                return f"lived {lifetime.turns} turns"
            if lifetime.until is None:
                continue
            if (
                # Parallel results in one exchange are equally new, so positions of exchanges are compared.
                last_seen.get(lifetime.until, -1) > position
                or last_results.get(lifetime.until, -1) > exchange.positions[0]
            ):
                return f"lived until {lifetime.until!r}"
        return ""

    def _by_rule(self, artifact: Artifact, exchange: Exchange) -> Lifetime | None:
        if not self.rules:
            return None
        if artifact.kind is Kind.TOOL:
            name = _tool_of(artifact, exchange)
            # The name comes first, because it is more specific than the kind.
            if name in self.rules:
                return self.rules[name]
        return self.rules.get(artifact.kind.value)


def _parse_rules(rules: object) -> dict[str, Lifetime]:
    if not isinstance(rules, Mapping):
        raise _config_error(rules, "dict")
    for lifetime in rules.values():
        if not isinstance(lifetime, Lifetime):
            raise _config_error(lifetime, "Lifetime")
    return dict(rules)


def _config_error(given: object, expected: str) -> ConfigError:
    example = "{'search': Lifetime(turns=2)}"
    return ConfigError(f"lifetimes are a dict such as {example}; {given!r} is not a {expected}", setting="lifetimes")


def _ages(artifacts: tuple[Artifact, ...]) -> list[int]:
    """Return for each artifact how many turns have begun after it. Messages that stages wrote begin no turn."""
    total = 0
    turns = []
    for artifact in artifacts:
        total += is_asked(artifact)
        turns.append(total)
    return [total - turn for turn in turns]


def _last_results(found: Sequence[Exchange]) -> dict[str, int]:
    """Return for each tool the position in the history at which the exchange with the tool's latest result begins."""
    return {
        name: exchange.positions[0]
        for exchange in found
        for artifact in exchange.artifacts
        if artifact.kind is Kind.TOOL and (name := _tool_of(artifact, exchange))
    }


def _tool_of(result: Artifact, exchange: Exchange) -> str | None:
    return result.name or {call.id: call.name for call in exchange.artifacts[0].calls}.get(result.answers)


_CUT: Final = "its thinking belongs to a prompt from before a cut"
_BLANK: Final = Part("reasoning", "", signed=True)
_AT_ARRIVAL: Final = ("fault", "order")
"""Causes for which an artifact is changed only when it arrives. When later thinking was signed, the prompt already had
these changes."""


@dataclass(frozen=True, slots=True)
class DropStaleThinking:
    """Drops signed thinking that was written before the latest cut.

    Anthropic's models of 2026 sign each thinking block together with everything before it, and refuse the block in
    another prompt ("Invalid signature in thinking block. The block is bound to a different conversation"). Thinking
    that was written after the latest cut was signed with the current prompt, so it stays. Texts that were masked or
    shortened when they first appeared were sent so from the beginning and do not matter. If another stage drops or adds
    artifacts, it is unknown since which call, so all thinking that may be affected is dropped. Thinking from before the
    provider refused a prompt as too long (`Stabilizer.tighten`) is dropped as well.

    Adapters mark signed thinking by `Part.signed`. This stage replaces it with blank parts, which the adapters leave
    out. All entry points of the adapters append this stage to the chain if a history contains signed thinking.

    Attributes:
        everything: Whether to drop all signed thinking, because it is unknown with which prompt it was signed.
    """

    everything: bool = False
    name: ClassVar[str] = "DropStaleThinking"

    def __call__(self, draft: Draft, /) -> Draft:
        """Return the draft with stale thinking dropped; the draft itself if there is none."""
        if not any(_is_signed(artifact) for artifact in draft.artifacts):
            return draft
        reasons = {key: _reason(change) for change in draft.changes for key in _stale(draft, change)}
        stale = reasons.keys() | _before_late_task(draft) | _before_overflow(draft)
        if self.everything:
            stale = {id(artifact.root) for artifact in draft.artifacts}
        artifacts = [_without_thinking(a) if id(a.root) in stale else a for a in draft.artifacts]
        named = {id(a): reasons[id(a.root)] for a in draft.artifacts if id(a.root) in reasons}
        return draft.revise(artifacts, action="bounded", reason=named, otherwise=_CUT)


def _reason(change: Change) -> str:
    """Return why thinking is dropped because of a change, which names the stage that changed the prompt."""
    return _CUT if change.cause == "cut" else f"its thinking was signed for a prompt that {change.stage} changed"


def _stale(draft: Draft, change: Change) -> set[int]:
    """Return the `id()` of the root of each artifact whose thinking is stale because a stage made this change."""
    if change.cause in _AT_ARRIVAL:
        return set()
    if change.cause == "cut" and draft.cut_at is not None:  # the exact position of the latest cut is known
        return {id(artifact.root) for artifact in draft.history[: draft.cut_at + 1]}
    kept = {id(artifact.root) for artifact in change.after}
    known = {id(artifact.root) for artifact in change.before}
    if not kept ^ known:
        return set()
    # Thinking after the first dropped artifact was signed with a prompt that contained it.
    first = next((n for n, artifact in enumerate(change.before) if id(artifact.root) not in kept), 0)
    return {id(artifact.root) for artifact in change.before[first:]}


def _before_late_task(draft: Draft) -> set[int]:
    """Return the `id()` of the root of each artifact before the last task artifact that arrived late.

    Late means after another kind of artifact. A late task is moved to the front of the prompt, which changes the prompt
    before all thinking.
    """
    late = (p for p in range(len(draft.history) - 1, 0, -1) if draft.history[p].kind is Kind.TASK)
    end = next((p for p in late if draft.history[p - 1].kind not in (Kind.SYSTEM, Kind.TASK)), 0)
    return {id(artifact.root) for artifact in draft.history[:end]}


def _before_overflow(draft: Draft) -> set[int]:
    """Return the `id()` of the root of each artifact from before the provider refused a prompt as too long.

    Their thinking is stale, because all later prompts are shorter than those with which it was signed.
    """
    overflow = draft.settings.overflow
    return set() if overflow is None else {id(artifact.root) for artifact in draft.history[: overflow.at]}


def _is_signed(artifact: Artifact) -> bool:
    return type(artifact.content) is tuple and any(part.signed for part in artifact.content)


def _without_thinking(artifact: Artifact) -> Artifact:
    if isinstance(artifact.content, str) or not _is_signed(artifact):
        return artifact
    return artifact.revised(content=tuple(_BLANK if part.signed else part for part in artifact.content))
