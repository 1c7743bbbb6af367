"""How well the table of facts holds for requests that it was not fitted on: each recording is left out in turn.

The constants of a family are fitted again, from the defaults of `Costs`, on its other recordings; then the recording
that was left out is counted with them. Counts are linear in the constants as far as they can be fitted, so each
request is counted once for each constant, and the fit is one of least squares that large errors do not bend.
"""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np

from ctxguard.formats.usage import Compared
from ctxguard.tokens import count_request
from ctxguard.tokens.counters import FamilyCounter, find_counter
from ctxguard.tokens.families import Costs, Family, ToolCosts

KINS: Final[Mapping[str, tuple[str, float, int]]] = {
    "gpt-4o": ("gpt-4o and gpt-4.1", 0.03, 8),
    "gpt-5": ("gpt-5, o-series", 0.03, 8),
    "claude-4": ("Claude 4 to 4.6", 0.05, 30),
    "claude-4.7": ("Claude 4.7 and later", 0.05, 30),
    "gemini-2.5": ("Gemini 2.5", 0.1, 10),
    "gemini-3": ("Gemini 3", 0.1, 10),
}
"""The families with more than ten requests, and the tolerance that is asked of them."""
CONSTANTS: Final = (
    *("reply", "message", "channel", "system", "result", "call", "parallel", "thinking", "document", "empty_system"),
    *("tools.once", "tools.once_flat", "tools.once_forced", "tools.late", "tools.search", "tools.namespace"),
    *("tools.beside_system", "tools.beside_system_flat", "tools.each", "tools.share"),
    *("schema.once", "schema.share", "scale", "sealed"),
)
ROUNDS: Final = 40
ODD: Final = 2.0
"""From how many times the tolerance on an error counts less, so that one odd recording does not bend the rest."""
WEAK: Final = 0.1
"""How strongly constants are held to their defaults, which decides where recordings do not tell two apart: one that is
off by its scale costs as much as this share of the tolerance."""
PROMPTS: Final = ("thinking", "empty_system", "tools.once", "tools.once_flat", "tools.once_forced", "tools.late")


@dataclass(frozen=True, slots=True)
class Case:
    """Hold a request as the fit sees it: what it was off by, and by how much each constant's unit moves its count."""

    recording: str
    row: Compared
    off: float
    moves: tuple[float, ...]


def recordings(path: Path) -> list[str]:
    """Return the recording of each request."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        records = [json.loads(line) for line in lines if line.strip()]
    return [record.get("path") or record["id"] for record in records]


def unit(constant: str) -> float:
    """Return the step in which a constant is fitted: a token, or a hundredth of a factor."""
    return 0.01 if constant.endswith("share") or constant == "scale" else 0.001 if constant == "sealed" else 1


SCALES: Final = np.array([300 if name in PROMPTS else 10 if unit(name) == 1 else 20 for name in CONSTANTS])
"""How many units constants of each kind are ordinarily apart: hidden prompts, framing, factors."""


def value_of(family: Family, constant: str) -> float | None:
    if constant == "scale":
        return None if family.own_vocabulary else family.scale
    room, _, name = constant.rpartition(".")
    found = getattr(getattr(family.costs, room) if room else family.costs, name)
    return None if found is None else float(found)


def moved(family: Family, constant: str, by: float) -> Family:
    """Return a family with one of its constants changed."""
    value = value_of(family, constant)
    assert value is not None
    changed = value + by
    if constant == "scale":
        return replace(family, scale=changed)
    room, _, name = constant.rpartition(".")
    new = round(changed) if unit(constant) == 1 else changed
    inner = replace(getattr(family.costs, room), **{name: new}) if room else new
    return replace(family, costs=replace(family.costs, **{room or name: inner}))


def counted_with(row: Compared, family: Family) -> int:
    base = find_counter(model=row.usage.model)
    assert isinstance(base, FamilyCounter)
    counter = FamilyCounter(base.base, family)
    return count_request(row.usage.request, api=row.usage.api, model=row.usage.model, counter=counter).tokens


def case_of(row: Compared, recording: str) -> Case:
    """Return a request with the effect of each constant on its count; a larger step measures rounded ones."""
    counter = find_counter(model=row.usage.model)
    assert isinstance(counter, FamilyCounter)
    moves = []
    for constant in CONSTANTS:
        steps = 1 if unit(constant) == 1 else 10
        if value_of(counter.family, constant) is None:
            moves.append(0.0)
        else:
            changed = moved(counter.family, constant, steps * unit(constant))
            moves.append((counted_with(row, changed) - row.counted.tokens) / steps)
    return Case(recording, row, row.off, tuple(moves))


def starts(family: Family) -> list[float]:
    """Return how far the defaults of `Costs` are from a family's constants, in units; factors start at 1."""
    plain = replace(family, costs=Costs(tools=ToolCosts(once_flat=0, once_forced=0, late=0)), scale=1.0)
    found = []
    for constant in CONSTANTS:
        ours, default = value_of(family, constant), value_of(plain, constant)
        found.append(0.0 if ours is None or default is None else (default - ours) / unit(constant))
    return found


