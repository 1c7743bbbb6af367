"""The report on a replay as data: written by `--report json`, read by `--baseline`, and shown on the page.

The JSON Schema is published as `replay-report.schema.json` in the same folder; `SCHEMA_VERSION` is its version. Fields
may be added within a version; renaming or removing a field requires a new version.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ctxguard.errors import ConfigError, reason_of
from ctxguard.harness.gain import SEES
from ctxguard.harness.judging import Figures, Verdict
from ctxguard.harness.pricing import PriceModel
from ctxguard.harness.recordings import Skipped
from ctxguard.harness.replay import SessionReplay
from ctxguard.report.printing import counted

SCHEMA_VERSION: Final = 1


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)


class BillModel(_Model):
    """The price of the requests, and what two alternatives would have cost at the same calls."""

    currency: Literal["USD", "tokens"] = Field(description="`tokens` means the price of one uncached input token.")
    stabilized: float = Field(description="Price of the requests.")
    unmanaged: float = Field(description="Price of the whole histories.")
    trimmed: float = Field(description="Price of the longest tail of the history that fits, chosen anew at each call.")


class TimeModel(_Model):
    """Percentiles of the time per call, in milliseconds, accurate to one percent."""

    p50_ms: float | None
    p95_ms: float | None
    p99_ms: float | None


class FiguresModel(_Model):
    """The figures of one or more sessions. A share is null if it is undefined."""

    sessions: int
    calls: int = Field(description="Number of model calls; each assistant message in a history is one.")
    served: int = Field(description="Number of calls for which a request could be made.")
    refused: int = Field(description="Number of calls whose mandatory messages do not fit.")
    pressed: int = Field(description="Number of calls whose history exceeds the budget.")
    needed: int = Field(description="Largest number of tokens that a refused call's mandatory messages need.")
    tokens_before: int = Field(description="Number of tokens in the histories, summed over all served calls.")
    tokens_after: int = Field(description="Number of tokens in the requests, summed over all served calls.")
    saved: float | None = Field(description="Share of the input tokens that was saved.")
    saved_by: dict[str, int] = Field(
        {},
        description="Number of tokens that each action removed from messages; negative if it added some, as new "
        "messages do. Their sum is tokens_before - tokens_after.",
    )
    cuts: int = Field(description="Number of calls that cut the window.")
    cut_share: float | None
    rebilled: int = Field(description="Number of tokens after the first position that a cut changed.")
    prefix_share: float | None = Field(description="Share of calls that keep the last prompt up to its last exchange.")
    support: float | None = Field(description="Share of what the next message needs that the request contains.")
    support_in_context: float | None = Field(description="Support, counting only what keeps some nearby words.")
    needing: int = Field(description="Number of calls that support is averaged over.")
    gain: float | None = Field(None, description="Share of older history's value to a compressor; needs pyppmd.")
    weighed: int = Field(0, description="Number of calls that gain is computed over.")
    newest: float | None = Field(None, description="Share of new tool outputs that is sent, of what would fit.")
    bill: BillModel
    time: TimeModel
    findings: dict[str, int] = Field(description="Number of calls at which each law did not hold.")


class SessionModel(_Model):
    """The figures of one session, and of each of its calls, under one setting."""

    id: str
    path: str
    line: int
    figures: FiguresModel
    findings: list[Verdict]
    before: list[int] = Field(description="Number of tokens in the history at each call.")
    after: list[int] = Field(description="Number of tokens in the request at each call; 0 if the call was refused.")
    cuts: list[int] = Field(description="Numbers of the calls that cut the window, from 1.")
    bill: list[float] = Field(description="Price of the request at each call.")
    trimmed: list[float] = Field(description="Price of what a rolling window would have sent, at each call.")
    unmanaged: list[float] = Field([], description="Price of the whole history at each call.")


class RunModel(_Model):
    """The figures of all sessions under one setting, and the worst sessions."""

    label: str = Field(description="The setting in words, unique within a report.")
    setting: dict[str, str | int | float | None]
    figures: FiguresModel
    findings: list[Verdict] = Field(description="The first finding of each law.")
    sessions: list[SessionModel] = Field(description="The worst sessions first; at most `sessions_listed` of them.")
    sessions_listed: int


class ReplayReport(_Model):
    """The report on a replay."""

    schema_version: Literal[1] = SCHEMA_VERSION
    ctxguard: str = Field(description="Version of ctxguard.")
    created: str = Field(description="Time of creation, ISO 8601, UTC.")
    title: str
    sources: list[str] = Field(description="Files and URLs named on the command line.")
    seconds: float = Field(description="Duration of the replay in seconds.")
    processes: int
    prices: str = Field(description="Source of the prices.")
    model: str = Field(description="The model whose prices are used; empty if prices are relative.")
    counter: str = Field(description="The token counter, and how exact it is.")
    judges: tuple[str, ...] = Field(default=SEES, description="What each judge can measure, and what it cannot.")
    skipped: list[Skipped] = Field(description="Recordings that could not be replayed; at most the first 1,000.")
    skipped_count: int
    runs: list[RunModel]

    def to_json(self) -> str:
        """Return the report as a JSON string."""
        return json.dumps(self.model_dump(mode="json"), ensure_ascii=False, indent=1)

    @property
    def judged(self) -> int:
        """Number of calls that were judged, over all settings."""
        return sum(run.figures.served for run in self.runs)

    @property
    def broken(self) -> int:
        """Number of violations over all calls and settings; a call counts once for each law that it violates."""
        return sum(sum(run.figures.findings.values()) for run in self.runs)


def schema_json() -> str:
    """Return the JSON Schema of the report as a string."""
    schema = ReplayReport.model_json_schema()
    return json.dumps({"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}, indent=1) + "\n"


def figures_model(figures: Figures, prices: PriceModel) -> FiguresModel:
    """Convert figures to a pydantic model, with rounded values."""
    named_alike = FiguresModel.model_fields.keys() - {"saved_by", "bill", "time", "findings"}
    plain: dict[str, Any] = {name: rounded(getattr(figures, name)) for name in named_alike}
    places = _places(prices)
    return FiguresModel(
        **plain,
        saved_by=dict(figures.saved_by.most_common()),
        bill=BillModel(
            currency="USD" if prices.currency == "USD" else "tokens",
            stabilized=round(figures.bill, places),
            unmanaged=round(figures.bill_unmanaged, places),
            trimmed=round(figures.bill_trimmed, places),
        ),
        time=TimeModel(**{f"p{n}_ms": rounded(figures.percentile(n / 100), 3) for n in (50, 95, 99)}),
        findings=dict(sorted(figures.findings.items())),
    )


def _places(prices: PriceModel) -> int:
    return 6 if prices.currency == "USD" else 1


def rounded(value: float | None, places: int = 4) -> float | None:
    """Round a figure to the precision of a report; None stays None."""
    return None if value is None else round(value, places)


def session_model(result: SessionReplay, prices: PriceModel) -> SessionModel:
    """Convert a replayed session to a pydantic model."""
    places = _places(prices)
    return SessionModel(
        id=result.id,
        path=result.path,
        line=result.line,
        figures=figures_model(result.figures, prices),
        findings=result.places,
        before=[call.before for call in result.calls],
        after=[call.after for call in result.calls],
        cuts=[number for number, call in enumerate(result.calls, 1) if call.cut],
        bill=[round(call.bill, places) for call in result.calls],
        trimmed=[round(call.trimmed, places) for call in result.calls],
        unmanaged=[round(call.unmanaged, places) for call in result.calls],
    )


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How much worse a figure may become compared with the baseline.

    Attributes:
        by: Allowed difference.
        is_share: Whether `by` is a share of the earlier figure; otherwise it is in the figure's own unit.
        is_better_high: Whether a higher figure is better.
        least: Largest difference that never counts as worse, in the figure's own unit.
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
"""The compared figures. Times may double, because they differ between machines."""


def load_baseline(path: str | Path) -> ReplayReport:
    """Read the report of an earlier replay from a JSON file.

    Raises:
        ConfigError: If the file cannot be read or does not contain a replay report.
    """
    try:
        return ReplayReport.model_validate_json(Path(path).read_bytes())
    except OSError as error:
        why = f"cannot be read ({reason_of(error)})"
    except (ValidationError, RecursionError) as error:
        where = ".".join(map(str, error.errors()[0]["loc"])) if isinstance(error, ValidationError) else ""
        why = f"is not a replay report of schema version 1 ({where or 'the file'})"
    raise ConfigError(f"the baseline {path} {why}; write one with --output report.json", setting="baseline")


def parse_tolerances(given: Iterable[str]) -> dict[str, Tolerance]:
    """Return the default tolerances, overridden by the items of `given`, such as `bill=2%`.

    Raises:
        ConfigError: If an item names an unknown figure or has no valid number.
    """
    known = dict(TOLERANCES)
    for name, _, text in (each.partition("=") for each in given):
        if name not in known:
            raise ConfigError(f"unknown figure {name!r}; known are {', '.join(known)}", setting="tolerance")
        try:
            by = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
        except ValueError:
            by = -1.0
        if not 0 <= by < float("inf"):
            raise ConfigError(f"a tolerance is FIGURE=N, such as bill=2%, not {name}={text}", setting="tolerance")
        known[name] = replace(known[name], by=by)
    return known


def compare(now: ReplayReport, before: ReplayReport, tolerances: Mapping[str, Tolerance] = TOLERANCES) -> list[str]:
    """Compare a report with an earlier one, run by run.

    Returns:
        One line for each figure that became worse by more than its tolerance, or that cannot be compared.
    """
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
            yield f"findings: {law} was met, and is not met at {counted(calls, 'call')}"


def _figure(figures: FiguresModel, name: str) -> float | None:
    if name == "findings":
        return float(sum(figures.findings.values()))
    if name == "bill":
        return figures.bill.stabilized
    if name == "p95_ms":
        return figures.time.p95_ms
    value = getattr(figures, name)
    return None if value is None else float(value)
