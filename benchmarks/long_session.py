"""Measure what one call costs, in time and in memory, as one session grows to 10,000 turns; by strategy.

    python benchmarks/long_session.py [--turns 100,1000,5000,10000] [--only recall] [--json FILE]

A turn is a question, a reply that calls a tool, and its result; one result in a hundred is an error. Before each point a
stretch of calls is timed, one a turn, in CPU time: the median, and the mean, in which the calls count that choose anew.
"Repairing only" is what handling a list of that length costs anyway; the other columns are ratios to it, in the same
run. Memory is what the call's objects, caches and indexes hold beside the history itself, in a second run.
`docs/scripts/long_session.py` draws the picture from the JSON.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import time
import tracemalloc
from pathlib import Path

from ctxguard import Artifact, Stabilizer, ToolCall
from ctxguard.compaction import CompactionConfig, HistoryCompactor
from ctxguard.policies import agent_stages
from ctxguard.stages import (
    CheckpointManager,
    IntelligentPruner,
    MergeSimilar,
    OrderByAuthority,
    RecallRelevant,
    RepairExchanges,
    SlidingWindow,
    StableWindow,
)

BUDGET = 8_000
UNLIMITED = 1 << 40
STRETCH = 60
WORDS = (
    *("order", "parcel", "monday", "customer", "asks", "where", "shipped", "delayed"),
    *("refund", "kettle", "invoice", "address", "arrives", "broken", "shelf"),
)


def text(seed, words):
    return " ".join(
        WORDS[(seed * 7 + n * n) % len(WORDS)] + (str(seed + n) if n % 9 == 0 else "") for n in range(words)
    )


def turn(number):
    call = ToolCall("look_up", f'{{"order": "A-{number}"}}', f"call_{number}")
    found = f"Error: no order A-{number}" if number % 97 == 5 else text(number, 60)
    return [
        Artifact("user", text(number, 20)),
        Artifact("assistant", "", calls=(call,)),
        Artifact("tool", found, answers=f"call_{number}"),
    ]


def strategies():
    config = CompactionConfig(max_tokens=8_000, target_tokens=3_000)
    recall = RecallRelevant()
    chains = {
        "repairing only": ([], UNLIMITED),
        "StableWindow": ([StableWindow()], BUDGET),
        "SlidingWindow": ([SlidingWindow()], UNLIMITED),
        "CheckpointManager": ([CheckpointManager()], UNLIMITED),
        "MergeSimilar": ([MergeSimilar(every=10)], UNLIMITED),
        "IntelligentPruner": ([IntelligentPruner()], UNLIMITED),
        "HistoryCompactor": ([HistoryCompactor(config, summarizer=lambda _: "They went on.")], UNLIMITED),
        "RecallRelevant": ([StableWindow(recall=recall), recall], BUDGET),
        "agent policy": (agent_stages()[1:-1], BUDGET),
    }
    return {
        name: Stabilizer(budget, stages=[RepairExchanges(), *stages, OrderByAuthority()], checks=())
        for name, (stages, budget) in chains.items()
    }


def times(stabilizer, points):
    """Return the median and the mean of milliseconds a call before each point."""
    history, spent = [Artifact("system", "You help.")], {point: [] for point in points}
    for number in range(points[-1]):
        history += turn(number)
        due = next(point for point in points if point > number)
        if due - number <= STRETCH:
            began = time.process_time()
            stabilizer.stabilize(history)
            spent[due].append(1_000 * (time.process_time() - began))
    return {p: (statistics.median(s), statistics.mean(s[1:])) for p, s in spent.items()}


def memory(stabilizer, points):
    """Return the megabytes held at each point, the history itself not counted."""
    history = [Artifact("system", "You help.")] + [a for number in range(points[-1]) for a in turn(number)]
    gc.collect()
    tracemalloc.start()
    held = {}
    for point in points:
        for end in range(3 * point - 8, 3 * point + 2, 3):
            result = stabilizer.stabilize(history[:end])
        del result
        gc.collect()
        held[point] = tracemalloc.get_traced_memory()[0] / 1e6
    tracemalloc.stop()
    return held


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", default="100,1000,5000,10000", help="the points")
    parser.add_argument("--only", default="", help="strategies whose name holds this")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    options = parser.parse_args()
    points = [int(n) for n in options.turns.split(",")]
    names = [name for name in strategies() if options.only in name or name == "repairing only"]
    took = {name: times(strategies()[name], points) for name in names}
    held = {name: memory(strategies()[name], points) for name in names}
    show(points, took, held)
    if options.json:
        options.json.write_text(json.dumps({"points": points, "ms": took, "mb": held}, indent=1))


def show(points, took, held):
    base = took["repairing only"]
    heads = [f"{p:,} turns" for p in points]
    print("CPU time a call, median / mean of the ratio to repairing only\n")
    print(f"| strategy | {' | '.join(heads)} |\n{'|---' * (len(points) + 1)}|")
    print(f"| repairing only (ms) | {' | '.join(f'{base[p][0]:.2f}' for p in points)} |")
    for name, own in took.items():
        if name != "repairing only":
            cells = (f"{own[p][0] / base[p][0]:.1f} / {own[p][1] / base[p][1]:.1f}" for p in points)
            print(f"| {name} | {' | '.join(cells)} |")
    print(f"\nMemory held, MB\n\n| strategy | {' | '.join(heads)} |\n{'|---' * (len(points) + 1)}|")
    for name, own in held.items():
        print(f"| {name} | {' | '.join(f'{own[p]:.1f}' for p in points)} |")


if __name__ == "__main__":
    main()