def fitted(cases: Sequence[Case], start: Sequence[float], tolerance: Callable[[Compared], float]) -> list[float]:
    """Return the change of each constant that makes the errors of some requests smallest.

    Least squares, weighted again and again so that large errors count less and less; constants that no request
    depends on stay at their defaults.
    """
    limits = np.array([tolerance(case.row) for case in cases])
    moves = np.array([case.moves for case in cases]) / limits[:, None]
    off = np.array([case.off for case in cases]) / limits
    change = np.array(start)
    weak = WEAK * np.eye(len(start)) / SCALES[:, None]
    for round_ in range(ROUNDS):
        error = np.abs(off + moves @ change)
        odd = 1 if round_ < ROUNDS // 2 else 1 / (1 + (error / ODD) ** 2)
        weight = np.sqrt(odd / np.maximum(error, 0.1))[:, None]
        rows = np.vstack([moves * weight, weak])
        goals = np.concatenate([-off * weight[:, 0], weak @ np.array(start)])
        change = np.linalg.lstsq(rows, goals, rcond=None)[0]
    return [float(value) for value in np.round(change)]


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Hold the shares of a family's requests that are within its tolerance, too low, and above count and margin."""

    requests: int
    recordings: int
    shipped: float
    within: float
    under: float
    exceeded: float


def left_out(cases: Sequence[Case], family: Family, share: float, flat: int) -> LeftOut:
    """Return how a family's requests fare that were left out of the fit."""

    def tolerance(row: Compared) -> float:
        return max(flat, share * row.usage.input_tokens)

    groups: defaultdict[str, list[Case]] = defaultdict(list)
    for case in cases:
        groups[case.recording].append(case)
    within = under = exceeded = 0
    for name, group in groups.items():
        change = fitted([case for case in cases if case.recording != name], starts(family), tolerance)
        for case in group:
            off = case.off + sum(m * c for m, c in zip(case.moves, change, strict=True))
            within += abs(off) <= tolerance(case.row)
            under += -off > max(20, 0.05 * case.row.usage.input_tokens)
            exceeded += -off > case.row.counted.margin
    count = len(cases)
    shipped = sum(abs(case.off) <= tolerance(case.row) for case in cases) / count
    return LeftOut(count, len(groups), shipped, within / count, under / count, exceeded / count)


def left_out_table(rows: Sequence[tuple[Compared, str]]) -> None:
    """Print the table: requests of each family, as shipped and with their recording left out of the fit."""
    print("| family | requests, recordings | tolerance | shipped | left out | under | exceeded |")
    print("|---|---|---|---|---|---|---|")
    for kin, (said, share, flat) in KINS.items():
        cases = [case_of(row, name) for row, name in rows if row.usage.kin == kin]
        if not cases:
            continue
        counter = find_counter(model=cases[0].row.usage.model)
        assert isinstance(counter, FamilyCounter)
        found = left_out(cases, counter.family, share, flat)
        shares = " | ".join(f"{value:.0%}" for value in (found.shipped, found.within, found.under, found.exceeded))
        print(f"| {said} | {found.requests}, {found.recordings} | {share:.0%} or {flat} tokens | {shares} |")
