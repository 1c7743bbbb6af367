"""Fit a history into the budget so that prompts keep their prefix: cut rarely, cut deep, stay there.

The window is a fold over the exchanges. When one more exchange does not fit, the window's beginning moves up until
only `target` of the budget is taken, and stays there until the budget is hit again. The fold looks at nothing but the
history, so every call repeats the decisions of the calls before it, and prompts only grow between two cuts.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable, Iterable, Mapping
from copy import copy
from dataclasses import dataclass, field, fields, replace
from itertools import chain
from typing import Final

from ctxguard.artifacts import Artifact, Kind
from ctxguard.draft import Cut, Draft
from ctxguard.errors import BudgetExceededError, ConfigError
from ctxguard.history import AUTHORITY, Unit, asked_by_user, is_record, task_of, units
from ctxguard.prefix_memory import PrefixMemory
from ctxguard.stages.cuts import with_cut
from ctxguard.stages.squeezing import squeezed_to, water_level

__all__ = ["StableWindow"]

_FLOORS: Final = (64, 24, 8)
"""Tokens that texts are squeezed down to, step by step, where what must stay does not fit."""
_RECORD_SHARE: Final = 4
"""A record is kept unless it takes more than one part in so many of the budget."""
_LEAST_CALIBRATED: Final = 500
_MOST_CORRECTION: Final = 2.5
_PLAIN_EXCESS: Final = 0.2
"""Share of the budget by which a reported count may exceed ours and still be that of the same prompt for certain."""
_OF_ONE_CALL: Final = ("draft", "target", "reserve", "_position", "saved", "saved_at")
"""What a fold holds that does not go on in the next call."""


class StableWindow:
    """Drop the oldest exchanges when the budget is hit, down to `target`, and stay there until the next hit.

    System, task, pins, the user message that opened the turn, the latest messages and the last exchange stay. Where
    these alone exceed the budget, their tool outputs are squeezed, then arguments and texts, the last user message
    never. Where there is room the newest record (summary, checkpoint) of at most a quarter of the budget stays, too.

    Args:
        target: share of the budget that a cut frees down to, above 0 and at most 1.
        reserve: share of what system, task and pins leave of the budget that is kept free for what a later stage
            brings back (`RecallRelevant`), from the first cut on. With it, the report's details say what was gone when
            the last user message came.

    Raises:
        ConfigError: `target` or `reserve` is out of range.
        BudgetExceededError: (when called) what must stay does not fit even so.
    """

    name = "StableWindow"

    def __init__(self, *, target: float = 0.6, reserve: float = 0.0) -> None:
        if not 0 < target <= 1:
            raise ConfigError(f"target is a share of the budget above 0 and at most 1, not {target}", setting="target")
        if not 0 <= reserve < 1:
            raise ConfigError(f"reserve is a share of at least 0 and below 1, not {reserve}", setting="reserve")
        self.target = target
        self.reserve = reserve
        self._memory: PrefixMemory[Mapping[str, object]] = PrefixMemory()

    def __call__(self, draft: Draft, /) -> Draft:
        """Return the new draft."""
        window = _Window(draft, self.target, self.reserve)
        settings = _settings_of(draft)
        found = self._memory.find(draft.artifacts, settings, begins_with=draft.begins_with)
        if found is not None:
            window.resume(found.length, found.value)
        window.run()
        if window.saved is not None and not (found and found.length == window.saved_at):
            self._memory.keep(draft.artifacts, window.saved, settings, length=window.saved_at, after=found)
        return window.result()


def _settings_of(draft: Draft) -> Hashable:
    """Return what a fold depends on besides the artifacts."""
    return (
        draft.budget,
        draft.overhead,
        draft.keep_recent,
        draft.keep_task,
        draft.calibrate,
        draft.counter,
    )


@dataclass(slots=True)
class _Window:
    """Run the fold over one draft."""

    draft: Draft
    target: float
    reserve: float
    units: list[Unit] = field(default_factory=list)
    squeezed: dict[int, Artifact] = field(default_factory=dict)
    begin: int = 0
    record: int | None = None
    left_at: tuple[int, int | None] = (0, None)
    sent_at: tuple[int, int | None] = (0, None)
    cut_at: int | None = None
    given_up: set[int] = field(default_factory=set)
    fixed: int = 0
    tokens: int = 0
    turn: tuple[int, int | None, int] = (0, None, 0)
    correction: float = 1.0
    compared: tuple[int, int] | None = None
    anchor: tuple[int, int] | None = None
    _last_user: list[int | None] = field(default_factory=list)
    _messages: list[int] = field(default_factory=list)
    _staying: list[int] = field(default_factory=list)
    _user: int | None = None
    _position: int = 0
    saved: Mapping[str, object] | None = None
    saved_at: int = 0

    def __post_init__(self) -> None:
        self.fixed = self.draft.overhead

    def resume(self, position: int, state: Mapping[str, object]) -> None:
        """Go on where an earlier call of the session stood, having seen the artifacts before `position`."""
        for name, value in state.items():
            setattr(self, name, copy(value))
        self._position = position

    def _save(self) -> None:
        """Note the fold as it stands before the last exchange, which may still grow."""
        state = (f.name for f in fields(self) if f.name not in _OF_ONE_CALL)
        self.saved = {name: copy(getattr(self, name)) for name in state}
        self.saved = {**self.saved, "_staying": [position for position in self._staying if position < self._position]}
        self.saved_at = self._position

    def run(self) -> None:
        """Take the units in one by one, as the calls of the session did."""
        coming = units(self.draft, self._position)
        authority = self._authority(coming)
        task = task_of(self.draft)
        for number, unit in enumerate(coming):
            if number == len(coming) - 1:
                self._save()
            unit.pinned = unit.pinned or self.draft.artifacts[unit.start] is task
            self.fixed += authority[number]
            self._take(unit)
            self._position = unit.end
        self.fixed += authority[-1]
        if self._total() > self._limit() and self.units:
            self._cut(len(self.units) - 1)
        if self._total() > self.draft.budget:
            raise self._exceeded()

    def _take(self, unit: Unit) -> None:
        """Take one more unit in, and cut if it does not fit."""
        self._calibrate(unit)
        if self._kind(unit.start) is Kind.ASSISTANT:
            self.sent_at = self.begin, self.record
        number = len(self.units)
        self.units.append(unit)
        self._last_user.append(self._user)
        if unit.asks:
            self._user = number
        if unit.message:
            self._messages.append(number)
        if unit.pinned:
            self.fixed += unit.tokens
            self._staying += range(unit.start, unit.end)
        else:
            self.tokens += unit.tokens
        if self._total() > self._limit():
            self._cut(number)
        if unit.asks:
            self.turn = self.begin, self.record, self._reserved()

    def _authority(self, coming: list[Unit]) -> list[int]:
        """Return the tokens of system and task artifacts that stand before each coming unit, and behind the last."""
        draft = self.draft
        starts = [unit.start for unit in coming]
        tokens = [0] * (len(starts) + 1)
        number = 0
        for position, artifact in enumerate(draft.artifacts[self._position :], self._position):
            if artifact.kind in AUTHORITY:
                while number < len(starts) and starts[number] < position:
                    number += 1
                tokens[number] += draft.counter.artifact(artifact)
                self._staying.append(position)
        return tokens

    def _anchor(self, begin: int) -> int | None:
        """Return the user message that opened the turn a window begins in, where it is not in the window itself."""
        if begin >= len(self._last_user) or self.units[begin].asks:
            return None
        anchor = self._last_user[begin]
        return None if anchor in self.given_up else anchor

    def _total(self) -> int:
        anchor = self._anchor(self.begin)
        extra = 0 if anchor is None or self.units[anchor].pinned else self.units[anchor].tokens
        record = 0 if self.record is None else self.units[self.record].tokens
        return self.fixed + self.tokens + extra + record

    def _reserved(self) -> int:
        """Return the tokens kept free for what is brought back; a function of what came before alone."""
        return int(self.reserve * max(0, self._budget() - self.fixed))

    def _budget(self) -> int:
        """Return the budget in our tokens: less of them where the provider counts more."""
        return int(self.draft.budget / self.correction)

    def _calibrate(self, unit: Unit) -> None:
        """Compare what the provider counted for the call that this reply answers with what we count of it.

        A little more than ours is taken as it stands: a tokenizer or framing that differs. Much more may as well be
        the count of another prompt, of a longer history that was sent unguarded or was cut since; then only the growth
        from one reply to another tells how the provider counts.
        """
        reported = self.draft.artifacts[unit.start].reported
        counted = self._total()
        if reported is None or not self.draft.calibrate or counted < _LEAST_CALIBRATED:
            return
        self.compared = (reported, counted)
        if reported - counted <= _PLAIN_EXCESS * self.draft.budget:
            self.correction = min(_MOST_CORRECTION, max(1.0, reported / counted))
        elif self.anchor is not None and counted - self.anchor[1] >= _LEAST_CALIBRATED:
            growth = (reported - self.anchor[0]) / (counted - self.anchor[1])
            self.correction = min(_MOST_CORRECTION, max(1.0, growth))
        self.anchor = self.anchor or (reported, counted)

    def _limit(self) -> int:
        """Return the tokens that the window may take: all of the budget until there is something to bring back."""
        return self._budget() - (0 if self.cut_at is None else self._reserved())

    def _cut(self, number: int) -> None:
        """Move the beginning up to the goal, as far as the latest messages allow; squeeze where that is not enough."""
        keep = self.draft.keep_recent
        recent = self._messages[-keep] if 0 < keep <= len(self._messages) else (0 if keep else number)
        limit = min(number, recent) if len(self._messages) >= keep else 0
        goal = int(self.target * (self._budget() - self._reserved()))
        self.left_at, self.cut_at, self.anchor = self.sent_at, number, None  # from now on there is something to recall
        while self.begin < limit and (self._total() > goal or self._starts_badly()):
            self._leave_out()
        if self._total() > self._limit():
            self._squeeze(number)

    def _leave_out(self) -> None:
        """Move the beginning up by one exchange; a record that other stages left stays in place of the one before."""
        unit = self.units[self.begin]
        if not unit.pinned:
            self.tokens -= unit.tokens
            if unit.tokens * _RECORD_SHARE <= self.draft.budget and is_record(self.draft.artifacts[unit.start]):
                self.record = self.begin
        self.begin += 1

    def _starts_badly(self) -> bool:
        return not self.units[self.begin].user and self._anchor(self.begin) is None

    def _squeeze(self, number: int) -> None:
        """Make the texts of the window smaller, tool outputs first, until it fits or nothing is left to give."""
        anchor = self._anchor(self.begin)
        kept = [*(() if anchor is None else (self.units[anchor],)), *self.units[self.begin : number + 1]]
        positions = [p for u in kept if not u.pinned for p in range(u.start, u.end)]
        last_user = next((p for p in reversed(positions) if asked_by_user(self.draft.artifacts[p])), None)
        tools = [p for p in positions if self._kind(p) is Kind.TOOL]
        spoken = [p for p in positions if self._kind(p) is Kind.ASSISTANT]
        asked = [p for p in positions if self._kind(p) is Kind.USER and p != last_user]
        self._shrink_to(tools, _FLOORS[:2])
        if self._total() > self._limit():
            self.record = None
        if anchor is not None and _holds_media(self.draft.artifacts[self.units[anchor].start]):
            self._give_up_anchor(number)
        for group in (spoken, asked, tools):
            self._shrink_to(group, _FLOORS)
        self._give_up_anchor(number)

    def _shrink_to(self, positions: list[int], floors: Iterable[int]) -> None:
        for floor in floors:
            excess = self._total() - self._limit()
            if excess > 0:
                self._shrink(positions, excess, floor)

    def _give_up_anchor(self, number: int) -> None:
        """Let an opening message that media keep large go, where the task starts the context and it is not the last."""
        anchor = self._anchor(self.begin)
        if anchor is None or self.units[anchor].pinned or self._total() <= self._budget():
            return
        task_before = any(u.pinned and u.user for u in self.units[: self.begin])
        newer = any(u.asks for u in self.units[anchor + 1 : number + 1])
        if task_before and newer:
            self.given_up.add(anchor)

    def _kind(self, position: int) -> Kind:
        return self.draft.artifacts[position].kind

    def _shrink(self, positions: list[int], excess: int, floor: int) -> None:
        tokens = {p: self.draft.counter.artifact(self._now(p)) for p in positions}
        cap = water_level(tokens.values(), sum(tokens.values()) - excess, floor)
        for position in positions:
            if tokens[position] > cap:
                self._replace(
                    position, squeezed_to(self._now(position), cap, self.draft, is_open=self._is_open(position))
                )

    def _is_open(self, position: int) -> bool:
        """Tell whether the calls of an artifact still wait for results; such arguments are never touched."""
        calls = self.draft.artifacts[position].calls
        following = self.draft.artifacts[position + 1 : position + 1 + len(calls)]
        return bool(calls) and sum(a.kind is Kind.TOOL for a in following) < len(calls)

    def _now(self, position: int) -> Artifact:
        return self.squeezed.get(position, self.draft.artifacts[position])

    def _replace(self, position: int, artifact: Artifact) -> None:
        saved = self.draft.counter.artifact(self._now(position)) - self.draft.counter.artifact(artifact)
        if saved <= 0:
            return
        self.squeezed[position] = artifact
        number = bisect_right(self.units, position, key=_start) - 1
        unit = self.units[number]
        self.units[number] = replace(unit, tokens=unit.tokens - saved)  # what is remembered stays as it was
        if number >= self.begin:
            self.tokens -= saved

    def _exceeded(self) -> BudgetExceededError:
        draft, count = self.draft, self.draft.counter.artifact
        task = task_of(draft)
        last_user = max((u.start for u in self.units if u.asks), default=None)
        last = self.units[-1] if self.units else None
        parts = dict.fromkeys(
            ("system", "task", "pinned", "last user message", "last exchange", "recent messages", "tools and framing"),
            0,
        )
        parts["tools and framing"] = draft.overhead
        for position, artifact in self._kept():
            tokens = count(artifact)
            if artifact.kind in AUTHORITY:
                parts[artifact.kind.value] += tokens
            elif artifact.root is (task and task.root):
                parts["task"] += tokens
            elif artifact.pinned:
                parts["pinned"] += tokens
            elif position == last_user:
                parts["last user message"] += tokens
            elif last is not None and last.start <= position < last.end:
                parts["last exchange"] += tokens
            else:
                parts["recent messages"] += tokens
        return BudgetExceededError(sum(parts.values()), draft.budget, parts)

    def _kept(self) -> Iterable[tuple[int, Artifact]]:
        """Walk what stays, in order, with its position in the draft."""
        start = self.units[self.begin].start if self.begin else 0
        before = self._kept_before(self.begin, self.record) if self.begin else ()
        for position in chain(before, range(start, len(self.draft.artifacts))):
            yield position, self.squeezed.get(position, self.draft.artifacts[position])

    def _kept_before(self, begin: int, record: int | None) -> list[int]:
        """Return the positions that stay of what stands before a beginning."""
        start = self.units[begin].start
        outside = (self.units[n].start for n in (self._anchor(begin), record) if n is not None)  # one message each
        return sorted({*(p for p in self._staying if p < start), *outside})

    def result(self) -> Draft:
        """Return the draft that the window leaves, with the last cut noted."""
        draft = self._told_error()
        if self.cut_at is None:
            return with_cut(draft, draft, None)
        kept = list(self._kept())
        smaller = (draft.artifacts[p] for p, a in kept if a is not draft.artifacts[p])
        squeezed = {id(artifact): "what must stay did not fit" for artifact in smaller}
        fitted = draft.revise(
            (a for _, a in kept), action="bounded", reason=squeezed, otherwise="older than the window"
        )
        details = {**draft.details, StableWindow.name: self._gone_at_turn()} if self.reserve else draft.details
        cut = self._noted(self.cut_at, [p for p, _ in kept], [a for _, a in kept])
        return with_cut(draft, replace(fitted, details=details), cut)

    def _told_error(self) -> Draft:
        """Note in the draft how far off our count of the last reported call was."""
        if self.compared is None:
            return self.draft
        reported, counted = self.compared
        error = {
            "reported": reported,
            "counted": counted,
            "error": round(counted / reported - 1, 4) if reported else None,
        }
        return replace(self.draft, details={**self.draft.details, "calibration": error})

    def _gone_at_turn(self) -> dict[str, int | None]:
        """Say what had left the window when the last user message came: later cuts do not change it."""
        begin, record, reserved = self.turn
        anchor = self._anchor(begin)
        return {
            "gone_before": self.units[begin].start if begin else 0,
            "kept_opening": None if anchor is None else self.units[anchor].start,
            "kept_record": None if record is None else self.units[record].start,
            "reserved": reserved,
        }

    def _noted(self, cut_at: int, positions: list[int], artifacts: list[Artifact]) -> Cut:
        cut = self.units[cut_at]
        order = sorted(range(len(artifacts)), key=lambda n: artifacts[n].kind not in AUTHORITY)
        stable = self._unchanged([positions[n] for n in order])
        last_reply = next((u.start for u in reversed(self.units) if self._kind(u.start) is Kind.ASSISTANT), None)
        return Cut(
            at=cut.start,
            position=stable,
            fresh=last_reply is not None and cut.start >= last_reply,
            rebilled=sum(self.draft.counter.artifact(artifacts[n]) for n in order[stable:]),
        )

    def _unchanged(self, positions: list[int]) -> int:
        """Return how many of the kept artifacts stood at the same place in what was sent before the last cut."""
        begin, record = self.left_at
        since = range(self.units[begin].start, len(self.draft.artifacts))
        earlier = chain(self._kept_before(begin, record), (p for p in since if self._kind(p) not in AUTHORITY))
        pairs = enumerate(zip(positions, earlier, strict=False))
        return next((n for n, (now, was) in pairs if now != was or now in self.squeezed), len(positions))


def _holds_media(artifact: Artifact) -> bool:
    return not isinstance(artifact.content, str) and any(part.tokens is not None for part in artifact.content)


def _start(unit: Unit) -> int:
    return unit.start
