"""The command `ctxguard demo`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ctxguard.cli.options import StabilizerOptions, require_window, settings_of, spread
from ctxguard.report.printing import ReportFormat, Reports, note, out, working

if TYPE_CHECKING:
    from ctxguard.stabilizer import Stabilizer


@spread("demo")
def demo(
    chain: StabilizerOptions,
    report: ReportFormat = "text",
    save: Path | None = None,
) -> None:
    """Show what ctxguard does, on an example session: before, after, and the report."""
    from ctxguard.harness.demo import demo_report, demo_session, show_demo

    with working("stabilizing"):
        shown = demo_report(_stabilizer(chain))
    if report == "text":
        show_demo(shown)
    else:
        reports = Reports(report, several=False)
        reports.add(shown)
        out(reports.shown())
    if save is not None:
        session = demo_session()
        out(json.dumps({"messages": session.native, "tools": session.tools}, ensure_ascii=False, indent=1), save)
        note(f"the session is in {save}")


def _stabilizer(chain: StabilizerOptions) -> Stabilizer:
    """Return the stabilizer of the demo.

    Without `--config` it has the settings that the documentation shows, whatever configuration the working directory
    has.
    """
    from ctxguard.harness.demo import DEMO_BUDGET, DEMO_POLICY
    from ctxguard.stabilizer import Stabilizer

    if chain.config is not None:
        return chain.stabilizer(settings_of(chain.config), default=DEMO_BUDGET)
    chosen = replace(chain, policy=chain.policy or DEMO_POLICY, provider=chain.provider or "openai").given()
    require_window(str(chosen["policy"]), chosen)
    return Stabilizer.from_policy(budget=chain.tokens(chain.budget or DEMO_BUDGET), **chosen)
