"""Write the trail: what has left the context, a line for each step, the newest in most detail.

Everything here is a pure function. A `Trace` is worked out once for an exchange; a `Trail` is a fold over the traces
of what left, in the order of the cuts; its text is written anew at each cut.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from functools import lru_cache
from heapq import nsmallest
from itertools import chain, islice
from typing import Final, NamedTuple

from ctxguard.artifacts import Artifact, Kind
from ctxguard.content.digests import outcome
from ctxguard.content.names import Labeled, ends_of, labeled, labeled_names, names_in, names_under, walk
from ctxguard.content.processors.json_tree import parse_json

__all__ = ["Step", "Trace", "Trail", "read_trail", "trace_of"]

_OPENING: Final = "{} earlier steps, the oldest first:"
_COUNT_ALONE: Final = "{} earlier steps."
_ALSO: Final = "Also seen:"
_OPENED: Final = re.compile(r"(\d+) earlier steps(?:, the oldest first:|\.)")
_NAMES: Final = 96
"""Names of one exchange that the trail may choose from."""
_PRICED: Final = 800
"""Names that are counted by the tokenizer at one cut."""
_USED: Final = 120
"""Characters of an argument whose names count as used by the model: paths, ids, commands, and no contents of files."""
_LABELED: Final = 1.5
"""What a label makes a name worth: `order_id A-17` tells more than `A-17`."""
_PEERS: Final = 0.25
"""Power of the number of names under one label that divides what each is worth."""
_VALUE: Final = 60
_STEP: Final = 110
_SAID: Final = 200
_LEAST_LINE: Final = 12
"""Characters of the shortest part of a line."""
_LINES: Final = 0.35
"""Share of the trail that lines may take before names are chosen."""
_PEOPLE: Final = 0.4
"""Share of it that goes to what people said, before the steps of tools."""
_USE: Final = 8
"""What each message of the model that held a name adds to its worth, up to `_MOST_USES` of them."""
_MOST_USES: Final = 5
_IN_VAIN: Final = 30
"""Names in a row that do not fit into what is left, after which no more are tried."""

_READ: Final = 4_000
"""Values of the arguments of one call that are looked at."""
_Pairs = tuple[tuple[str, object], ...]


@dataclass(frozen=True, slots=True)
class Step:
    """Say in one line what one call did, or what someone said.

    Attributes:
        who: name of the tool, or of the speaker (`user`, `assistant`).
        what: the values of the arguments, or the beginning of what was said.
        subject: the file, id or address that the call is about, where one of its arguments is nothing else.
        ended: how it ended, as far as its output says so.
        handle: where the full output can be read back; None where it is nowhere.
    """

    who: str
    what: str
    subject: str | None = None
    ended: str = ""
    handle: str | None = None


@dataclass(frozen=True, slots=True)
class Trace:
    """Hold what the trail needs of one exchange; worked out once.

    Attributes:
        steps: its calls, or the one thing that was said.
        names: its distinctive strings with their labels, in order: what the model wrote first, then what came back.
        used: the distinctive strings that the model itself wrote; empty for what others said.
    """

    steps: tuple[Step, ...]
    names: tuple[Labeled, ...]
    used: tuple[str, ...] = ()


def trace_of(exchange: Sequence[Artifact], handles: Mapping[int, str] | None = None) -> Trace:
    """Return the trace of an exchange.

    Args:
        exchange: its artifacts, masked, and before tool outputs were bounded where they are at hand.
        handles: where full outputs can be read back, by number of the artifact in the exchange.
    """
    first, results = exchange[0], exchange[1:]
    # What the model wrote comes first: names that it uses itself are those it needs again.
    labels = dict(_labels(_spoken(first)))
    arguments = [_read(call.arguments) for call in first.calls]
    for label, name in chain.from_iterable(map(names_under, arguments)):
        labels.setdefault(name, label)
    tools = [call.name for call in first.calls if names_in(call.name) == (call.name,)]
    # Names of parameters are told as well: an agent often has to use the same again.
    keys = [key for key in dict.fromkeys(key for pairs in arguments for key, _ in pairs) if names_in(key) == (key,)]
    short = (value for pairs in arguments for value in _values(pairs) if len(value) <= _USED)
    names = (name for text in (_spoken(first), *short) for name in names_in(text, _NAMES))
    used = tuple({*names, *tools, *keys}) if first.kind is Kind.ASSISTANT else ()
    labels.update(dict.fromkeys(keys, ""))
    for result in results:
        for name, label in _labels(result.text):
            labels.setdefault(name, label)
    labels.update(dict.fromkeys(tools, ""))
    handles = handles or {}
    steps = tuple(_steps(first, arguments, results, handles)) if first.calls else (_said(first, handles.get(0)),)
    return Trace(steps, tuple((label, name) for name, label in labels.items())[:_NAMES], used)


def _labels(text: str) -> list[tuple[str, str]]:
    return [(name, label) for label, name in labeled_names(text, _NAMES)]


def _spoken(artifact: Artifact) -> str:
    """Return what was said to others: reasoning is the model's own, and has no place in the user's role."""
    if isinstance(artifact.content, str):
        return artifact.content
    return "\n".join(part.text for part in artifact.content if part.text is not None and part.kind != "reasoning")


def _said(artifact: Artifact, handle: str | None) -> Step:
    return Step(artifact.name or artifact.kind.value, _clipped(_spoken(artifact), _SAID), handle=handle)


def _steps(
    first: Artifact, arguments: Sequence[_Pairs], results: Sequence[Artifact], handles: Mapping[int, str]
) -> Iterator[Step]:
    ends = _ends_by_call(first, results)
    for number, call in enumerate(first.calls):
        values = [" ".join(value[: 4 * _STEP].split()) for value in _values(arguments[number])]
        # A value that is nothing but a name is what the call is about: a path, an id, an address.
        subject = next((value for value in values if names_in(value) == (value,)), None)
        rest = " ".join(_clipped(value, _VALUE) for value in values if value != subject)
        place = ends.get(number)
        ended = "" if place is None else outcome(results[place].text)
        handle = None if place is None else handles.get(place + 1)
        yield Step(call.name, _clipped(rest, _STEP), subject, ended, handle)


def _ends_by_call(first: Artifact, results: Sequence[Artifact]) -> dict[int, int]:
    """Return the place of the result of each call: by id where it has one, else in order."""
    by_id: dict[str | None, deque[int]] = {}
    for number, call in enumerate(first.calls):
        by_id.setdefault(call.id, deque()).append(number)
    in_order = deque(range(len(first.calls)))
    places: dict[int, int] = {}
    for place, result in enumerate(results):
        while in_order and in_order[0] in places:
            in_order.popleft()
        # Without an id, results are taken in the order of their calls, as everywhere.
        numbers = by_id.get(result.answers) or in_order
        if numbers:
            places[numbers.popleft()] = place
    return places


def _read(arguments: str) -> _Pairs:
    """Return the keys and values of a call's arguments, some thousands at most."""
    try:
        tree: object = parse_json(arguments)
    # Arguments may be cut off or no JSON at all; their ends still hold names.
    except ValueError:
        tree = ends_of(arguments)
    return tuple(islice(walk(tree), _READ))


