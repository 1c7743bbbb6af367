"""The report on a comparison: as data, as a table for a terminal, and as Markdown for a README."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean, median
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from ctxguard.harness.bench import Totals
from ctxguard.harness.peers.registry import BASELINE, Peer
from ctxguard.report.printing import counted

NOTES: Final = (
    "Calls: the model calls whose history exceeds the budget. Everyone gets the same messages and the same counter.",
    "Holds: a request within the budget, every call paired with its results, system prompt and last message there.",
    "Over: a request that exceeds the budget.",
    "Bad: broken pairs, a lost system prompt or last message, or no request at all: the library refused or failed.",
    "Support: what the agent's next message uses of the older history, found in the request with words around it; "
    "over the calls that the row holds, so rows that hold different calls are not over the same ones.",
    f"Bill: a cached token costs a tenth; a share of the {BASELINE}'s at the calls that both send. Writing summaries "
    "is not billed.",
    "Kept: the share of prompts that extend the one before, as a provider's cache needs.",
    "Time: processor time of the library's own work at one call, median; ctxguard masks and checks in it.",
    "Not compared: masking of personal data, which only ctxguard does; what a model answers; a summary that a model "
    "writes (a fixed extract of 2,000 characters stands in for it).",
)


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, allow_inf_nan=False)


class BenchRow(_Model):
    """One contestant at one budget. A share is null where there is nothing to take it of."""

    name: str
    distribution: str
    version: str
    what: str = Field(description="The call and the settings that were compared.")
    budget: int
    calls: int = Field(description="Model calls whose history exceeds the budget.")
    held: int = Field(description="Calls with a usable request within the budget.")
    refused: int = Field(description="Calls that the library itself refused.")
    over: int = Field(description="Calls whose request exceeds the budget.")
    faults: dict[str, int] = Field(description="Calls with a useless request, by what is wrong.")
    not_user_first: int = Field(description="Requests that newly begin with another than the user.")
    support: float | None = Field(description="Next-action support with context, over the calls that are held.")
    bill: float | None = Field(description=f"Share of the bill of the {BASELINE} at the calls that both send.")
    prefix_kept: float | None = Field(description="Share of prompts that extend the one before.")
    median_ms: float | None = Field(description="Processor time of a call, in milliseconds.")
    p95_ms: float | None


class BenchReport(_Model):
    """The report on a comparison."""

    schema_version: Literal[1] = 1
    ctxguard: str
    created: str
    sources: list[str]
    sessions: int
    counter: str
    absent: list[str] = Field(description="Contestants that are not installed.")
    skipped: list[str] = Field(description="Recordings that could not be read.")
    notes: tuple[str, ...] = NOTES
    rows: list[BenchRow]


def bench_row(peer: Peer, budget: int, totals: Totals, base: Totals) -> BenchRow:
    """Return the figures of one contestant at one budget."""
    times = sorted(totals.milliseconds)
    bill = totals.bill_beside(base)
    return BenchRow(
        name=peer.name,
        distribution=peer.distribution,
        version=peer.version or "",
        what=peer.what,
        budget=budget,
        calls=totals.calls,
        held=totals.held,
        refused=totals.refused,
        over=totals.over,
        faults=dict(sorted(totals.faults.items())),
        not_user_first=totals.not_user_first,
        support=round(fmean(totals.support), 4) if totals.support else None,
        bill=None if bill is None else round(bill, 4),
        prefix_kept=round(totals.extended / totals.successors, 4) if totals.successors else None,
        median_ms=round(median(times), 3) if times else None,
        p95_ms=round(times[int(0.95 * (len(times) - 1))], 3) if times else None,
    )


def _percent(part: int, whole: int) -> str:
    share = 100 * part / whole if whole else 0
    return "0" if not part else "<1" if share < 1 else ">99" if 99 < share < 100 else f"{share:.0f}"


def _two(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def _milliseconds(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}" if value < 10 else f"{value:.0f}"


def table(report: BenchReport) -> str:
    """Return the report for a terminal of 60 columns."""
    lines = [f"{counted(report.sessions, 'session')}, counted by {report.counter}"]
    for budget, rows in _by_budget(report.rows):
        lines += ["", f"budget {budget:,}: exceeded by {_calls(rows)}"]
        lines.append(f"{'':<21}{'holds':>6}{'over':>5}{'bad':>5}{'supp.':>6}{'bill':>5}{'kept':>5}{'ms':>6}")
        lines.append(f"{'':<21}{'%':>6}{'%':>5}{'%':>5}{'':>6}{'':>5}{'':>5}{'':>6}")
        lines += [_line(row) for row in rows]
    lines += ["", *(line for note in report.notes for line in _wrapped(note))]
    lines += [line for each in report.absent for line in _wrapped(f"left out: {each}")]
    return "\n".join(line.rstrip() for line in lines)


def _calls(rows: Sequence[BenchRow]) -> str:
    return counted(rows[0].calls if rows else 0, "call")


def _line(row: BenchRow) -> str:
    bad = sum(row.faults.values()) + row.refused
    shares = (_percent(row.held, row.calls), _percent(row.over, row.calls), _percent(bad, row.calls))
    figures = (_two(row.support), _two(row.bill), _two(row.prefix_kept), _milliseconds(row.median_ms))
    widths = zip((*shares, *figures), (6, 5, 5, 6, 5, 5, 6), strict=True)
    return f"{row.name:<21}" + "".join(f"{text:>{width}}" for text, width in widths)


def _wrapped(text: str) -> Iterator[str]:
    from textwrap import wrap

    yield from wrap(text, 60, subsequent_indent="  ")


def _by_budget(rows: Sequence[BenchRow]) -> Iterator[tuple[int, list[BenchRow]]]:
    budgets: Mapping[int, None] = dict.fromkeys(row.budget for row in rows)
    for budget in budgets:
        yield budget, [row for row in rows if row.budget == budget and row.calls]


def markdown(report: BenchReport) -> str:
    """Return the report as Markdown."""
    lines = []
    for budget, rows in _by_budget(report.rows):
        sessions = counted(report.sessions, "session")
        lines += [f"Budget {budget:,} tokens: exceeded by {_calls(rows)} of {sessions}.", ""]
        lines.append(
            "| | holds | over budget | pairs broken | other fault or refused | support | bill | prefix kept | ms |"
        )
        lines.append("|---|---|---|---|---|---|---|---|---|")
        lines += [_cells(row) for row in rows]
        lines.append("")
    lines += [f"* {note}" for note in report.notes]
    lines += [f"* Left out: {each}." for each in report.absent]
    versions = dict.fromkeys(f"{row.distribution} {row.version}" for row in report.rows)
    lines += ["", f"Versions: {', '.join(versions)}. {report.created[:10]}, `ctxguard bench`."]
    return "\n".join(lines)


def _cells(row: BenchRow) -> str:
    pairs = row.faults.get("pairs", 0)
    others = sum(row.faults.values()) - pairs + row.refused
    shares = [f"{_percent(part, row.calls)}%" for part in (row.held, row.over, pairs, others)]
    figures = [_two(row.support), _two(row.bill), _two(row.prefix_kept), _milliseconds(row.median_ms)]
    return f"| {' | '.join((row.name, *shares, *figures))} |"
