"""Replay recorded sessions turn by turn: what would each model call have been sent, and does every law hold?"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from itertools import accumulate
from pathlib import Path
from typing import Final

from ctxguard.adapting.adapter import with_adapter_stages
from ctxguard.artifacts import Artifact, Kind
from ctxguard.errors import BudgetExceededError, ConfigError
from ctxguard.harness.pricing import PriceModel, common_prefix
from ctxguard.harness.sessions import Session
from ctxguard.stabilizer import Stabilizer

__all__ = ["Replay", "compare", "load_baseline", "replay", "replay_sessions"]

MANY_CUTS: Final = 1 / 3
"""Share of cutting calls above which the provider's cache is of little use."""


@dataclass(slots=True)
class Replay:
    """Hold the figures of replayed sessions; two of them add up.

    Attributes:
        sessions: how many.
        budget: tokens each call had, the reply's reserve taken off; the most of them, where figures are added up.
        calls: model calls in them: the history up to each assistant message.
        pressed: calls whose history exceeds the budget.
        refused: calls for which what must stay does not fit (`BudgetExceededError`).
        needed: the most tokens that what must stay took at one of them, 0 where there are none.
        tokens_before: tokens of the histories, over all calls that were served.
        tokens_after: tokens of the contexts, over the same calls.
        successors: calls that follow a served call, in sessions that exceed the budget.
        extended: those of them whose prompt extends the previous one.
        cuts: calls that cut the window.
        price: what the contexts cost, cached prefixes cheap, in units of one uncached token.
        price_before: what the histories would have cost.
        findings: calls at which a check failed, by check.
        places: the first finding of each check, with its session and call; not among the figures.
    """

    sessions: int = 0
    budget: int = 0
    calls: int = 0
    pressed: int = 0
    refused: int = 0
    needed: int = 0
    tokens_before: int = 0
    tokens_after: int = 0
    successors: int = 0
    extended: int = 0
    cuts: int = 0
    price: float = 0.0
    price_before: float = 0.0
    findings: dict[str, int] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)

    def __add__(self, other: Replay) -> Replay:
        summed = [f.name for f in fields(self) if f.name not in ("budget", "needed", "findings", "places")]
        sums = {name: getattr(self, name) + getattr(other, name) for name in summed}
        names = sorted({*self.findings, *other.findings})
        findings = {name: self.findings.get(name, 0) + other.findings.get(name, 0) for name in names}
        places = {**other.places, **self.places}
        most = {name: max(getattr(self, name), getattr(other, name)) for name in ("budget", "needed")}
        return Replay(**sums, **most, findings=findings, places=places)

    @property
    def ok(self) -> bool:
        """Whether every check held at every call that was served."""
        return not self.findings

    @property
    def cut_share(self) -> float:
        """Share of the served calls that cut the window; 0.0 if none was served."""
        served = self.calls - self.refused
        return self.cuts / served if served else 0.0

    @property
    def prefix_share(self) -> float:
        """Share of calls whose prompt extends the previous one, in sessions that exceed the budget; 1.0 if none do."""
        return self.extended / self.successors if self.successors else 1.0

    @property
    def saved(self) -> float:
        """Share of the input tokens that was saved, over all served calls."""
        return 1 - self.tokens_after / self.tokens_before if self.tokens_before else 0.0

    def to_dict(self) -> dict[str, object]:
        """Return the figures as JSON values."""
        own = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "places"}
        prices = {name: round(own[name], 1) for name in ("price", "price_before")}
        shares = {name: round(getattr(self, name), 4) for name in ("cut_share", "prefix_share", "saved")}
        return {**own, **prices, **shares}

    def advice(self, budget: int) -> list[str]:
        """Return where checks failed, and what to do about calls that are missing, refused or cut too often, as lines.

        Args:
            budget: tokens each call had.
        """
        lines = [
            f"{name} fails at {self.findings[name]} calls, first at {place}" for name, place in self.places.items()
        ]
        if not self.calls:
            lines.append("there is no model call in what was read: calls are played up to each assistant message")
        if self.refused:
            lines.append(
                f"{self.refused} of {self.calls} calls are refused: what must stay takes up to {self.needed} tokens "
                f"and the budget is {budget}; raise it"
            )
        if self.cut_share > MANY_CUTS:
            lines.append(
                f"{self.cut_share:.0%} of the calls cut: the budget is close to what must stay; "
                "raise it or lower target"
            )
        return lines


