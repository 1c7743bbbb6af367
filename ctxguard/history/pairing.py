"""Matching of tool results with tool calls in a raw history, in which results may be late or missing."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final, NoReturn, TypeAlias, cast

from ctxguard.artifacts import BY_POSITION, Artifact, Half, Kind, ToolCall
from ctxguard.errors import HistoryError


@dataclass(frozen=True, slots=True)
class Exchange:
    """One exchange: an assistant message that calls tools together with all results, or a single other artifact.

    Attributes:
        artifacts: The artifacts of the exchange, in the order of the history.
        positions: The positions of these artifacts in the history. Results that came late are not adjacent.
        open: Whether a call still waits for its result and nothing but results of this exchange has followed.
    """

    artifacts: tuple[Artifact, ...]
    positions: tuple[int, ...]
    open: bool = False


@dataclass(slots=True)
class Pairing:
    """Records which tool result answers which tool call.

    A call is identified by the position of the artifact that makes it and the index of the call in that artifact.

    Attributes:
        owner: The call that each result answers, by position of the result.
        unanswered: The calls without a result, in order.
        orphans: Positions of the results that answer no call, or for which it is unclear which call they answer.
        unclear: Positions of the orphans that answer one of several calls, but it is unclear which one.
        doubtful: The unanswered calls that the unclear results may answer.
        duplicates: Positions of results whose call already had a result, and the position of that result.
        turn: Position of the latest user message, or -1 if there is none.
    """

    owner: dict[int, tuple[int, int]] = field(default_factory=dict)
    unanswered: list[tuple[int, int]] = field(default_factory=list)
    orphans: list[int] = field(default_factory=list)
    unclear: set[int] = field(default_factory=set)
    doubtful: set[tuple[int, int]] = field(default_factory=set)
    duplicates: dict[int, int] = field(default_factory=dict)
    turn: int = -1


def whole_until(artifacts: Sequence[Artifact], begin: int = 0, end: int | None = None) -> int | None:
    """Return the position at which the last complete exchange ends, for the common case of a well-formed history.

    In a well-formed history, every call has an id and is directly followed by its results. This function is much faster
    than `pair`, which would find the same position.

    Args:
        artifacts: The history.
        begin: Position at which to start, where an exchange begins.
        end: Position at which to stop; None means the end of the history.

    Returns:
        The position. None if the history is not well-formed; then only `pair` can find the position.
    """
    waiting: Counter[str | None] = Counter()
    left = 0
    whole = begin
    for position, artifact in enumerate(artifacts[begin:end], begin):
        if artifact.kind is Kind.TOOL:
            if not artifact.answers or not waiting[artifact.answers]:
                return None
            waiting[artifact.answers] -= 1
            left -= 1
        elif left:
            return None
        elif artifact.calls:
            waiting, left = Counter(call.id or None for call in artifact.calls), len(artifact.calls)
            if None in waiting:
                return None
        if not left:
            whole = position + 1
    return whole


def pair(
    artifacts: Sequence[Artifact], begin: int = 0, *, earlier: Pairing | None = None, is_end: bool = True
) -> Pairing:
    """Match tool results with tool calls; results that could answer several calls are not matched.

    Ids repeat across steps, are missing or empty, and results arrive late and in parallel. So a result answers, by
    decreasing evidence: a call with the same id; if only the result has an id, a call without one; if only the result's
    tool is known, a call of that tool; otherwise any call. Among several such calls, those directly before the results
    take precedence, then those of the current turn, then those before the latest user message.

    Consecutive results are matched with such calls in order. In two cases, it is unknown which call each result
    answers, and no result is matched. In the first, there are fewer results than calls, and no more results can follow.
    In the second, there are more results than calls in the nearest of these three groups, and calls of another group
    wait for a result, too.

    Args:
        artifacts: The history.
        begin: Position from which to continue. The artifact there is not a tool result.
        earlier: The pairing of the artifacts before `begin`. A second result of a call that was answered there counts
            as an orphan, not as a duplicate.
        is_end: Whether `artifacts` ends where the history ends, so that more results may follow later.
    """
    found, waiting = Pairing(turn=earlier.turn if earlier else -1), _Waiting()
    latest = begin
    while latest and artifacts[latest - 1].kind is Kind.ASSISTANT:
        latest -= 1
    for place, number in earlier.unanswered if earlier else ():
        tier = _LEFT_BEHIND if place < found.turn else _IN_TURN if place < latest else _LATEST
        waiting.add((place, number), artifacts[place].calls[number], tier)
    answered = _Answered()
    position = begin
    while position < len(artifacts):
        artifact = artifacts[position]
        end = position + 1
        if artifact.kind is Kind.TOOL:
            while end < len(artifacts) and artifacts[end].kind is Kind.TOOL:
                end += 1
            may_go_on = is_end and end == len(artifacts) and not holds_all_results(artifacts[end - 1])
            _pair_results(artifacts, range(position, end), waiting, found, answered, may_go_on=may_go_on)
            waiting.demote(_IN_TURN)
        elif artifact.kind is Kind.USER:
            found.turn = position
            waiting.demote(_LEFT_BEHIND)
        elif artifact.kind is not Kind.ASSISTANT:
            waiting.demote(_IN_TURN)
        for number, call in enumerate(artifact.calls):
            waiting.add((position, number), call)
        position = end
    found.owner = dict(sorted(found.owner.items()))
    found.orphans.sort()
    found.duplicates = dict(sorted(found.duplicates.items()))
    found.unanswered = sorted(waiting.calls)
    return found


def _pair_results(
    artifacts: Sequence[Artifact],
    places: Iterable[int],
    waiting: _Waiting,
    found: Pairing,
    answered: _Answered,
    *,
    may_go_on: bool,
) -> None:
    """Match consecutive results with calls. Results with the best evidence, such as a call id, are matched first."""
    left = list(places)
    for evidence in _EVIDENCE:
        groups: dict[_Key | None, list[int]] = {}
        for place in left:
            groups.setdefault(evidence(artifacts[place]), []).append(place)
        left = groups.pop(None, [])
        for key, results in groups.items():
            slots, is_clear = waiting.calls_for(key, len(results), may_go_on=may_go_on) if key else ([], True)
            if not is_clear:
                found.orphans += results
                found.unclear.update(results)
                found.doubtful.update(slots)
                continue
            for place, slot in zip(results, slots, strict=False):
                answered.add(waiting.answer(slot), place)
                found.owner[place] = slot
            left += results[len(slots) :]
    for place in left:
        # a duplicate for certain only if its call was answered here; otherwise its call may have been trimmed
        known = None if is_repeated(artifacts[place]) else answered.result_like(artifacts[place])
        if known is None:
            found.orphans.append(place)
        else:
            found.duplicates[place] = known


class _Answered:
    """The calls that have a result, by id and by tool."""

    def __init__(self) -> None:
        self._by_id: dict[str, int] = {}
        self._by_tool: dict[tuple[str | None, bool], list[int]] = {}  # by tool, and by whether the call has an id

    def add(self, call: ToolCall, place: int) -> None:
        """Note that the result at position `place` answers a call."""
        if call.id:
            self._by_id[call.id] = place
        for tool in (call.name, None):  # None is for all tools
            self._by_tool.setdefault((tool, bool(call.id)), []).append(place)

    def result_like(self, result: Artifact) -> int | None:
        """Return the position of the earlier result that answers the same call as `result`; None if there is none.

        A result without an id is only known to answer the same call if only one call, of its tool if that is known, was
        answered. Calls without an id take precedence.
        """
        if result.answers:
            return self._by_id.get(result.answers)
        places = self._by_tool.get((result.name, False)) or self._by_tool.get((result.name, True)) or []
        return places[0] if len(places) == 1 else None


class _Waiting:
    """The calls that wait for a result, in three tiers of precedence; finding a call takes constant time."""

    def __init__(self) -> None:
        self.calls: dict[_Slot, ToolCall] = {}
        self._tiers: tuple[dict[_Key, dict[_Slot, None]], ...] = ({}, {}, {})

    def add(self, slot: _Slot, call: ToolCall, tier: int = 0) -> None:
        self.calls[slot] = call
        for key in _keys(call):
            self._tiers[tier].setdefault(key, {})[slot] = None

    def demote(self, to: int) -> None:
        """Move all calls of higher precedence down to tier `to`, so that newer calls take precedence."""
        for tier in reversed(self._tiers[:to]):
            for key, slots in tier.items():
                self._tiers[to].setdefault(key, {}).update(slots)
            tier.clear()

    def calls_for(self, key: _Key, results: int, *, may_go_on: bool) -> tuple[list[_Slot], bool]:
        """Find the calls that consecutive results answer.

        Args:
            key: The evidence that all results share: a call id, the lack of an id, a tool, or nothing at all.
            results: Number of results with this evidence.
            may_go_on: Whether more results may follow.

        Returns:
            The calls in order, and True. If it is ambiguous which call each result answers: all calls that the results
            may answer, and False.
        """
        tiers = [slots for tier in self._tiers if (slots := tier.get(key))]
        if not tiers:
            return [], True
        if results < len(tiers[0]) and not may_go_on:
            return list(tiers[0]), False
        if results > len(tiers[0]) and len(tiers) > 1:  # late results, or duplicates
            return [slot for slots in tiers for slot in slots], False
        return list(islice(tiers[0], results)), True

    def answer(self, slot: _Slot) -> ToolCall:
        call = self.calls.pop(slot)
        for key in _keys(call):
            for tier in self._tiers:
                tier.get(key, {}).pop(slot, None)
        return call


_Slot: TypeAlias = tuple[int, int]
_Key: TypeAlias = tuple[str, "str | None"]
_ANY_CALL: Final[_Key] = ("any", None)
_LATEST, _IN_TURN, _LEFT_BEHIND = range(3)
# Recordings lose ids: a result with an id may answer a call without one, and the reverse. Each function returns the key
# under which to look for a result's call, or None if this evidence does not apply to the result.
_EVIDENCE: Final[tuple[Callable[[Artifact], _Key | None], ...]] = (
    lambda result: ("id", result.answers) if result.answers else None,
    lambda result: ("id", None) if result.answers else None,
    lambda result: None if result.answers or result.name is None else ("tool", result.name),
    lambda result: None if result.answers or result.name is not None or is_repeated(result) else _ANY_CALL,
)


def _keys(call: ToolCall) -> tuple[_Key, ...]:
    # a call in OpenAI's older form is only answered by a result in that form
    own = ("id", call.id or None)
    return (own,) if call.id == BY_POSITION else (own, ("tool", call.name), _ANY_CALL)


def is_repeated(artifact: Artifact) -> bool:
    """Return whether an artifact stands for an item that the history has twice, and that is sent once."""
    return getattr(artifact.source, "is_repeated", False)


def holds_all_results(artifact: Artifact) -> bool:
    """Return whether an artifact is a tool result in a format with the results of all parallel calls in one message."""
    return artifact.kind is Kind.TOOL and getattr(artifact.source, "holds_all_results", False)


def require_artifacts(messages: Iterable[object]) -> tuple[Artifact, ...]:
    """Return the messages of a history, which must be artifacts.

    Raises:
        HistoryError: If an item is not an `Artifact`, such as a message of a framework. The error says how to read it.
    """
    history = tuple(messages)
    for position, message in enumerate(history):
        if not isinstance(message, Artifact):
            raise HistoryError(
                f"expected an Artifact, got {type(message).__name__}; for messages of a provider or a framework, use "
                "ContextManager(…).process_messages, or read and write them: adapter = ctxguard."
                "adapting.detect_adapter(messages), adapter.read(messages), adapter.write(messages, artifacts)",
                position=position,
            )
    return cast("tuple[Artifact, ...]", history)


@dataclass(frozen=True, slots=True)
class CallIds:
    """The ids of tool calls that a provider accepts.

    Attributes:
        pattern: Regular expression that an id must match as a whole; None if any id is accepted.
        are_unique: Whether two calls of different messages must not have the same id. Two calls of one message never
            may.
    """

    pattern: str | None = None
    are_unique: bool = False


STRICT_IDS: Final = CallIds(r"[a-zA-Z0-9_-]{1,64}", are_unique=True)
"""The ids that Anthropic ("`tool_use` ids must be unique", "String should match pattern '^[a-zA-Z0-9_-]+$'"), Bedrock
(the same, at most 64 characters), and the Responses API accept."""


def lone_halves(artifacts: Sequence[Artifact]) -> dict[int, set[int]]:
    """Find the halves of the provider's own calls (see `Half`) that a provider refuses.

    These are results that do not come after their call, calls without a result, both halves of a call that was made
    before, and halves without an id. A call may still wait for its result if the model is not done: nothing, or only
    results of other calls of the model, come after it.

    Returns:
        The indexes of the parts, by the position of their artifact.
    """
    halves = _Halves()
    for position, artifact in enumerate(artifacts):
        if artifact.kind is Kind.USER:  # the provider no longer executes what waits
            halves.abandon()
        for number, part in enumerate(artifact.content if type(artifact.content) is tuple else ()):
            if part.half is not None:
                halves.add((position, number), part.half)
    last = len(artifacts) - 1
    goes_on = last >= 0 and (artifacts[last].kind is Kind.TOOL or bool(artifacts[last].calls))
    waiting = [place for place in halves.waiting.values() if not (goes_on or place[0] == last)]
    lone: dict[int, set[int]] = {}
    for position, number in [*halves.lone, *waiting]:
        lone.setdefault(position, set()).add(number)
    return lone


class _Halves:
    """The halves of the provider's own calls: those that wait for a result, and those that are alone."""

    def __init__(self) -> None:
        self.waiting: dict[str | None, tuple[int, int]] = {}
        self.lone: list[tuple[int, int]] = []
        self._done: set[str] = set()
        self._result: tuple[int, int] | None = None

    def abandon(self) -> None:
        """Give up the calls that wait for a result."""
        self.lone += self.waiting.values()
        self.waiting.clear()

    def add(self, place: tuple[int, int], half: Half) -> None:
        """Add the half at a place: the position of its artifact and the index of its part."""
        if half.id is None and None in self.waiting and self.waiting[None][0] != place[0]:
            self.lone.append(self.waiting.pop(None))  # only ids connect halves of different messages
        if half.is_result and half.id in self.waiting:
            del self.waiting[half.id]
            self._done.update(() if half.id is None else (half.id,))
            self._result = place
        elif half.is_result:
            # Gemini gives no ids, and may give several results of one execution
            is_further = half.id is None and self._result is not None and self._result[0] == place[0]
            self.lone += [] if is_further else [place]
        elif half.id is None:
            if None in self.waiting:  # paired by order, and the earlier call has no result
                self.lone.append(self.waiting[None])
            self.waiting[None] = place
        elif not half.id or half.id in self._done or half.id in self.waiting:
            self.lone.append(place)
        else:
            self.waiting[half.id] = place


