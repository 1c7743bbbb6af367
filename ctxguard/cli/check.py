"""The command `ctxguard check`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import typer

from ctxguard.cli.options import CountingOptions, settings_of, spread
from ctxguard.cli.sessions import naming, sessions_of
from ctxguard.report.printing import out
from ctxguard.report.progress import working

if TYPE_CHECKING:
    from ctxguard.config import StabilizerConfig
    from ctxguard.report import CheckResult


@spread("check")
def check(
    session: str,
    counting: CountingOptions,
    adapter: str | None = None,
    pii: bool = False,
    report: Literal["text", "json"] = "text",
) -> None:
    """Validate a session without changing it; list the problems and exit with 1 if there are any.

    It checks calls and results, the order of authority, the provider's role rules, and the budget if one is given.
    """
    from ctxguard.config import load_context_config
    from ctxguard.harness.checking import judge_session

    known = settings_of(counting.config)
    tokens = _budget(counting, known)
    rules = load_context_config(counting.config).rule_set() if pii else None
    judged: list[tuple[str, Sequence[CheckResult]]] = []
    with working("checking") as told:
        for one in sessions_of(session, adapter):
            told(f"checking session {one.id}")
            with naming(session, one):
                results = judge_session(
                    one,
                    budget=tokens,
                    provider=counting.provider or known.provider,
                    counter=counting.counter or known.counter,
                    model=counting.model or known.model,
                    pii=pii,
                    rules=rules,
                )
            judged.append((one.id, results))
    ok = not any(result.findings for _, results in judged for result in results)
    out(_as_json(session, judged, ok=ok) if report == "json" else _as_text(judged))
    if not ok:
        raise typer.Exit(1)


def _budget(counting: CountingOptions, known: StabilizerConfig) -> int | None:
    budget = counting.budget or known.budget
    if budget is None:
        return None
    from ctxguard.stabilizer import Stabilizer

    return Stabilizer(counting.tokens(budget), headroom=counting.headroom or 0, counter="estimate").budget_for()


def _as_text(judged: Sequence[tuple[str, Sequence[CheckResult]]]) -> str:
    from ctxguard.harness.checking import told

    lines = [f"{name}: {line}" for name, results in judged for result in results for line in told(result)]
    return "\n".join(line.replace("\n", "\\n") for line in lines) or "ok"


def _as_json(path: str, judged: Sequence[tuple[str, Sequence[CheckResult]]], *, ok: bool) -> str:
    sessions = [
        {
            "id": name,
            "ok": not any(result.findings for result in results),
            "checks": [result.name for result in results],
            "findings": [
                {"check": result.name, "message": finding.message, "path": finding.path}
                for result in results
                for finding in result.findings
            ],
        }
        for name, results in judged
    ]
    return json.dumps({"file": path, "ok": ok, "sessions": sessions}, ensure_ascii=False, indent=2)
