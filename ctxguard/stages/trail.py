"""Write the trail: what has left the context, a line for each step, the newest in most detail.

Everything here is a pure function. A trail adds up the traces of the exchanges that have left (see `traces`); its text
is written anew at each cut.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from functools import lru_cache
from heapq import nsmallest
from typing import Final, NamedTuple

from ctxguard.artifacts import Kind
from ctxguard.content.digests import clipped
from ctxguard.content.names import labeled, names_in
from ctxguard.stages.traces import NAMES, Step, Trace

_OPENING: Final = "{} earlier step{}, the oldest first:"
_COUNT_ALONE: Final = "{} earlier step{}."
_ALSO: Final = "Also seen:"
_SOME_TOLD: Final = "{} earlier steps ({} told), the oldest first:"
_OPENED: Final = re.compile(r"(\d+) earlier steps?(?:(?: \(\d+ told\))?, the oldest first:|\.)")
_PRICED: Final = 800
"""Names that are counted by the tokenizer at one cut."""
_LABELED: Final = 1.5
"""What a label makes a name worth: `order_id A-17` tells more than `A-17`."""
_PEERS: Final = 0.25
"""Power of the number of names under one label that divides what each is worth."""
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
        return f"- {who} {what}".rstrip() + (f" → {_quoted(step.ended)}" if step.ended else "") + handle


def _quoted(text: str) -> str:
    """Return what a tool returned in quotes that it cannot end: a trail has the user's role, and a tool may not."""
    shown = "".join(sign for sign in text if sign.isprintable())
    return f'"{shown.replace(chr(34), chr(39))}"'


_SPEAKERS: Final = (Kind.USER.value, Kind.ASSISTANT.value)


def _told_together(step: Step) -> object:
    """Return what steps have in common that are one line: what they are about, else all of what they did."""
    return step.subject or (step.who, step.what)


class _Place(NamedTuple):
    """Say where a name stood last.

    Attributes:
        number: of the exchange.
        order: its place among the names of the exchange.
        who: the tool or speaker.
        line: what the steps of its line have in common.
        label: what it is the value of.
        peers: how many names of the exchange have that label.
    """

    number: int
    order: int
    who: str
    line: object
    label: str
    peers: int


