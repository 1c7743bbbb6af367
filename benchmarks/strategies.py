"""Measure the tokens each strategy saves on recorded agent sessions, summed over all their calls, and its time a call.

    python benchmarks/strategies.py [--sessions 60]

Each session is replayed turn by turn; no budget is set, so that what is saved is the strategy's own doing. Time is CPU
time, and each text is seen for the first time once: masking it and looking for errors is part of it. The second
table has sessions of more than 30 messages only: a window of 15 messages has nothing to do in shorter ones.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import time
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from recordings import RECORDINGS

from ctxguard import Artifact, ContextConfig, Kind
from ctxguard.compat.context_manager import ContextManager
from ctxguard.harness import read_sessions

DATA = RECORDINGS / "transcripts"
AGENTS = ("agentdojo", "claude-code", "inspect_ai", "swe-agent", "tau-bench", "tau2-gpt-4.1", "webvoyager")
STRATEGIES = {
    "compression only (medium)": {"strategy": "checkpoint", "auto_checkpoint": False},
    "sliding_window": {"strategy": "sliding_window"},
    "sliding_window, no compression": {"strategy": "sliding_window", "compression_level": "none"},
    "checkpoint": {"strategy": "checkpoint"},
    "hybrid": {"strategy": "hybrid"},
    "hybrid, compression high": {"strategy": "hybrid", "compression_level": "high"},
}


def sample(most):
    drawn = []
    for source in AGENTS:
        sessions = list(read_sessions(DATA / f"{source}.jsonl.gz"))
        step = max(1, len(sessions) // most)
        drawn += [(source, session.read()) for session in sessions[::step][:most]]
    return drawn


async def play(manager, artifacts, spent):
    before = after = 0
    for end, artifact in enumerate(artifacts):
        if artifact.kind is Kind.ASSISTANT and end:
            history = artifacts[:end]
            began = time.process_time()
            await manager.process_messages(history)
            spent.append(time.process_time() - began)
            before += manager.report.tokens_before
            after += manager.report.tokens_after
    return before, after


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=40, help="most sessions of a source")
    options = parser.parse_args()
    if not DATA.is_dir():
        sys.exit(f"no recorded sessions at {DATA}")
    drawn = sample(options.sessions)
    results = {name: apart(settings, options.sessions) for name, settings in STRATEGIES.items()}
    long = {n for n, (_, artifacts) in enumerate(drawn) if len(artifacts) > 30}
    show("All sessions", results, drawn, set(range(len(drawn))))
    show("Sessions of more than 30 messages", results, drawn, long)


def apart(settings, sessions):
    """Measure in a process of its own, so that no strategy finds texts masked and counted by another."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(measured, settings, sessions).result()


def measured(settings, sessions):
    warm = ContextManager(ContextConfig(**settings))
    asyncio.run(warm.process_messages([Artifact("user", "What is loaded once is loaded by now.")]))
    return measure(settings, sample(sessions))


def measure(settings, drawn):
    spent, rows = [], []
    for _, artifacts in drawn:
        manager = ContextManager(ContextConfig(**settings))
        rows.append(asyncio.run(play(manager, artifacts, spent)))
    return rows, spent


def show(title, results, drawn, wanted):
    sources = [s for s in AGENTS if any(drawn[n][0] == s for n in wanted)]
    print(f"\n## {title}: {len(wanted)}\n")
    print(f"| strategy | saved | {' | '.join(sources)} | ms p50 | p95 |\n{'|---' * (len(sources) + 4)}|")
    for name, (rows, spent) in results.items():
        sums = defaultdict(lambda: [0, 0])
        for number in wanted:
            for key in (drawn[number][0], ""):
                sums[key][0] += rows[number][0]
                sums[key][1] += rows[number][1]
        shares = {key: f"{1 - after / before:.0%}" if before else "–" for key, (before, after) in sums.items()}
        p50, p95 = statistics.median(spent), statistics.quantiles(spent, n=20)[-1]
        cells = " | ".join(shares[s] for s in sources)
        print(f"| {name} | {shares['']} | {cells} | {1000 * p50:.1f} | {1000 * p95:.1f} |")


if __name__ == "__main__":
    main()
