"""The command `ctxguard stabilize`."""

from __future__ import annotations

import json
from pathlib import Path

import typer

from ctxguard.cli.options import StabilizerOptions, settings_of, spread
from ctxguard.cli.sessions import naming, sessions_of
from ctxguard.report.printing import ReportFormat, fitted, out, refuse_overwriting, reports_as
from ctxguard.report.progress import working


@spread("stabilize")
def stabilize(
    session: str,
    chain: StabilizerOptions,
    adapter: str | None = None,
    report: ReportFormat | None = None,
    output: Path | None = None,
) -> None:
    """Stabilize a session: print its context, or the report on it.

    With --output the context goes to the file and the report is printed.
    """
    from ctxguard.adapting import Request, stabilize_request
    from ctxguard.adapting.request import plain_object

    refuse_overwriting(output, [session])
    stabilizer = chain.stabilizer(settings_of(chain.config))
    contexts, reports = [], []
    with working("stabilizing") as told:
        for one in sessions_of(session, adapter):
            told(f"stabilizing session {one.id}")
            with naming(session, one):
                request = Request(one.native, one.instructions, one.tools or ())
                done, made = stabilize_request(stabilizer, one.adapter, request)
            contexts.append(json.dumps(one.with_request(done), ensure_ascii=False, default=plain_object))
            reports.append(made)
    if output is not None:
        out("\n".join(contexts), output)
    if output is None and report is None:
        out("\n".join(contexts))
    else:
        shown = reports_as(reports, report or "text")
        out(fitted(shown) if report in (None, "text") else shown)
    if not all(made.ok for made in reports):
        raise typer.Exit(1)