def exchanges(artifacts: Iterable[Artifact]) -> tuple[Exchange, ...]:
    """Split a history into exchanges, ordered by where they begin.

    Every artifact is in exactly one exchange. A result that answers no call is an exchange of its own.

    Raises:
        HistoryError: If an item is not an `Artifact`.
    """
    history = require_artifacts(artifacts)
    found = pair(history)
    members: dict[int, list[int]] = {}
    for position in range(len(history)):
        members.setdefault(found.owner.get(position, (position, 0))[0], []).append(position)
    waiting = {position for position, _ in found.unanswered}
    last = max(members) if members else -1
    return tuple(
        Exchange(tuple(history[p] for p in positions), tuple(positions), open=begin == last and begin in waiting)
        for begin, positions in sorted(members.items())
    )


def is_well_formed(text: str) -> bool:
    """Return whether a text contains no half of a surrogate pair, so that it can be encoded."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def well_formed(text: str) -> str:
    """Return a text with U+FFFD in place of each half of a surrogate pair. Two halves that fit become one character."""
    return text if is_well_formed(text) else text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def parse_strictly(text: str) -> object:
    """Return the value of a JSON string, or None if a provider would refuse the string, which may contain no NaN."""
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)


_HALF: Final = "half of a surrogate pair is no text"
_NO_OBJECT: Final = "arguments of a function must be a JSON object"


def make_sound(artifact: Artifact, position: int) -> tuple[Artifact, str]:
    """Return an artifact whose texts and arguments can be sent as JSON, and the reason for a change.

    Args:
        artifact: The artifact; it is returned itself if nothing has to change.
        position: Its position in the history, for the error.

    Raises:
        HistoryError: If half of a surrogate pair is in a value that cannot be changed.
    """
    sound, why = artifact, ""
    if not _is_well_formed(artifact):
        sound, why = _well_formed(artifact), _HALF
        place = next((place for place, text, _ in sound.fixed_texts() if not is_well_formed(text)), None)
        if place is not None:
            raise HistoryError(f"{place} contains half of a surrogate pair, and cannot be changed", position=position)
    calls = tuple([_with_object(call) for call in sound.calls]) if sound.calls else ()
    return (sound, why) if calls == sound.calls else (sound.revised(calls=calls), _NO_OBJECT)


def _is_well_formed(artifact: Artifact) -> bool:
    """Return whether all strings of an artifact can be encoded."""
    content = artifact.content
    if type(content) is str and not artifact.calls and not artifact.fields:  # the common case
        return is_well_formed(content) and all(is_well_formed(text) for _, text, _ in artifact.fixed_texts())
    texts = (text for _, text in artifact.texts())
    return all(map(is_well_formed, texts)) and all(is_well_formed(text) for _, text, _ in artifact.fixed_texts())


def _well_formed(artifact: Artifact) -> Artifact:
    calls = tuple(replace(call, id=call.id and well_formed(call.id)) for call in artifact.calls)
    sound = artifact.revised(calls=calls, answers=artifact.answers and well_formed(artifact.answers))
    return sound.edit(lambda _slot, text: well_formed(text))


def _with_object(call: ToolCall) -> ToolCall:
    """Return a call whose arguments are a JSON object, if its tool takes one."""
    if not call.takes_object or call.arguments == "{}":
        return call
    value = parse_strictly(call.arguments)
    if isinstance(value, dict):
        # an escaped half of a surrogate pair is valid JSON for some parsers only
        halved = "\\ud" in call.arguments.lower() and not is_well_formed(_as_json(value))
        return replace(call, arguments=well_formed(_as_json(value))) if halved else call
    held = {} if not call.arguments.strip() else {"arguments": call.arguments if value is None else value}
    return replace(call, arguments=well_formed(_as_json(held)))


def _as_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
