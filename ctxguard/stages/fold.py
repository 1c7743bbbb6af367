"""What a window keeps, decided in one place and by arithmetic: the fold of a conversation into the state of its window.

The state after an exchange is a function of the state before it and of numbers that were known when its artifacts
arrived. No text is written, masked, or searched here. A shortened artifact is a position and a limit in tokens, and the
trail is a number of reserved tokens; `short_views` and `trail` write both later, within these limits, and only for the
context that is sent. So all counts here are upper bounds of what is sent.

The settings of a window, `WindowSettings`, come first. `stable_window` explains the terms. Exchanges are given by their
index in the history, and artifacts by their position. Where a number was chosen by measuring,
`docs/decisions/0012_window.md` says how.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import chain, takewhile
from typing import Final, Literal, TypedDict

from ctxguard.artifacts import Artifact, Kind
from ctxguard.draft import Draft, LeftOut
from ctxguard.history import RECALLED, TRAIL, ExchangeSpan, record_title
from ctxguard.history.conversation import TASK_SHARE, Fold
from ctxguard.settings import one_of, valid_share
from ctxguard.stages.short_views import holds_observation, may_leave, water_level
from ctxguard.stages.trail import LEAST_NOTE, Note, read_note, said_sentences
from ctxguard.tokens.artifact_counter import Calibration

OnOverflow = Literal["raise", "bound"]
_TARGET: Final = 0.65  # chosen on recordings, see docs/decisions/0012_window.md
SMALL: Final = 500
"""Number of available tokens up to which a cut frees no more than necessary. With so few tokens, nearly every step
causes a cut in any case, and the system prompt makes up most of the cost."""


class WindowOptions(TypedDict, total=False):
    """The fields of `WindowSettings` as keyword arguments, for type checkers and editors."""

    target: float | None
    trail: float
    output_share: float
    on_overflow: OnOverflow


@dataclass(frozen=True)
class WindowSettings:
    """The settings of a `StableWindow`.

    `Stabilizer`, `StableWindow`, the policies, and the section `stabilizer` of the configuration accept these fields by
    name. The defaults were chosen by replaying recorded sessions, see `docs/decisions/0012_window.md`.

    The available tokens are the budget minus tool schemas, system prompt, task, and pins. For `target` and `trail`, the
    last user message is subtracted, too.

    Attributes:
        target: Share of the available tokens to which a cut shrinks the context, above 0 and at most 1. A lower share
            makes cuts rarer. None means 0.65, or 500 tokens if that is more.
        trail: Share of the tokens kept at a cut that the trail (the summary of evicted exchanges) may take, from 0 (no
            trail) to below 1.
        output_share: Share of the available tokens that a tool output may take once the model has replied to it. Larger
            outputs are replaced by a view of that size; smaller ones stay whole until a cut. Outputs of
            parallel calls may together take twice this share.
        on_overflow: What happens if the mandatory messages exceed the budget even after tool outputs, arguments, and
            older messages were shortened: `raise` a `BudgetExceededError`, or `bound` (shorten) the last user message
            and the task as well.

    Raises:
        ConfigError: If a setting is out of range.
    """

    target: float | None = None
    trail: float = 0.1
    output_share: float = 0.1
    on_overflow: OnOverflow = "raise"

    def __post_init__(self) -> None:
        if self.target is not None:
            valid_share(self.target, "target")
        valid_share(self.trail, "trail", zero=True, one=False)
        valid_share(self.output_share, "output_share")
        one_of(self.on_overflow, OnOverflow, "on_overflow")

    def kept_of(self, tokens: int) -> int:
        """Return how many of `tokens`, the number of available tokens, may be in use after a cut."""
        return int(self.target * tokens) if self.target is not None else max(int(_TARGET * tokens), min(tokens, SMALL))


WINDOW_SETTINGS: Final = tuple(each.name for each in fields(WindowSettings))
"""The names of the settings of a window."""


_NEWEST: Final = 0.5
"""If the outputs of the newest exchange take at most this share of the available tokens, they are sent whole."""
_RECENT: Final = 3
"""Number of latest exchanges that a cut does not shorten."""
VIEW: Final = 120
"""Maximum number of tokens in the short view that replaces an older output, or a person's long message, at a cut."""
_LINE: Final = 30
"""Number of tokens to which an older message of a person, and the answer to it, are shortened at a cut."""
_PEOPLE: Final = 0.2
"""Share of the tokens kept at a cut that is protected for what people and later system messages say."""
_SAID: Final = 0.05
"""Share of the budget that the list of people's sentences from evicted messages may take; at most twice this share of
the tokens kept at a cut, so that it does not fill a small window."""
_FLOORS: Final = (24, 8)
"""The smallest limits of a mandatory text, in tokens: in the first round, and in the second."""


