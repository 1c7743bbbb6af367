"""Tell what one exchange did: a line for each call, and the names that a later step may have to repeat.

Everything here is a pure function of one exchange.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from ctxguard.artifacts import Artifact, Kind
from ctxguard.content.digests import clipped, outcome
from ctxguard.content.names import Labeled, ends_of, labeled_names, names_in, names_under, walk
from ctxguard.content.processors.json_tree import parse_json
from ctxguard.content.processors.tree import Number

NAMES: Final = 96
"""Names of one exchange that the trail may choose from."""
_VALUE: Final = 60
_STEP: Final = 110
_SAID: Final = 200
_USED: Final = 120
"""Characters of an argument whose names count as used by the model: paths, ids, commands, and no contents of files."""
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
        names: its distinctive strings with their labels and the number of the step that held them, in order: what the
            model wrote first, then what came back.
        used: the distinctive strings that the model itself wrote; empty for what others said.
    """

    steps: tuple[Step, ...]
    names: tuple[tuple[Labeled, int], ...]
    used: tuple[str, ...] = ()


def trace_of(exchange: Sequence[Artifact], handles: Mapping[int, str] | None = None) -> Trace:
    """Return the trace of an exchange.

    Args:
        exchange: its artifacts, masked, and before tool outputs were bounded where they are at hand.
        handles: where full outputs can be read back, by number of the artifact in the exchange.
    """
    first, results = exchange[0], exchange[1:]
    arguments = [_read(call.arguments) for call in first.calls]
    ends = _ends_by_call(first, results)
    # Names of parameters are told as well: an agent often has to use the same again.
    keys = [key for key in dict.fromkeys(key for pairs in arguments for key, _ in pairs) if _is_name(key)]
    tools = [call.name for call in first.calls if _is_name(call.name)]
    # What the model wrote comes first: names that it uses itself are those it needs again.
    found = _Names()
    found.add(labeled_names(_spoken(first), NAMES), 0)
    for step, pairs in enumerate(arguments):
        found.add(names_under(pairs), step)
    found.add((("", key) for key in keys), 0)
    steps_of = {place: step for step, place in ends.items()}
    for place, result in enumerate(results):
        found.add(labeled_names(result.text, NAMES), steps_of.get(place, 0))
    found.add((("", tool) for tool in tools), 0)
    short = (value for pairs in arguments for value in _values(pairs) if len(value) <= _USED)
    names = (name for text in (_spoken(first), *short) for name in names_in(text, NAMES))
    used = tuple({*names, *tools, *keys}) if first.kind is Kind.ASSISTANT else ()
    handles = handles or {}
    steps = tuple(_steps(first, arguments, results, ends, handles)) if first.calls else (_said(first, handles.get(0)),)
    return Trace(steps, found.first(NAMES), used)


class _Names:
    """Collect names, each as it was first met."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[str, int]] = {}

    def add(self, names: Iterable[Labeled], step: int) -> None:
        for label, name in names:
            self._found.setdefault(name, (label, step))

    def first(self, most: int) -> tuple[tuple[Labeled, int], ...]:
        return tuple(((label, name), step) for name, (label, step) in islice(self._found.items(), most))


def _is_name(text: str) -> bool:
    return names_in(text) == (text,)


def _spoken(artifact: Artifact) -> str:
    """Return what was said to others: reasoning is the model's own, and has no place in the user's role."""
    if isinstance(artifact.content, str):
        return artifact.content
    return "\n".join(part.text for part in artifact.content if part.text is not None and part.kind != "reasoning")


def _said(artifact: Artifact, handle: str | None) -> Step:
    return Step(artifact.name or artifact.kind.value, clipped(_spoken(artifact), _SAID), handle=handle)


def _steps(
    first: Artifact,
    arguments: Sequence[_Pairs],
    results: Sequence[Artifact],
    ends: Mapping[int, int],
    handles: Mapping[int, str],
) -> Iterator[Step]:
    for number, call in enumerate(first.calls):
        # Limits, offsets and seconds come behind what tells more.
        ordered = sorted(_values(arguments[number]), key=lambda value: isinstance(value, Number))
        texts = sum(not isinstance(value, Number) for value in ordered)
        values = [" ".join(value[: 4 * _STEP].split()) for value in ordered]
        # A value that is nothing but a name is what the call is about: a path, an id, an address.
        subject = next((value for value in values[: texts or None] if _is_name(value)), None)
        rest = " ".join(clipped(value, _VALUE) for value in values if value != subject)
        place = ends.get(number)
        ended = "" if place is None else outcome(results[place].text)
        handle = None if place is None else handles.get(place + 1)
        yield Step(call.name, clipped(rest, _STEP), subject, ended, handle)


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