def _values(pairs: _Pairs) -> Iterator[str]:
    """Walk the plain values among them, numbers as they were spelled."""
    return (node for _, node in pairs if isinstance(node, str))


def _clipped(text: str, length: int) -> str:
    text = " ".join(text[: 4 * length].split())
    return text if len(text) <= length else text[: length - 1].rstrip() + "…"


@dataclass(frozen=True, slots=True)
class _Entry:
    """Hold one line: the steps that are told together, as the newest of them reads.

    Attributes:
        number: of the newest exchange among them.
        step: the newest of them.
        times: how many there are, by tool or speaker.
    """

    number: int
    step: Step
    times: Mapping[str, int]

    @property
    def line(self) -> str:
        step = self.step
        if step.who in _SPEAKERS:
            times, handle = sum(self.times.values()), f" [{step.handle}]" if step.handle else ""
            return f"- {step.who}: {step.what}" + (f" (×{times})" if times > 1 else "") + handle
        who = ", ".join(tool if n == 1 else f"{tool} ×{n}" for tool, n in self.times.items())
        what = " ".join(filter(None, (step.subject, step.what)))
        handle = f" [{step.handle}]" if step.handle else ""
        return f"- {who} {what}".rstrip() + (f" → {step.ended}" if step.ended else "") + handle


