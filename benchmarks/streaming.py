"""Stream invented sessions through a replay, and print sessions per second and memory: it must not grow with them.

    python benchmarks/streaming.py [--sessions 100000] [--turns 3] [--processes 2]

Memory is the resident set of this process, which reads, hands out, and adds up, and of the largest worker. A baseline is
taken when a tenth is done, so that loaded rules and vocabularies are in it.
"""

from __future__ import annotations

import argparse
import os
import resource
import time
from pathlib import Path

from ctxguard import Stabilizer
from ctxguard.harness.contestants import synthetic_recordings
from ctxguard.harness.engine import Plan, Setting, run


def resident():
    """Return the resident set of this process in MB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sessions", type=int, default=2_000)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--budget", type=int, default=600)
    options = parser.parse_args()
    step = max(1, options.sessions // 10)
    marks = []
    begun = time.perf_counter()

    def told(results, _):
        sessions = results.sessions
        if sessions % step == 0:
            marks.append(resident())
            print(f"{sessions:>9,} sessions  {sessions / (time.perf_counter() - begun):>6.0f}/s  {marks[-1]:>6.0f} MB")

    plan = Plan((Setting("", {}, Stabilizer(options.budget)),))
    results = run(synthetic_recordings(options.sessions, options.turns), plan, processes=options.processes, after=told)
    seconds = time.perf_counter() - begun
    workers = resource.getrusage(resource.RUSAGE_CHILDREN)
    own = resource.getrusage(resource.RUSAGE_SELF)
    cpu = workers.ru_utime + workers.ru_stime + own.ru_utime + own.ru_stime
    figures = results.tallies[0].figures
    print(
        f"{results.sessions:,} sessions, {figures.calls:,} calls, {figures.cuts:,} cuts in {options.processes} processes"
    )
    print(
        f"{results.sessions / seconds:.0f} sessions/s; {cpu / results.sessions * 1_000:.1f} ms of processor time each"
    )
    print(
        f"memory: {marks[0]:.0f} MB at a tenth, {marks[-1]:.0f} MB at the end; largest worker {workers.ru_maxrss / 1e3:.0f} MB"
    )
    print(f"findings: {figures.findings or 'none'}")


if __name__ == "__main__":
    main()
