"""Compare a replay with an earlier one: every important figure, each with its own tolerance."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from ctxguard.errors import ConfigError, reason_of
from ctxguard.harness.document import FiguresModel, ReplayReport
from ctxguard.report.printing import counted


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How much worse a figure may become.

    Attributes:
        by: the allowed difference.
        is_share: whether `by` is a share of the earlier figure; else it is in the figure's own unit.
        is_better_high: whether a higher figure is better.
        least: a difference that never counts as worse, in the figure's own unit.
    """

    by: float
    is_share: bool = False
    is_better_high: bool = False
    least: float = 0.0


TOLERANCES: Final[Mapping[str, Tolerance]] = {
    "refused": Tolerance(0),
    "findings": Tolerance(0),
    "tokens_after": Tolerance(0.01, is_share=True),
    "saved": Tolerance(0.01, is_better_high=True),
    "support": Tolerance(0.01, is_better_high=True),
    "support_in_context": Tolerance(0.01, is_better_high=True),
    "gain": Tolerance(0.02, is_better_high=True),
    "newest": Tolerance(0.01, is_better_high=True),
    "prefix_share": Tolerance(0.01, is_better_high=True),
    "bill": Tolerance(0.01, is_share=True),
    "p95_ms": Tolerance(1.0, is_share=True, least=50),
}
"""The compared figures. Times differ between machines: they may double."""


def load_baseline(path: str | Path) -> ReplayReport:
    """Return the report of an earlier replay from its JSON file; raise if there is none in it."""
    try:
        text = Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(
            f"the baseline {path} cannot be read ({reason_of(error)}); write one with --output report.json",
            setting="baseline",
        ) from error
    try:
        return ReplayReport.model_validate_json(text)
    except (ValidationError, RecursionError) as error:
        first = error.errors()[0] if isinstance(error, ValidationError) else {"loc": (), "msg": "nested too deeply"}
        where = ".".join(map(str, first["loc"])) or "the file"
        raise ConfigError(
            f"the baseline {path} is not a replay report of schema version 1 ({where}: {str(first['msg']).lower()}); "
            "write one with --output report.json",
            setting="baseline",
        ) from error


def parse_tolerances(given: Mapping[str, str] | None) -> dict[str, Tolerance]:
    """Return the default tolerances, changed by those that a user named; reject unknown figures."""
    known = dict(TOLERANCES)
    for name, text in (given or {}).items():
        if name not in known:
            raise ConfigError(f"no figure {name!r} is compared; compared are {', '.join(known)}", setting="tolerance")
        try:
            by = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
        except ValueError:
            by = -1.0
        if not 0 <= by < float("inf"):
            raise ConfigError(f"a tolerance is a number from 0 on, or a percentage, not {text!r}", setting="tolerance")
        known[name] = replace(known[name], by=by)
    return known


def compare(now: ReplayReport, before: ReplayReport, tolerances: Mapping[str, Tolerance] = TOLERANCES) -> list[str]:
    """Return a line for each figure that is worse than in an earlier replay, or that cannot be compared, run by run."""
    worse: list[str] = []
    if now.skipped_count > before.skipped_count:
        worse.append(f"skipped was {before.skipped_count} and is {now.skipped_count}")
    earlier = {run.label: run for run in before.runs}
    for run in now.runs:
        known = earlier.pop(run.label, None)
        if known is None:
            worse.append(f"nothing to compare: the baseline has no run of {run.label}")
        elif fault := _incomparable(run.figures, known.figures):
            worse.append(f"nothing to compare for {run.label}: {fault}")
        else:
            worse += [f"{run.label}: {line}" for line in _worse(run.figures, known.figures, tolerances)]
    return worse + [f"nothing to compare: there is no run of {label} any more" for label in earlier]


def _incomparable(now: FiguresModel, before: FiguresModel) -> str | None:
    if not before.served:
        return "the baseline judged no call"
    for name in ("sessions", "calls"):
        was, found = getattr(before, name), getattr(now, name)
        if was != found:
            return f"it is of other sessions: {name} was {was} and is {found}"
    if before.bill.currency != now.bill.currency:
        return f"prices were in {before.bill.currency} and are in {now.bill.currency}"
    return None


def _worse(now: FiguresModel, before: FiguresModel, tolerances: Mapping[str, Tolerance]) -> Iterator[str]:
    for name, tolerance in tolerances.items():
        was, found = _figure(before, name), _figure(now, name)
        if was is None:
            continue
        if found is None:
            yield f"{name} was {was:g} and is missing"
            continue
        loss = was - found if tolerance.is_better_high else found - was
        allowed = max(tolerance.least, tolerance.by * (abs(was) if tolerance.is_share else 1))
        if loss > allowed + 1e-9:
            yield f"{name} was {was:g} and is {found:g} ({loss:g} worse, {allowed:g} allowed)"
    for law, calls in now.findings.items():
        if law not in before.findings and tolerances.get("findings") is not None:
            yield f"findings: {law} held, and now breaks at {counted(calls, 'call')}"


def _figure(figures: FiguresModel, name: str) -> float | None:
    if name == "findings":
        return float(sum(figures.findings.values()))
    if name == "bill":
        return figures.bill.stabilized
    if name == "p95_ms":
        return figures.time.p95_ms
    value = getattr(figures, name)
    return None if value is None else float(value)