_SPEAKERS: Final = (Kind.USER.value, Kind.ASSISTANT.value)


def _told_together(step: Step) -> object:
    """Return what steps have in common that are one line: what they are about, else all of what they did."""
    return step.subject or (step.who, step.what)


class _Place(NamedTuple):
    """Say where a name stood: exchange, place among its names, tool or speaker, label, and how many have that label."""

    number: int
    order: int
    who: str
    label: str
    peers: int


_NOWHERE: Final = _Place(-1, 0, "", "", 1)


@dataclass(frozen=True, slots=True)
class Trail:
    """Hold what has left so far. Immutable: `extended` returns a new one.

    Attributes:
        steps: how many steps have left.
        counts: how often each tool was called, or each speaker spoke, in what has left.
        entries: the newest lines, by what their steps have in common.
        pool: distinctive strings of what has left, with the newest exchange that held each.
    """

    steps: int = 0
    counts: Mapping[str, int] = field(default_factory=dict)
    entries: Mapping[object, _Entry] = field(default_factory=dict)
    pool: Mapping[str, _Place] = field(default_factory=dict)

    def extended(self, left: Iterable[tuple[int, Trace]]) -> Trail:
        """Return the trail with more exchanges on it.

        Args:
            left: what has left, with its number in the history, in order.
        """
        counts, entries, pool = Counter(self.counts), dict(self.entries), dict(self.pool)
        steps = self.steps
        for number, trace in left:
            steps += len(trace.steps)
            for step in trace.steps:
                counts[step.who] += 1
                _enter(entries, number, step)
            who = trace.steps[0].who
            # A name stands where it was seen last: old lines merge first, and would take it along.
            peers = Counter(label for label, _ in trace.names)
            for index, (label, name) in enumerate(trace.names):
                if pool.get(name, _NOWHERE).number < number:
                    pool[name] = _Place(number, index, who, label, peers[label])
        return Trail(steps, counts, entries, pool)

    def text(
        self,
        max_tokens: int,
        *,
        count: Callable[[str], int],
        uses: Mapping[str, int],
        now: int,
        held: AbstractSet[str] = frozenset(),
    ) -> str:
        """Return the trail as text, within `max_tokens`; their count alone, or nothing, where no line fits.

        Lines come first, the newest up to a third of the room, what people said before the steps of tools. The rest
        goes to names, by worth for each token, see `_worth`: uses raise it, age and names alike lower it. A name stands
        behind the line of the exchange that held it last, or behind the count of its tool where that line is not told.

        Args:
            max_tokens: tokens the text may have.
            count: counts the tokens of a text.
            uses: how many messages of the model hold each string, so far.
            now: number of the newest exchange.
            held: strings that stand in the rest of the context, which need not be told again.
        """
        writer = _Writer(self, max_tokens, count)
        writer.choose_lines()
        writer.choose_names(uses, now, held)
        writer.fill_with_lines()
        return writer.written()


@dataclass(frozen=True, slots=True)
class _Counted:
    """Name the counted line of a tool or speaker, as a place where names stand."""

    who: str


def _enter(entries: dict[object, _Entry], number: int, step: Step) -> None:
    key = _told_together(step)
    # Taken out and put in again: the order of the dict is that of the latest mention.
    known = entries.pop(key, None)
    if known is None:
        entries[key] = _Entry(number, step, {step.who: 1})
        return
    times = {**known.times, step.who: known.times.get(step.who, 0) + 1}
    entries[key] = _Entry(max(number, known.number), step if number >= known.number else known.step, times)