def replay(
    session: Session,
    stabilizer: Stabilizer,
    *,
    prices: PriceModel | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> Replay:
    """Replay one session: stabilize its history up to each assistant message.

    Args:
        session: as recorded.
        stabilizer: does the work.
        prices: of the provider; None means the default model.
        progress: called after each model call with the number of messages played and of all there are.
    """
    return _Player(session, stabilizer, prices or PriceModel()).play(progress or (lambda _done, _total: None))


class _Player:
    """Play one session."""

    def __init__(self, session: Session, stabilizer: Stabilizer, prices: PriceModel) -> None:
        self.id = session.id
        self.artifacts = session.read()
        self.tools = session.tools
        self.overhead = session.overhead(stabilizer.counter)
        self.stabilizer = with_adapter_stages(stabilizer, session.adapter)
        self.prices = prices
        counter = self.stabilizer.counter
        beside = self.overhead + counter.tools(self.tools)
        self.tokens = list(accumulate(map(counter.artifact, self.artifacts), initial=beside))
        self.told = Replay(sessions=1, budget=stabilizer.budget_for())
        self.previous: list[Artifact] | None = None
        self.history_before = 0

    def play(self, progress: Callable[[int, int], object]) -> Replay:
        for end, artifact in enumerate(self.artifacts):
            if artifact.kind is Kind.ASSISTANT and end:
                self._call(end)
                progress(end, len(self.artifacts))
        if not self.told.pressed:
            self.told.successors = self.told.extended = 0
        return self.told

    def _call(self, end: int) -> None:
        told = self.told
        told.calls += 1
        try:
            result = self.stabilizer.stabilize(self.artifacts[:end], tools=self.tools, overhead=self.overhead)
        except BudgetExceededError as error:
            told.refused += 1
            told.pressed += 1
            told.needed = max(told.needed, error.needed)
            self.previous = None
            return
        report, before = result.report, self.tokens[end]
        told.pressed += before > report.budget
        told.tokens_before += before
        told.tokens_after += report.tokens_after
        told.cuts += report.cut is not None and report.cut.fresh
        for check in report.checks:
            if not check.ok:
                told.findings[check.name] = told.findings.get(check.name, 0) + 1
                told.places.setdefault(check.name, f"call {told.calls} of session {self.id}: {check.findings[0]}")
        self._price(result.artifacts, before, report.tokens_after)

    def _price(self, artifacts: list[Artifact], before: int, after: int) -> None:
        told, shared = self.told, 0
        if self.previous is not None:
            same = common_prefix(self.previous, artifacts)
            told.successors += 1
            told.extended += same == len(self.previous)
            counted = self.stabilizer.counter.artifacts
            beside = after - counted(artifacts)  # tool schemas and framing stand before the messages
            shared = beside + counted(artifacts[:same])
        told.price += self.prices.price(after, shared)
        told.price_before += self.prices.price(before, self.history_before)
        self.previous, self.history_before = artifacts, before


def replay_sessions(sessions: Iterable[Session], stabilizer: Stabilizer, *, prices: PriceModel | None = None) -> Replay:
    """Replay many sessions and add up their figures."""
    return sum((replay(session, stabilizer, prices=prices) for session in sessions), Replay())


BETTER_LOW: Final = ("refused", "tokens_after", "price")
BETTER_HIGH: Final = ("prefix_share",)


def load_baseline(path: str | Path) -> Mapping[str, object]:
    """Return the figures of an earlier replay from its JSON file.

    Raises:
        ConfigError: the file cannot be read, or holds no such figures.
    """
    try:
        figures = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(
            f"the baseline {path} cannot be read ({error}); write one with --output", setting="baseline"
        ) from error
    if not isinstance(figures, dict) or not all(map(_is_figure, _compared(figures))):
        raise ConfigError(f"the baseline {path} holds no figures of a replay", setting="baseline")
    return figures


def _compared(figures: Mapping[str, object]) -> Iterator[object]:
    """Walk what of a baseline is compared; None where something is missing."""
    yield from (figures.get(name) for name in (*BETTER_LOW, *BETTER_HIGH))
    findings = figures.get("findings", {})
    yield from findings.values() if isinstance(findings, Mapping) else (None,)


def _is_figure(value: object) -> bool:
    """Tell a number that others can be worse than: against NaN nothing would be."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def compare(now: Replay, baseline: Mapping[str, object], *, tolerance: float = 0.01) -> list[str]:
    """Return what has become worse than a baseline, one line each.

    Args:
        now: the new figures.
        baseline: those of `Replay.to_dict`, at the same sessions and settings.
        tolerance: share by which a figure may be worse.

    Raises:
        ConfigError: it is of other sessions, or of another budget.
    """
    told = now.to_dict()
    for name in ("sessions", "calls", "budget"):
        was = baseline.get(name, told[name])
        if was != told[name]:
            raise ConfigError(
                f"the baseline is of other figures than these: {name} {was} and {told[name]}; "
                "write one of these with --output",
                setting="baseline",
            )
    worse = []
    for name in (*BETTER_LOW, *BETTER_HIGH):
        before, after = float(str(baseline[name])), float(str(told[name]))
        loss = after - before if name in BETTER_LOW else before - after
        if loss > abs(before) * tolerance:
            worse.append(f"{name} was {before:g} and is {after:g}")
    known = baseline.get("findings")
    for check, count in now.findings.items():
        if count > (known.get(check, 0) if isinstance(known, Mapping) else 0):
            worse.append(f"{check} fails at {count} calls")
    return worse