@dataclass(frozen=True, slots=True)
class Shortening:
    """How a kept artifact is shortened.

    Attributes:
        limit: Maximum number of tokens in the shortened artifact.
        at: The exchange whose arrival caused it. Names that were known then are masked in the shortened text.
        reason: Why it is shortened, for the report.
        keeps_media: Whether pictures and other media in it stay.
        is_speech: Whether it is what somebody said rather than an output, so that words are shown rather than lines.
    """

    limit: int
    at: int
    reason: str
    keeps_media: bool = True
    is_speech: bool = False


@dataclass(frozen=True, slots=True)
class State:
    """The state of a window after some of the exchanges.

    Attributes:
        seen: Number of exchanges processed so far.
        kept: The exchanges that the last cut kept, in order. All exchanges after the last cut are kept, too.
        forms: How kept artifacts are shortened, by position.
        masked: Kept artifacts that were masked again at the last cut, by position, with their tokens.
        cuts: The latest exchanges that caused a cut, oldest first, at most 4 of them.
        fixed: Number of tokens that are never evicted: overhead, and the system prompt, task, and pins so far.
        authority: Number of system and task artifacts outside exchanges whose tokens `fixed` includes.
        tokens: Number of tokens in all other kept exchanges, as they are sent.
        noted: Number of tokens reserved for the trail.
        said: How many of these the list of what people said may take.
        calibration: How the token counts that the provider reported compare with ours.
        settled: Number of exchanges from the beginning to which the model has replied.
        earlier: What an earlier trail says, if the history is a result that the caller stored; None if it is not.
        recalled: What was recalled since the last cut: one item for each message with recalled exchanges.
    """

    seen: int = 0
    kept: tuple[int, ...] = ()
    forms: Mapping[int, Shortening] = field(default_factory=dict)
    masked: Mapping[int, tuple[Artifact, int]] = field(default_factory=dict)
    cuts: tuple[int, ...] = ()
    fixed: int = 0
    authority: int = 0
    tokens: int = 0
    noted: int = 0
    said: int = 0
    calibration: Calibration = field(default_factory=Calibration)
    settled: int = 0
    earlier: Note | None = None
    recalled: tuple[LeftOut, ...] = ()

    LATEST = 4
    """Number of latest cuts that are remembered, and of latest calls that are examined for cuts in close succession."""

    @property
    def cut_at(self) -> int | None:
        """Index of the exchange that caused the last cut; None before the first cut."""
        return self.cuts[-1] if self.cuts else None

    @property
    def judged(self) -> int:
        """Number of exchanges up to the one that caused the last cut, including it; 0 before the first cut."""
        return self.cuts[-1] + 1 if self.cuts else 0

    @property
    def total(self) -> int:
        """Maximum number of tokens in the whole request."""
        return self.fixed + self.tokens + self.noted + self.for_recall

    @property
    def for_recall(self) -> int:
        """Number of tokens reserved for messages that repeat recalled exchanges."""
        return sum(left.tokens for left in self.recalled)

    @property
    def shown(self) -> set[int]:
        """Indexes of the evicted exchanges that recalled messages repeat."""
        return {number for left in self.recalled for number in left.found}

    def numbers(self) -> Iterator[int]:
        """Yield the indexes of the kept exchanges, in order."""
        return chain(self.kept, range(self.judged, self.seen))