def _worth(uses: int, age: int, place: _Place) -> float:
    # A name with a label tells more than a bare one, and one of forty alike is seldom the one that is needed.
    alike: float = place.peers**_PEERS
    return (_LABELED if place.label else 1.0) / alike * (1 + _USE * min(uses, _MOST_USES)) / (age + 1)


_BETWEEN: Final = re.compile(r"[/.:#@]+")


@lru_cache(maxsize=65_536)
def _parts(name: str) -> tuple[str, ...]:
    """Return what a name tells: itself, and what it begins and ends with (a path tells the name of its file)."""
    breaks = [match.span() for match in _BETWEEN.finditer(name)][:16]
    return (name, *(name[end:] for _, end in breaks), *(name[:start] for start, _ in breaks))


class _Writer:
    """Choose what of a trail is told within a limit, and write it."""

    def __init__(self, trail: Trail, max_tokens: int, count: Callable[[str], int]) -> None:
        self.trail, self.max_tokens, self.count = trail, max_tokens, count
        self.opening = _OPENING.format(trail.steps)
        self.room_left = max_tokens - count(self.opening) - 4
        self.lines: dict[object, str] = {}
        self.behind: dict[int, object] = {}
        self.names: dict[object, list[str]] = {}

    def choose_lines(self) -> None:
        newest = sorted(self.trail.entries.items(), key=lambda item: -item[1].number)
        room = int(_LINES * self.room_left)
        # What people said first, and not more than its share: the steps of tools are many and would crowd it out.
        said = [item for item in newest if item[1].step.who == Kind.USER.value]
        room -= self._choose(said, int(_PEOPLE * room))
        self._choose([item for item in newest if item[1].step.who != Kind.USER.value], room)

    def fill_with_lines(self) -> None:
        """Spend what the names have left on older lines."""
        entries = (item for item in self.trail.entries.items() if item[0] not in self.lines)
        untold = sorted(entries, key=lambda item: -item[1].number)
        self._choose(untold, self.room_left)
        if not self.lines and not self.names and untold:
            self._choose_part(*untold[0])

    def _choose_part(self, key: object, entry: _Entry) -> None:
        """Take as much of a line as there is room for: where next to nothing fits, it still tells of the last step."""
        line = entry.line
        while len(line) > _LEAST_LINE and self.count(line) + 1 > self.room_left:
            line = _clipped(line, len(line) * 3 // 4)
        if self.count(line) + 1 <= self.room_left:
            self.lines[key] = line

    def _choose(self, entries: Iterable[tuple[object, _Entry]], room: int) -> int:
        """Take lines while there is room, and return the tokens they took."""
        taken = 0
        for key, entry in entries:
            tokens = self.count(entry.line) + 1
            # Stop at the first that does not fit: lines stay a contiguous stretch of the latest steps.
            if taken + tokens > room:
                break
            taken += tokens
            self.lines[key] = entry.line
            self.behind.setdefault(entry.number, key)
        self.room_left -= taken
        return taken

    def choose_names(self, uses: Mapping[str, int], now: int, held: AbstractSet[str]) -> None:
        # A name that a line or the context tells already would be paid for twice.
        told = {part for line in self.lines.values() for name in names_in(line) for part in _parts(name)}
        told.update(part for name in held for part in _parts(name))
        in_vain = 0
        for _, number, name, tokens in sorted(self._ranked(uses, now, told)):
            if name in told:
                continue
            price = tokens + self._price_of_place(-number, name)
            in_vain = in_vain + 1 if price > self.room_left else 0
            if in_vain == _IN_VAIN:
                return
            if not in_vain:
                self.room_left -= price
                self.names.setdefault(self._home(-number, name), []).append(name)
                told.update(_parts(name))

    def _ranked(
        self, uses: Mapping[str, int], now: int, told: AbstractSet[str]
    ) -> Iterator[tuple[float, int, str, int]]:
        """Walk the best of the names that are not told yet, with what they sort by: worth for each token, then age.

        Tokens are counted only for names that are among the best by their length.
        """
        worth = (
            (-_worth(uses.get(name, 0), now - place.number, place) / (len(name) + 3), -place.number, name)
            for name, place in self.trail.pool.items()
            if name not in told
        )
        # Tokenizing every name would be the most expensive part of a cut; length is a good first guess.
        for value, number, name in nsmallest(min(_PRICED, self.max_tokens // 2), worth):
            tokens = self.count(f" {name}")
            yield value * (len(name) + 3) / max(tokens, 1), number, name, tokens

    def _home(self, number: int, name: str) -> object:
        return self.behind.get(number, _Counted(self.trail.pool[name].who))

    def _price_of_place(self, number: int, name: str) -> int:
        """Return the tokens of a label, and of a counted line that has to be opened for a name."""
        home, label = self._home(number, name), self.trail.pool[name].label
        known = self.names.get(home, ())
        opened = 0 if known else (8 if isinstance(home, _Counted) else 2)
        is_told = not label or any(self.trail.pool[other].label == label for other in known)
        return opened + (0 if is_told else self.count(f" {label}"))

    def written(self) -> str:
        counted = [self._counted(who) for who in self.trail.counts if _Counted(who) in self.names]
        order = sorted(self.lines, key=lambda key: self.trail.entries[key].number)
        lines = [self.lines[key] + self._names_text(key, " | ") for key in order]
        lines += [_ALSO, *counted] if counted else []
        text = "\n".join((self.opening, *lines))
        # Tokens of parts do not add up exactly; the oldest line makes up for the difference.
        while lines and self.count(text) > self.max_tokens:
            lines.pop(0)
            text = "\n".join((self.opening, *lines))
        if lines and lines != [_ALSO]:
            return text
        alone = _COUNT_ALONE.format(self.trail.steps)
        return alone if self.count(alone) <= self.max_tokens else ""

    def _counted(self, who: str) -> str:
        return f"{who} ×{self.trail.counts[who]}{self._names_text(_Counted(who), ': ')}"

    def _names_text(self, home: object, before: str) -> str:
        names = sorted(self.names.get(home, ()), key=self.trail.pool.__getitem__)
        who = home.who if isinstance(home, _Counted) else None
        told = labeled((self.trail.pool[name].label, name) for name in names if name != who)
        return before + told if told else ""


def read_trail(text: str, number: int) -> Trail | None:
    """Read a trail that was written earlier and stands in the history, so that the next one can go on from it.

    Args:
        text: the text of a message.
        number: of the exchange that the message is.

    Returns:
        The trail, or None where the text is not one.
    """
    opening, _, rest = text.partition("\n")
    opened = _OPENED.fullmatch(opening)
    # Somebody's own text below our title, or a trail of another version: it is not read, and stays a message.
    if opened is None:
        return None
    trail = Trail(steps=int(opened[1]))
    counts, entries, pool = dict(trail.counts), dict(trail.entries), dict(trail.pool)
    for line in rest.split("\n"):
        if line == _ALSO:
            continue
        who = _read_counted(line, counts) or _read_line(line, number, entries)
        names = names_in(line, _NAMES)
        pool.update((name, _Place(number, index, who, "", 1)) for index, name in enumerate(names))
    return replace(trail, counts=counts, entries=entries, pool=pool)


_COUNTED: Final = re.compile(r"(\S.*?) ×(\d+)(?::.*)?")


def _read_counted(line: str, counts: dict[str, int]) -> str:
    match = _COUNTED.fullmatch(line) if not line.startswith("- ") else None
    if match is None:
        return ""
    counts[match[1]] = counts.get(match[1], 0) + int(match[2])
    return match[1]


def _read_line(line: str, number: int, entries: dict[object, _Entry]) -> str:
    """Take a line over as it stands, without the names that were added to it."""
    said = line.removeprefix("- ").partition(" | ")[0]
    who = said.partition(": ")[0] if said.startswith(tuple(f"{who}: " for who in _SPEAKERS)) else said.partition(" ")[0]
    what = said[len(who) :].lstrip(": ")
    entries[(who, what)] = _Entry(number, Step(who, what), {who: 1})
    return who
