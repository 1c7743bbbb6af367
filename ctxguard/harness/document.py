"""The report on a replay as data: written by `--report json`, read by `--baseline`, and shown on the page.

The JSON Schema is published as `replay-report.schema.json` in the same folder; `SCHEMA_VERSION` is its version. Fields
may be added within a version; renaming or removing one requires a new version.
"""

from __future__ import annotations

import json
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from ctxguard.harness.figures import Figures
from ctxguard.harness.gain import SEES
from ctxguard.harness.judging import Verdict
from ctxguard.harness.pricing import PriceModel
from ctxguard.harness.recordings import Skipped
from ctxguard.harness.replay import SessionReplay

SCHEMA_VERSION: Final = 1


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)


class BillModel(_Model):
    """The cost of the requests, and that of two alternatives at the same calls."""

    currency: Literal["USD", "tokens"] = Field(description="`tokens`: in units of one uncached input token.")
    stabilized: float = Field(description="Price of the requests.")
    unmanaged: float = Field(description="Price of the whole histories.")
    trimmed: float = Field(description="Price of the longest tail that fits, cut anew at each call.")


class TimeModel(_Model):
    """The time of calls, in milliseconds, within one percent."""

    p50_ms: float | None
    p95_ms: float | None
    p99_ms: float | None


class FiguresModel(_Model):
    """The figures of one or more sessions. A share is null if it is undefined."""

    sessions: int
    calls: int = Field(description="Model calls: the history up to each assistant message.")
    served: int = Field(description="Calls for which there is a request.")
    refused: int = Field(description="Calls whose mandatory messages do not fit.")
    pressed: int = Field(description="Calls whose history exceeds the budget.")
    needed: int = Field(description="The most tokens that mandatory messages took at a refused call.")
    tokens_before: int = Field(description="Tokens of the histories, over all served calls.")
    tokens_after: int = Field(description="Tokens of the requests, over all served calls.")
    saved: float | None = Field(description="Share of the input tokens that was saved.")
    saved_by: dict[str, int] = Field({}, description="Tokens that each action took out of messages.")
    cuts: int = Field(description="Calls that cut the window.")
    cut_share: float | None
    rebilled: int = Field(description="Tokens behind the first position that a cut changed.")
    prefix_share: float | None = Field(description="Calls that keep the prompt before up to its newest exchange.")
    support: float | None = Field(description="Next-action support: what the next message needs and the request holds.")
    support_in_context: float | None = Field(description="The same, with words around it that stood around it before.")
    needing: int = Field(description="Calls that support is averaged over.")
    gain: float | None = Field(None, description="Share of what older history is worth to a compressor; needs pyppmd.")
    weighed: int = Field(0, description="Calls that gain is added up over.")
    newest: float | None = Field(None, description="Share of new tool outputs that is sent, of what would fit.")
    bill: BillModel
    time: TimeModel
    findings: dict[str, int] = Field(description="Calls at which a law did not hold, by law.")


class SessionModel(_Model):
    """One session under one setting."""

    id: str
    path: str
    line: int
    figures: FiguresModel
    findings: list[Verdict]
    before: list[int] = Field(description="Tokens of the history, call by call.")
    after: list[int] = Field(description="Tokens of the request, call by call; 0 where the call was refused.")
    cuts: list[int] = Field(description="Numbers of the calls that cut, from 1.")
    bill: list[float] = Field(description="Price of the request, call by call.")
    trimmed: list[float] = Field(description="Price of what plain trimming would have sent, call by call.")
    unmanaged: list[float] = Field([], description="Price of the whole history, call by call.")


class RunModel(_Model):
    """All sessions under one setting."""

    label: str = Field(description="The setting in words; tells the runs of a report apart.")
    setting: dict[str, str | int | float | None]
    figures: FiguresModel
    findings: list[Verdict] = Field(description="The first finding of each law.")
    sessions: list[SessionModel] = Field(description="The worst ones first; at most as many as `sessions_listed`.")
    sessions_listed: int


class ReplayReport(_Model):
    """The report on a replay."""

    schema_version: Literal[1] = SCHEMA_VERSION
    ctxguard: str = Field(description="Version of ctxguard.")
    created: str = Field(description="When, ISO 8601, UTC.")
    title: str
    sources: list[str] = Field(description="What was named on the command line.")
    seconds: float = Field(description="How long the replay took.")
    processes: int
    prices: str = Field(description="Where the prices are from.")
    model: str = Field(description="The model that prices are of; empty where they are relative.")
    counter: str = Field(description="What counted tokens, and how exact that is.")
    judges: tuple[str, ...] = Field(default=SEES, description="What each judge can see, and what it cannot.")
    skipped: list[Skipped] = Field(description="What could not be replayed, at most the first 1,000.")
    skipped_count: int
    runs: list[RunModel]

    def to_json(self) -> str:
        """Return the report as a JSON text."""
        return json.dumps(self.model_dump(mode="json"), ensure_ascii=False, indent=1)

    @property
    def judged(self) -> int:
        """Calls that were judged, under all settings."""
        return sum(run.figures.served for run in self.runs)

    @property
    def broken(self) -> int:
        """Number of violated laws over all calls and settings; a call counts once for each law."""
        return sum(sum(run.figures.findings.values()) for run in self.runs)


def schema_json() -> str:
    """Return the JSON Schema of the report."""
    schema = ReplayReport.model_json_schema()
    return json.dumps({"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}, indent=1) + "\n"


def figures_model(figures: Figures, prices: PriceModel) -> FiguresModel:
    """Return figures as data, rounded."""
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
    """Return a figure as a report has it; None stays None."""
    return None if value is None else round(value, places)


def session_model(result: SessionReplay, prices: PriceModel) -> SessionModel:
    """Return a replayed session as data."""
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