class WindowFold(Fold[State]):
    """Folds the exchanges of one conversation into the state of its window.

    Args:
        draft: A draft with the settings of the conversation.
        settings: The settings of the window.

    Attributes:
        draft: That draft.
        settings: Those settings.
        task: The exchange with the user message that is kept as the task; None if there is none yet.
    """

    def __init__(self, draft: Draft, settings: WindowSettings) -> None:
        super().__init__(draft.counter.artifact, draft.memory, State(fixed=draft.overhead), has_notices=True)
        self.draft = draft
        self.settings = settings
        self.task: int | None = None
        self._observed: dict[int, bool] = {}
        self._said: dict[int, int] = {}
        self._rigid: dict[int, tuple[int, int]] = {}

    # -- numbers

    def whole_budget(self, state: State) -> int:
        """Return the budget. Once the provider has reported a count, the headroom that this releases is added."""
        return self.draft.budget + (self.draft.settings.regained if state.calibration.latest else 0)

    def budget(self, state: State) -> int:
        """Return the budget in tokens as we count them; it is smaller if the provider counts more tokens than we do."""
        return int(self.whole_budget(state) / state.calibration.correction)

    def available(self, state: State, number: int) -> int:
        """Return the number of available tokens when exchange `number` arrives.

        That is the budget without tool schemas, system prompt, task, pins, recalled messages, and the last request: the
        last user message with those right before it.
        """
        asked = sum(self.history.spans[n].tokens for n in self._request(number) if not self.stays(n))
        return max(0, self.budget(state) - state.for_recall - state.fixed - asked)

    def _request(self, number: int) -> list[int]:
        return self.history.asked_together(number + 1, self.draft.budget // TASK_SHARE)

    def stays(self, number: int) -> bool:
        """Return whether an exchange is the task or pinned. Such an exchange is never evicted."""
        return number == self.task or self.history.spans[number].is_pinned

    def positions(self, number: int) -> range:
        """Return the positions of the artifacts of an exchange."""
        span = self.history.spans[number]
        return range(span.start, span.end)

    def tokens_at(self, state: State, position: int) -> int:
        """Return the maximum number of tokens of the artifact at a position, as it is sent."""
        if position in state.forms:
            return state.forms[position].limit
        return state.masked[position][1] if position in state.masked else self.history.costs[position]

    def tokens_of(self, state: State, number: int) -> int:
        """Return the maximum number of tokens of an exchange, as it is sent."""
        if not state.forms and not state.masked:
            return self.history.spans[number].tokens
        return sum(self.tokens_at(state, position) for position in self.positions(number))

    # -- an exchange arrives

    def with_authority(self, state: State, position: int) -> State:
        """Return the state in which the tokens of all system and task artifacts before a position are counted."""
        history, counted = self.history, state.authority
        while counted < len(history.authority) and history.authority[counted] < position:
            counted += 1
        if counted == state.authority:
            return state
        tokens = sum(history.costs[p] for p in history.authority[state.authority : counted])
        return replace(state, authority=counted, fixed=state.fixed + tokens)

    def step(self, state: State, number: int) -> State:
        """Return the state after one more exchange. If the context then exceeds the budget, it is cut."""
        history = self.history
        span = history.spans[number]
        state = self._with_seen(self._calibrated(self.with_authority(state, span.start), span), number)
        # The task is set only when it arrives: decisions at an exchange depend only on earlier exchanges.
        if self.task is None and self.draft.keep_task and history.task(self.draft.budget) == number:
            self.draft.memory.set(self, "task", number)
        fixed, tokens = (span.tokens, 0) if self.stays(number) else (0, span.tokens)
        state = replace(state, seen=number + 1, fixed=state.fixed + fixed, tokens=state.tokens + tokens)
        state = self._with_newest(state, number)
        return state if state.total <= self.budget(state) else self.cut(state, number)

    def _calibrated(self, state: State, span: ExchangeSpan) -> State:
        reported, draft = self.history.artifacts[span.start].reported, self.draft
        calibration = state.calibration
        # Of shortened artifacts, the trail, and recalled messages, only the limits are known here. Both counts include
        # the same limits as long as the turn and the cut are the same, so then the growth of both is compared.
        if span.is_asked and state.cuts:
            calibration = calibration.begun_anew()
        if reported is not None and draft.settings.calibrate:
            is_exact = not state.cuts and not state.forms
            calibration = calibration.with_comparison(reported, state.total, draft.budget, is_exact=is_exact)
        return state if calibration is state.calibration else replace(state, calibration=calibration)

    def _with_seen(self, state: State, number: int) -> State:
        """Return the state with large earlier outputs shortened, if exchange `number` is the model's reply to them.

        The provider signs thinking together with everything before it, so outputs before a reply with signed thinking
        stay unchanged until a cut.
        """
        reply = self.history.artifacts[self.history.spans[number].start]
        if reply.kind is not Kind.ASSISTANT:
            return state
        for other in () if _is_signed(reply) else range(state.settled, number):
            if other >= state.judged or other in state.kept:
                outputs, reason = self.outputs(other, number), "large, and the model has replied to it"
                state = self._shortened(state, other, outputs, self._seen_limit(state, outputs), number, reason)
        return replace(state, settled=number)

    def _seen_limit(self, state: State, outputs: Sequence[int]) -> int:
        """Return the maximum number of tokens of an output once the model has replied to it.

        `outputs` are the positions of the outputs of one exchange. Parallel ones share twice the limit of one.
        """
        share = int(self.settings.output_share * (self.draft.budget - state.fixed))
        level = water_level([self.history.costs[p] for p in outputs], 2 * share) if outputs else share
        return max(VIEW, min(share, level))

    def _with_newest(self, state: State, number: int) -> State:
        """Return the state with large outputs of the newest exchange shortened.

        Half of the available tokens is for outputs that are sent whole. In order, each output stays whole if enough of
        that half is left. If one does not, it may take up to half of the available tokens, as far as they are free. If
        several do not, they share all free tokens, and what a smaller one does not use goes to larger ones. A cut
        decides this again, with the tokens that it has freed.
        """
        outputs, costs = self.outputs(number, number), self.history.costs
        if not outputs:
            return state
        state = self._with_whole(state, number, outputs)
        # The outputs of a pinned exchange are counted as fixed, but this limit applies to them as well.
        own = sum(costs[p] for p in outputs) if self.stays(number) else 0
        half = left = int(_NEWEST * self.available(replace(state, fixed=state.fixed - own), number))
        large: list[int] = []
        for position in outputs:
            if costs[position] <= left:
                left -= costs[position]
            else:
                large.append(position)
        # Outputs before signed thinking stay unchanged until a cut, which would come at once if no tokens were free.
        if not _is_signed(self.history.artifacts[self.history.spans[number].start]):
            free = self.budget(state) - state.total + sum(costs[p] for p in large)
            left = max(left, free if len(large) > 1 else min(half, free))
        for rest, position in zip(range(len(large), 0, -1), sorted(large, key=costs.__getitem__), strict=True):
            limit, reason = max(VIEW, left // rest), "exceeds half of the available tokens"
            state = self._shortened(state, number, (position,), limit, number, reason)
            left -= self.tokens_at(state, position)
        return state

    def _with_whole(self, state: State, other: int, positions: Iterable[int]) -> State:
        """Return the state with the artifacts at `positions`, all of exchange `other`, whole."""
        forms, lacking = dict(state.forms), 0
        for position in positions:
            if (form := forms.pop(position, None)) is not None:
                lacking += self.history.costs[position] - form.limit
        fixed, rest = (lacking, 0) if self.stays(other) else (0, lacking)
        return replace(state, forms=forms, fixed=state.fixed + fixed, tokens=state.tokens + rest) if lacking else state

    def _shortened(
        self,
        state: State,
        other: int,
        positions: Iterable[int],
        limit: int,
        number: int,
        reason: str,
        *,
        keeps_media: bool = True,
        is_speech: bool = False,
    ) -> State:
        """Return the state with the artifacts at `positions`, all of exchange `other`, shortened to `limit` tokens."""
        forms, saved = dict(state.forms), 0
        for position in positions:
            rigid = self.rigid(position) + (self.media(position) if keeps_media else 0)
            before, least = self.tokens_at(state, position), max(limit, rigid + min(limit, _FLOORS[0]))
            if before > least:
                forms[position] = Shortening(least, number, reason, keeps_media, is_speech)
                saved += before - least
        if not saved:
            return state
        fixed, rest = (saved, 0) if self.stays(other) else (0, saved)
        calibration = state.calibration.begun_anew()
        return replace(
            state, forms=forms, fixed=state.fixed - fixed, tokens=state.tokens - rest, calibration=calibration
        )

    def outputs(self, other: int, number: int) -> list[int]:
        """Return the positions of the outputs of exchange `other` that may be shortened when exchange `number` arrives.

        Tool output that an agent sends in the user's role counts as output, except in the last request and the task.
        """
        span, artifacts = self.history.spans[other], self.history.artifacts
        if span.is_asked:
            is_output = other != self.task and other not in self._request(number) and self.is_observed(other)
            return [span.start] if is_output and not artifacts[span.start].pinned else []
        return [p for p in self.positions(other) if artifacts[p].kind is Kind.TOOL and not artifacts[p].pinned]

    def rigid(self, position: int) -> int:
        """Return the number of tokens of an artifact that no shortening removes: framing, names, and signed parts."""
        return self._hard(position)[0]

    def media(self, position: int) -> int:
        """Return the number of tokens in the media of a tool result, which may leave; 0 for other artifacts."""
        return self._hard(position)[1]

    def _hard(self, position: int) -> tuple[int, int]:
        known = self._rigid.get(position)
        if known is None:
            known = _hard_tokens(self.history.artifacts[position], self.draft)
            self.draft.memory.put(self._rigid, position, known)
        return known

    def is_observed(self, number: int) -> bool:
        """Return whether an exchange is tool output that an agent sent in the user's role."""
        known = self._observed.get(number)
        if known is None:
            known = holds_observation(self.history, number)
            self.draft.memory.put(self._observed, number, known)
        return known

    def is_said(self, number: int) -> bool:
        """Return whether an exchange is what a person said, or a system message that arrived later."""
        span = self.history.spans[number]
        return span.is_notice or (span.is_asked and not self.is_observed(number))

    # -- a cut

    def cut(self, state: State, number: int) -> State:
        """Return the state after a cut, which shrinks the context to the goal, or as far as mandatory messages allow.

        1. Outputs that are not recent take their short view, the oldest first.
        2. Exchanges leave, the oldest first. What people said stays longest, within its share, and so does one line of
           each answer to it.
        3. What is still missing leaves, too, the oldest first.
        4. Outputs that the model has not read yet take what is free, if they were shortened when they arrived.
        """
        asked = self.history.last_asked(number + 1)
        # Where names become known later, a block that was written before the cut might contain one.
        stays = [n for n in state.recalled if n.asked == asked and (n.block is None or not self.draft.masking.remasks)]
        state = replace(state, recalled=tuple(stays))
        state = self._masked_again(self._with_earlier_note(state, number), number)
        there = [n for n in state.numbers() if not self._is_earlier_note(n, number)]
        state = self._with_kept(replace(state, noted=0), there, number)
        room = self.available(state, number)
        keep = self.settings.kept_of(room)
        mandatory = self._mandatory(there, number, keep)
        said = min(int(_SAID * self.draft.budget), int(2 * _SAID * keep)) if self.settings.trail else 0
        trail = max(LEAST_NOTE, int(self.settings.trail * keep)) if self.settings.trail else 0
        # What the next call frees by itself need not be freed now, but at least a quarter of the usual amount is.
        freed_later = min(self._freed_next(state, number), 3 * (room - keep) // 4)
        goal = self.budget(state) - max(0, room - keep - freed_later) - trail
        leaving = [n for n in there if n not in mandatory]
        old = [n for n in leaving if n <= number - _RECENT]
        for other in old:
            if state.total > goal:
                reason, outputs = "older output, shortened at a cut", self.outputs(other, number)
                state = self._shortened(state, other, outputs, VIEW, number, reason, keeps_media=False)
        if state.total > goal:
            state, lines = self._with_people(state, leaving, number, keep)
            state = self._evicted(state, leaving, lines, goal, said, number)
        # In a small window, the trail is the best use of tokens that were freed beyond the goal.
        spare = max(0, goal - state.total) if keep <= SMALL else 0
        state = self._with_note(state, trail, said, spare, number)
        if not state.noted:
            state = self._starting_with_user(state, mandatory, number)
        again = self._with_newest(state, number)
        state = again if again.total <= self.budget(again) else state
        return state if state.total <= self.budget(state) else self._squeezed(state, number)

    def _mandatory(self, there: Sequence[int], number: int, keep: int) -> set[int]:
        """Return the exchanges that a cut keeps whatever they take, as far as they are there."""
        history = self.history
        stay = set(history.must_stay(self.draft.keep_recent, self.task, number + 1, self.draft.budget // TASK_SHARE))
        # If it were evicted, nothing would be left of the messages that a summary or checkpoint replaced.
        stay.add(self._newest_record(there))
        left = int(_PEOPLE * keep)
        for other in (n for n in reversed(there) if history.spans[n].is_notice):
            left -= history.spans[other].tokens
            if left < 0:
                break
            stay.add(other)
        return stay.intersection(there)

    def _newest_record(self, there: Sequence[int]) -> int:
        """Return the index of the newest summary or checkpoint of at most a quarter of the budget; -1 if none."""
        history, budget = self.history, self.draft.budget
        for other in reversed(there):
            span = history.spans[other]
            is_record = span.has_user_role and not span.is_asked and span.tokens * TASK_SHARE <= budget
            if is_record and record_title(history.artifacts[span.start]) not in (RECALLED, TRAIL):
                return other
        return -1

    def _freed_next(self, state: State, number: int) -> int:
        """Return how many tokens the next call frees by shortening the outputs that are new in this call."""
        if _is_signed(self.history.artifacts[self.history.spans[number].start]):
            return 0
        freed = 0
        for other in range(state.settled, number + 1):
            outputs = self.outputs(other, number)
            limit = self._seen_limit(state, outputs)
            freed += sum(max(0, self.tokens_at(state, p) - max(limit, self.rigid(p))) for p in outputs)
        return freed

    def _with_people(self, state: State, leaving: Sequence[int], number: int, keep: int) -> tuple[State, set[int]]:
        """Return the state with older messages of people shortened, and the exchanges that stay longest.

        The newest messages are protected until together they take their share. Once half of it is used, each keeps a
        line of its first and last words, and so does the answer to each.
        """
        protected: set[int] = set()
        share = left = int(_PEOPLE * keep)
        for other in (n for n in reversed(leaving) if self.is_said(n)):
            is_long = TASK_SHARE * self.tokens_of(state, other) > share
            if other <= number - _RECENT and (is_long or 2 * left < share):
                state = self._as_line(state, other, _LINE if 2 * left < share else VIEW, number)
            answer = self._answer_to(other, number)
            left -= self.tokens_of(state, other)
            left -= 0 if answer is None else min(_LINE, self.tokens_of(state, answer))
            if left < 0:
                break
            protected.add(other)
        return state, protected

    def _as_line(self, state: State, other: int, limit: int, number: int) -> State:
        reason = "older message, shortened at a cut"
        return self._shortened(state, other, self.positions(other), limit, number, reason, is_speech=True)

    def _answer_to(self, other: int, number: int) -> int | None:
        """Return the last reply of the turn that message `other` opened; None if the model has not replied in words."""
        history = self.history
        place = bisect_right(history.asked, other)
        after = min(number, history.asked[place] if place < len(history.asked) else number) - 1
        first = history.artifacts[history.spans[after].start]
        return after if after > other and first.kind is Kind.ASSISTANT and not first.calls else None

    def _evicted(
        self, state: State, leaving: Sequence[int], protected: set[int], goal: int, most: int, number: int
    ) -> State:
        """Return the state without the exchanges that have to leave, unprotected ones first, each the oldest first.

        `most` is the maximum number of tokens in the list of what people said.
        """
        answers = {self._answer_to(n, number) for n in protected}
        said = self._said_before(state, most)
        gone: set[int] = set()
        total = state.total
        for other in sorted(leaving, key=lambda n: (n in protected, n)):
            if total + min(said, most) <= goal:
                break
            if other in answers:
                before = self.tokens_of(state, other)
                state = self._as_line(state, other, _LINE, number)
                total -= before - self.tokens_of(state, other)
                continue
            answer = self._answer_to(other, number) if self.is_said(other) else None
            goes_along = answer in leaving and (other in protected or answer == other + 1)
            for each in (other, answer) if goes_along and answer is not None else (other,):
                if each not in gone:
                    gone.add(each)
                    total -= self.tokens_of(state, each)
                    said += self._said_tokens(each)
        return self._with_kept(state, (n for n in state.numbers() if n not in gone), number)

    def _said_tokens(self, number: int) -> int:
        """Return the number of tokens in the sentences of a person's message that may stand on the trail."""
        if not self.is_said(number):
            return 0
        known = self._said.get(number)
        if known is None:
            text, count = self.history.artifacts[self.history.spans[number].start].text, self.draft.counter.text
            known = sum(count(said.text) + 2 for said in said_sentences(text))
            self.draft.memory.put(self._said, number, known)
        return known

    def _said_before(self, state: State, most: int) -> int:
        """Return the number of tokens in the sentences of evicted and shortened messages, until they exceed `most`."""
        kept, tokens = set(state.numbers()), 0
        for number in reversed(self.history.asked):
            if tokens > most:
                break
            is_whole = number in kept and self.history.spans[number].start not in state.forms
            if number < state.seen and not is_whole:
                tokens += self._said_tokens(number)
        return tokens + (0 if state.earlier is None else self.draft.counter.text("\n".join(state.earlier.said)))

    def _with_note(self, state: State, trail: int, said: int, spare: int, number: int) -> State:
        """Return the state with tokens reserved for the trail, if anything has left and the trail has room."""
        has_gone = len(state.kept) < number + 1 or state.earlier is not None
        if not trail or not has_gone:
            return state
        room = self.budget(state) - state.total
        said = min(said, self._said_before(state, said))
        return replace(state, noted=min(trail + max(said, spare), room), said=said) if room >= LEAST_NOTE else state

    def _with_kept(self, state: State, kept: Iterable[int], number: int) -> State:
        """Return the state of a cut at exchange `number` that keeps only the exchanges `kept`."""
        numbers = tuple(kept)
        cuts = state.cuts if state.cut_at == number else (*state.cuts, number)[-State.LATEST :]
        if state.forms or state.masked:
            there = {p for n in numbers for p in self.positions(n)}
            there.update(self.history.authority[: state.authority])
            forms = {p: form for p, form in state.forms.items() if p in there}
            masked = {p: known for p, known in state.masked.items() if p in there}
            state = replace(state, forms=forms, masked=masked)
        tokens = sum(self.tokens_of(state, n) for n in numbers if not self.stays(n))
        return replace(state, kept=numbers, cuts=cuts, tokens=tokens, calibration=state.calibration.begun_anew())

    def _starting_with_user(self, state: State, mandatory: set[int], number: int) -> State:
        """Return the state changed so that the conversation begins with a message in the user's role.

        Providers refuse a context that begins with an assistant message or a tool result. Without a trail, the user
        message that opened the turn is restored, or what comes before the next message of a user leaves.
        """
        history = self.history
        first = next((n for n in state.kept if not history.spans[n].is_notice), None)
        if first is None or history.spans[first].has_user_role:
            return state
        opener = history.opener(first)
        if opener is not None and opener not in state.kept:
            return self._with_kept(state, sorted((opener, *state.kept)), number)
        leading = list(takewhile(lambda n: not history.spans[n].has_user_role and n not in mandatory, state.kept))
        return self._with_kept(state, state.kept[len(leading) :], number)

    # -- a result that the caller stored

    def _is_earlier_note(self, other: int, number: int) -> bool:
        """Return whether an exchange is an earlier trail, which the new trail replaces, rather than a quoted trail."""
        history, span = self.history, self.history.spans[other]
        if not span.has_user_role or span.is_asked or record_title(history.artifacts[span.start]) != TRAIL:
            return False
        # In a tool loop with a single user message, an earlier trail is also the last message in the user's role. It
        # differs from a trail that a user quotes by its position: right after the user's request, before all replies.
        is_last = other == history.last_user(number + 1)
        return not is_last or (other not in (0, number) and history.users[other : other + 1] == [other])

    def _with_earlier_note(self, state: State, number: int) -> State:
        earlier = next((n for n in state.numbers() if self._is_earlier_note(n, number)), None)
        if earlier is None or state.earlier is not None:
            return state
        note = read_note(self.history.artifacts[self.history.spans[earlier].start].text)
        return state if note is None else replace(state, earlier=note)

    # -- names that the history introduced later

    def _masked_again(self, state: State, number: int) -> State:
        """Return the state with all earlier texts masked again, so that names that became known later are hidden.

        Only rules that learn names need this (`ctxguard.pii.PEOPLE`). It is the one text that a cut writes, because a
        placeholder may take more tokens than the name.
        """
        if not self.draft.masking.remasks:
            return state
        history, count = self.history, self.draft.counter.artifact
        at = history.artifacts[history.spans[number].start]
        there = {p: self.stays(n) for n in state.numbers() if n < number for p in self.positions(n)}
        there |= dict.fromkeys(history.authority[: state.authority], True)
        masked, fixed = dict(state.masked), state.fixed
        for position, is_fixed in there.items():
            before, tokens = masked.get(position, (history.artifacts[position], history.costs[position]))
            after = self.draft.mask_again(before, at)
            if after is not before:
                masked[position] = after, count(after)
                fixed += count(after) - tokens if is_fixed and position not in state.forms else 0
        return replace(state, masked=masked, fixed=fixed)

    # -- mandatory messages that exceed the budget

    def _squeezed(self, state: State, number: int) -> State:
        """Return the state with mandatory texts shortened until the budget suffices, or as far as they can be.

        Tool outputs are shortened first, because the model can request them again, then the trail is dropped, then
        assistant messages and their arguments are shortened, then user messages. The task and the last user message are
        shortened only with `on_overflow="bound"`.
        """
        history = self.history
        last = (history.last_asked(number + 1), history.last_user(number + 1), self.task)
        people = [history.start(n) for n in dict.fromkeys(last) if n is not None]
        kept = [p for n in state.numbers() if not self.stays(n) for p in self.positions(n) if p not in people]
        tools, spoken, asked = (
            [p for p in kept if history.artifacts[p].kind in kinds]
            for kinds in ((Kind.TOOL,), (Kind.ASSISTANT,), (Kind.USER, Kind.SYSTEM))
        )
        bounds_people = self.settings.on_overflow == "bound"
        state = self._without_note(self._capped(state, tools, _FLOORS[0], number), number)
        for positions in (spoken, asked):
            state = self._capped(state, positions, _FLOORS[0], number)
        for groups in ((tools, spoken, asked), (people,) if bounds_people else ()):
            for positions in groups:
                state = self._capped(state, positions, _FLOORS[1], number)
        return state

    def _without_note(self, state: State, number: int) -> State:
        """Return the state without the trail and older texts that stages wrote, as far as the budget requires."""
        if state.total <= self.budget(state):
            return state
        state, stay = replace(state, noted=0), (number, self.history.last_user(number + 1))
        for other in state.kept:
            span = self.history.spans[other]
            is_record = span.has_user_role and not span.is_asked and other not in stay and not self.stays(other)
            if is_record and state.total > self.budget(state):
                state = self._with_kept(state, (n for n in state.kept if n != other), number)
        return state

    def _capped(self, state: State, positions: Sequence[int], floor: int, number: int) -> State:
        """Return the state with each of the artifacts at `positions` limited to the same size, to meet the budget."""
        excess = state.total - self.budget(state)
        sizes = {p: self.tokens_at(state, p) for p in positions if not self.history.artifacts[p].pinned}
        if excess <= 0 or not sizes:
            return state
        available = sum(sizes.values()) - excess
        forms, saved, of_task = dict(state.forms), 0, 0
        task = None if self.task is None else self.history.start(self.task)
        # The smallest first, each at most its share of what is left, so that a few huge texts are shortened before many
        # small ones.
        for done, position in enumerate(sorted(sizes, key=sizes.__getitem__)):
            cap = max(floor, available // (len(sizes) - done))
            keeps_media = floor == _FLOORS[0]
            limit = max(cap, self._least(position) + (self.media(position) if keeps_media else 0))
            if sizes[position] > limit:
                speaks = self.history.artifacts[position].kind is not Kind.TOOL
                forms[position] = Shortening(limit, number, "the mandatory messages did not fit", keeps_media, speaks)
                saved += sizes[position] - limit
                of_task += sizes[position] - limit if position == task else 0
            available -= min(sizes[position], limit)
        return replace(state, forms=forms, fixed=state.fixed - of_task, tokens=state.tokens - saved + of_task)

    def _least(self, position: int) -> int:
        """Return the fewest tokens that an artifact can be limited to: what no shortening removes, and a short note."""
        artifact, rigid = self.history.artifacts[position], self.rigid(position)
        if artifact.calls and not self.is_open(position):
            arguments = sum(self.draft.counter.text(call.arguments) for call in artifact.calls)
            rigid -= max(0, arguments - _FLOORS[1] // 2 * len(artifact.calls))
        return rigid + _FLOORS[1] // 2

    def is_open(self, position: int) -> bool:
        """Return whether some tool calls of an artifact have no results yet, so that tools may be running."""
        artifacts = self.history.artifacts
        calls = artifacts[position].calls
        following = artifacts[position + 1 : position + 1 + len(calls)]
        return bool(calls) and sum(a.kind is Kind.TOOL for a in following) < len(calls)


_MEDIA_NOTE: Final = 16
"""Maximum number of tokens in the note that stands for a picture or another medium that a cut took out."""


def _hard_tokens(artifact: Artifact, draft: Draft) -> tuple[int, int]:
    """Return the tokens of an artifact that shortening its texts cannot remove: without its media, and of its media."""
    counter, content = draft.counter, artifact.content
    measured = counter.measured(artifact)
    if isinstance(content, str):
        rigid, media = measured - counter.text(content), 0
    else:
        leaving = [part for part in content if may_leave(artifact, part)]
        soft = sum(counter.part(part) for part in content if part.text is not None and part.editable)
        media = sum(max(0, counter.part(part) - _MEDIA_NOTE) for part in leaving)
        rigid = measured - soft - media
    claimed = counter.artifact(artifact)  # a count that the caller gave may differ from ours
    if claimed == measured:
        return rigid, media
    return -(-claimed * rigid // max(1, measured)), -(-claimed * media // max(1, measured))


def _is_signed(artifact: Artifact) -> bool:
    return type(artifact.content) is tuple and any(part.signed for part in artifact.content)
