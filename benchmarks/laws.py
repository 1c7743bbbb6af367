"""Measure which laws hold for which strategy, and for every two of them in a row, on recorded sessions.

    python benchmarks/laws.py [--sessions 4] [--calls 60] [--budget 8000] [--provider strict] [--pairs]

Each session is replayed call by call, and each result is stabilized once more. *extends*: share of the prompts that
extend the one before. *told*: share of the others where the report says so, and from where on. *again*: share of the
results that come back unchanged when they are stabilized again.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from itertools import permutations
from zlib import crc32

from recordings import RECORDINGS

from ctxguard import BudgetExceededError, Kind, Stabilizer
from ctxguard.compaction import CompactionConfig, HistoryCompactor
from ctxguard.harness import read_sessions
from ctxguard.pii import STANDARD, Masker
from ctxguard.stages import (
    BoundToolOutput,
    CheckpointManager,
    IntelligentPruner,
    MaskPII,
    MergeSimilar,
    OrderByAuthority,
    RecallRelevant,
    RepairExchanges,
    SlidingWindow,
    StableWindow,
)
from ctxguard.strategies.checkpoints import PhaseRule

DATA = RECORDINGS / "transcripts"
MASKER = Masker(STANDARD)
PHASES = [PhaseRule(f"part {n}", lambda artifact, n=n: crc32(artifact.text[:40].encode()) % 24 == n) for n in range(8)]
"""Phases that end anywhere: those of shops are rare in the recorded sessions."""
STRATEGIES = {
    "StableWindow": lambda _: [],
    "SlidingWindow": lambda _: [SlidingWindow()],
    "CheckpointManager": lambda _: [CheckpointManager(PHASES)],
    "MergeSimilar": lambda _: [MergeSimilar(every=10)],
    "IntelligentPruner": lambda _: [IntelligentPruner()],
    "HistoryCompactor": lambda budget: [
        HistoryCompactor(
            CompactionConfig(max_tokens=budget * 3 // 4, target_tokens=budget // 3),
            summarizer=lambda _: "They went on with the task.",
        )
    ],
}


def chain(names, budget, provider):
    """Return the stabilizer of these strategies; recall takes its place behind the window that holds the budget."""
    chosen = [stage for name in names if name in STRATEGIES for stage in STRATEGIES[name](budget)]
    recall = RecallRelevant()
    fit = [StableWindow(recall=recall), recall] if "RecallRelevant" in names else [StableWindow()]
    before = [RepairExchanges(), MaskPII(masker=MASKER), BoundToolOutput()]
    return Stabilizer(budget, stages=[*before, *chosen, *fit, OrderByAuthority()], provider=provider)


def sample(most):
    for path in sorted(DATA.glob("*.jsonl.gz")):
        sessions = list(read_sessions(path))
        for session in sessions[:: max(1, len(sessions) // most)][:most]:
            yield session.read()


def play(names, budget, histories, calls, provider=None):
    counts = Counter()
    for history in histories:
        stabilizer, previous = chain(names, budget, provider), None
        ends = [end for end, artifact in enumerate(history) if artifact.kind is Kind.ASSISTANT and end]
        for end in ends[:calls]:
            try:
                result = stabilizer.stabilize(history[:end])
                again = stabilizer.stabilize(result.artifacts).artifacts
            except BudgetExceededError:
                previous = None
                continue
            counts.update(results=1, again=again == result.artifacts)
            if previous is not None:
                counts.update(follows=1, extends=result.artifacts[: len(previous)] == previous)
                counts.update(told=is_told(previous, result))
            previous = result.artifacts
    return counts


def is_told(previous, result):
    """Tell whether a prompt that does not extend the one before differs where the report says."""
    if result.artifacts[: len(previous)] == previous:
        return False
    cut = result.report.cut
    same = cut.position if cut is not None and cut.fresh else len(previous)
    return result.artifacts[:same] == previous[:same]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sessions", type=int, default=4, help="most sessions of a source")
    parser.add_argument("--calls", type=int, default=60, help="most calls of a session")
    parser.add_argument("--budget", type=int, default=8_000)
    parser.add_argument("--provider", help="whose role rules hold, strict for example")
    parser.add_argument("--pairs", action="store_true", help="also every two strategies in a row")
    options = parser.parse_args()
    if not DATA.is_dir():
        sys.exit(f"no recorded sessions at {DATA}")
    histories = list(sample(options.sessions))
    names = [*STRATEGIES, "RecallRelevant"]
    wanted = [(name,) for name in names] + ([*permutations(names[1:], 2)] if options.pairs else [])
    print("| strategies | calls | extends | told | again |\n|---|---|---|---|---|")
    for each in wanted:
        counts = play(each, options.budget, histories, options.calls, options.provider)
        others = counts["follows"] - counts["extends"]
        told = share(counts["told"], others)
        extends, again = share(counts["extends"], counts["follows"]), share(counts["again"], counts["results"])
        print(f"| {' + '.join(each)} | {counts['results']} | {extends} | {told} | {again} |", flush=True)


def share(part, whole):
    return f"{part / whole:.1%}" if whole else "–"


if __name__ == "__main__":
    main()
