"""Write the golden files: what the default policy leaves of twelve small sessions. `make goldens` runs this.

A golden file is the context of the last call as text, behind the figures of the session. Token counts are those of the
estimate, so that the files do not depend on what is installed. A change of what stays shows in the review as a change
of these files: read it as the model would.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from written import SESSIONS, record

from ctxguard.artifacts import Artifact
from ctxguard.harness import parse_session, replay
from ctxguard.harness.replay import served_contexts
from ctxguard.stabilizer import Stabilizer

FOLDER = Path(__file__).parent / "goldens"


def golden(name: str) -> str:
    """Return the golden file of a session."""
    budget = SESSIONS[name][2]
    session = parse_session(record(name))
    last: list[Artifact] = []
    cuts: list[str] = []
    for number, context in served_contexts(session, Stabilizer(budget, counter="estimate")):
        last, report = context.artifacts, context.report
        if report.cut is not None and report.cut.fresh:
            cuts.append(f"cut at call {number}: {report.tokens_before:,} -> {report.tokens_after:,} tokens")
    told = replay(session, Stabilizer(budget, counter="estimate"))
    own = told.figures
    head = [
        f"{name}: {session.adapter.name}, budget {budget:,}, {own.calls} calls, {own.refused} refused",
        f"support {_two(own.support_in_context)}, newest outputs sent {_two(own.newest)}, prefix kept {_two(own.prefix_share)}",
        *cuts,
        *(f"call {place.call}: {place}" for place in told.places),
        f"at the last call {told.calls[-1].before:,} -> {told.calls[-1].after:,} tokens:",
    ]
    return "\n".join([*head, "", *(_shown(artifact) for artifact in last)])


def _two(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def _shown(artifact: Artifact) -> str:
    calls = "".join(f"\n→ {call.name} {call.arguments}" for call in artifact.calls)
    return f"[{artifact.kind}] {artifact.text}{calls}\n"


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for path in FOLDER.glob("*.txt"):
        path.unlink()
    for name in SESSIONS:
        (FOLDER / f"{name}.txt").write_text(golden(name), encoding="utf-8")


if __name__ == "__main__":
    main()