_NOWHERE: Final = _Place(-1, 0, "", "", "", 1)


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
            lines = [_told_together(step) for step in trace.steps]
            # A name stands where it was seen last: old lines merge first, and would take it along.
            peers = Counter(label for (label, _), _ in trace.names)
            for index, ((label, name), by) in enumerate(trace.names):
                if pool.get(name, _NOWHERE).number < number:
                    pool[name] = _Place(number, index, trace.steps[by].who, lines[by], label, peers[label])
        return Trail(steps, counts, entries, pool)

    def text(
        self,
        max_tokens: int,
        *,
        count: Callable[[str], int],
        uses: Mapping[str, int],
        now: int,
        held: AbstractSet[str] = frozenset(),
        opening: int | None = None,
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
            opening: number of the message that said what the work is, where it has left; its line comes before all.
        """
        writer = _Writer(self, max_tokens, count)
        writer.choose_lines(opening)
        writer.choose_names(uses, now, held)
        if writer.fill_with_lines():
            # Names go behind the lines that were added, and what these tell themselves is not told twice.
            writer.drop_names()
            writer.choose_names(uses, now, held)
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
        self.room_left = max_tokens - count(self._opening(trail.steps)) - 4
        self.lines: dict[object, str] = {}
        self.names: dict[object, list[str]] = {}
        self.room_of_names = 0

    def choose_lines(self, opening: int | None) -> None:
        first = [item for item in self.trail.entries.items() if item[1].number == opening]
        self._choose(first, self.room_left // 2)
        newest = sorted(self.trail.entries.items(), key=lambda item: -item[1].number)
        newest = [item for item in newest if item[0] not in self.lines]
        room = int(_LINES * self.room_left)
        # What people said first, and not more than its share: the steps of tools are many and would crowd it out.
        said = [item for item in newest if item[1].step.who == Kind.USER.value]
        room -= self._choose(said, int(_PEOPLE * room))
        self._choose([item for item in newest if item[1].step.who != Kind.USER.value], room)

    def fill_with_lines(self) -> bool:
        """Spend what the names have left on older lines; return whether there was room for any."""
        before = len(self.lines)
        entries = (item for item in self.trail.entries.items() if item[0] not in self.lines)
        untold = sorted(entries, key=lambda item: -item[1].number)
        self._choose(untold, self.room_left)
        if not self.lines and not self.names and untold:
            self._choose_part(*untold[0])
        return len(self.lines) > before

    def drop_names(self) -> None:
        """Take all names off the trail, to choose them anew."""
        self.room_left += self.room_of_names
        self.room_of_names = 0
        self.names.clear()

    def _choose_part(self, key: object, entry: _Entry) -> None:
        """Take as much of a line as there is room for: where next to nothing fits, it still tells of the last step."""
        line = entry.line
        while len(line) > _LEAST_LINE and self.count(line) + 1 > self.room_left:
            line = clipped(line, len(line) * 3 // 4)
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
        self.room_left -= taken
        return taken

    def choose_names(self, uses: Mapping[str, int], now: int, held: AbstractSet[str]) -> None:
        # A name that a line or the context tells already would be paid for twice.
        told = {part for line in self.lines.values() for name in names_in(line) for part in _parts(name)}
        told.update(part for name in held for part in _parts(name))
        in_vain = 0
        for _, _, name, tokens in sorted(self._ranked(uses, now, told)):
            if name in told:
                continue
            price = tokens + self._price_of_place(name)
            in_vain = in_vain + 1 if price > self.room_left else 0
            if in_vain == _IN_VAIN:
                return
            if not in_vain:
                self.room_left -= price
                self.room_of_names += price
                self.names.setdefault(self._home(name), []).append(name)
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

    def _home(self, name: str) -> object:
        place = self.trail.pool[name]
        return place.line if place.line in self.lines else _Counted(place.who)

    def _price_of_place(self, name: str) -> int:
        """Return the tokens of a label, and of a counted line that has to be opened for a name."""
        home, label = self._home(name), self.trail.pool[name].label
        known = self.names.get(home, ())
        opened = 0 if known else (8 if isinstance(home, _Counted) else 2)
        is_told = not label or any(self.trail.pool[other].label == label for other in known)
        return opened + (0 if is_told else self.count(f" {label}"))

    def written(self) -> str:
        counted = [self._counted(who) for who in self.trail.counts if _Counted(who) in self.names]
        order = sorted(self.lines, key=lambda key: self.trail.entries[key].number)
        lines = [self.lines[key] + self._names_text(key, " | ") for key in order]
        steps = [sum(self.trail.entries[key].times.values()) for key in order]
        lines += [_ALSO, *counted] if counted else []
        # Tokens of parts do not add up exactly; the oldest line makes up for the difference.
        while lines and lines != [_ALSO]:
            text = "\n".join((self._opening(sum(steps)), *lines))
            if self.count(text) <= self.max_tokens:
                return text
            del lines[0], steps[:1]
        alone = _COUNT_ALONE.format(self.trail.steps, "" if self.trail.steps == 1 else "s")
        return alone if self.count(alone) <= self.max_tokens else ""

    def _opening(self, told: int) -> str:
        steps = self.trail.steps
        if told < steps:
            return _SOME_TOLD.format(steps, told)
        return _OPENING.format(steps, "" if steps == 1 else "s")

    def _counted(self, who: str) -> str:
        return f"{who} ×{self.trail.counts[who]}{self._names_text(_Counted(who), ': ')}"

    def _names_text(self, home: object, before: str) -> str:
        names = sorted(self.names.get(home, ()), key=lambda name: self.trail.pool[name][:2])
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
    lines = rest.split("\n")
    # Each line with a number of its own: the newest stand last, and are the last to go.
    for place, line in enumerate(lines, number - len(lines) - 1):
        if line == _ALSO:
            continue
        who = _read_counted(line, counts) or _read_line(line, place, entries)
        names = names_in(line, NAMES)
        pool.update((name, _Place(number, index, who, None, "", 1)) for index, name in enumerate(names))
    # Who stands in no counted line was told in lines alone.
    told = Counter[str]()
    for entry in entries.values():
        told.update(entry.times)
    return replace(trail, counts={**told, **counts}, entries=entries, pool=pool)


_COUNTED: Final = re.compile(r"(\S.*?) ×(\d+)(?::.*)?")


def _read_counted(line: str, counts: dict[str, int]) -> str:
    match = _COUNTED.fullmatch(line) if not line.startswith("- ") else None
    if match is None:
        return ""
    counts[match[1]] = counts.get(match[1], 0) + int(match[2])
    return match[1]


_TIMES: Final = r"[^\s,]+(?: ×\d+)?"
_TOOLS: Final = re.compile(rf"({_TIMES}(?:, {_TIMES})*)(?: (.*))?")
_SAID: Final = re.compile(rf"({'|'.join(_SPEAKERS)}): (.*?)(?: \(×(\d+)\))?((?: \[[a-z]+\])?)")


def _read_line(line: str, number: int, entries: dict[object, _Entry]) -> str:
    """Take a line over as it stands, without the names that were added to it."""
    text = line.removeprefix("- ").partition(" | ")[0]
    said, called = _SAID.fullmatch(text), _TOOLS.fullmatch(text)
    if said is not None:
        step, times = Step(said[1], said[2] + said[4]), {said[1]: int(said[3] or 1)}
    elif called is not None:
        times = dict(_times_of(part) for part in called[1].split(", "))
        first, _, rest = (called[2] or "").partition(" ")
        # What a step is about stands first, where there is such a thing.
        subject = first if names_in(first) == (first,) else None
        step = Step(next(iter(times)), rest if subject else called[2] or "", subject)
    else:
        step, times = Step("", text), {"": 1}
    entries[_told_together(step)] = _Entry(number, step, times)
    return step.who


def _times_of(part: str) -> tuple[str, int]:
    who, _, times = part.partition(" ×")
    return who, int(times or 1)
