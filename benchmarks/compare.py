"""Print the tables of docs/comparison.md: those of `ctxguard bench`, for all sessions and for each half of them.

    python benchmarks/compare.py FOLDER_OR_FILE... --with benchmarks.peers --budget 8k

The defaults of ctxguard were chosen on half a; half b only confirmed them. Below each table is the lead of ctxguard over
the rolling window in support and in gain, at the calls that both hold, with 95% intervals, resampled by session.
`--save` keeps the calls; `--add` puts those of another run into the tables, such as of a library for another Python.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

ROUNDS = 1_000


def half_of(source: str, session: str, by: str = "session") -> str:
    """Return the half of a session, the same in every run: by its name within its source, or by its source."""
    text = source if by == "source" else f"{source}/{session}"
    return "ab"[hashlib.blake2b(text.encode()).digest()[0] & 1]


def half_of_call(call) -> str:
    path, session, _ = call.place
    return half_of(Path(path).name.split(".")[0], session)


def resampled(calls: Sequence, session_of: Callable, figure: Callable, rounds: int = ROUNDS):
    """Return the 95% interval of a figure of calls, resampled by session; None for less than twenty values."""
    by = defaultdict(list)
    for call in calls:
        by[session_of(call)].append(call)
    sessions, chance = [by[name] for name in sorted(by)], random.Random(1)
    found = (figure([c for s in chance.choices(sessions, k=len(sessions)) for c in s]) for _ in range(rounds))
    values = sorted(v for v in found if v is not None)
    return (values[int(0.025 * len(values))], values[int(0.975 * len(values)) - 1]) if len(values) > 20 else None


def interval(calls: Sequence):
    """Return the 95% interval of the gain of calls."""
    from ctxguard.harness.gain import gain

    return resampled(calls, lambda call: call.place[:2], lambda some: gain(call.bits for call in some))


def leads(ours: Sequence, theirs: Sequence) -> Iterator[str]:
    """Yield by how much one row leads another in both judges, at the calls that both hold."""
    held = {call.place: call for call in theirs if call.holds}
    pairs = [(call, held[call.place]) for call in ours if call.holds and call.place in held]
    for name, kind, figure in (("support", "support", _support_lead), ("gain", "bits", _gain_lead)):
        known = [(a, b) for a, b in pairs if getattr(a, kind) is not None and getattr(b, kind) is not None]
        ends = resampled(known, lambda pair: pair[0].place[:2], figure)
        if ends is not None:
            yield f"{name} {figure(known):+.3f} [{ends[0]:+.3f}, {ends[1]:+.3f}] ({len(known)} calls)"


def _support_lead(pairs) -> float | None:
    return sum(a.support - b.support for a, b in pairs) / len(pairs) if pairs else None


def _gain_lead(pairs) -> float | None:
    worth = sum(a.bits.floor - a.bits.whole for a, _ in pairs)
    return sum(b.bits.context - a.bits.context for a, b in pairs) / worth if worth > 0 else None


def added(path: str) -> Iterator:
    """Read the calls that another run kept."""
    from ctxguard.harness.bench import BenchCall
    from ctxguard.harness.gain import Bits

    for line in Path(path).read_text(encoding="utf-8").splitlines():
        told = json.loads(line)
        told.update(place=tuple(told["place"]), newest=tuple(told["newest"]), bits=told["bits"] and Bits(*told["bits"]))
        yield BenchCall(**told)


def tables(calls: Sequence, names: Sequence[str], modules: Sequence[str]) -> Iterator[str]:
    """Yield the tables of calls, each under its heading."""
    from ctxguard.cli.bench import BenchReport, bench_row, markdown
    from ctxguard.harness.contestants import BASELINE, OWN, peers_with

    peers = [peer for peer in peers_with(modules) if peer.name in names]
    for half in ("ab", "a", "b"):
        of = [call for call in calls if half_of_call(call) in half]
        rows, told = [], []
        for budget in sorted({call.budget for call in of}):
            by = {peer.name: [c for c in of if (c.name, c.budget) == (peer.name, budget)] for peer in peers}
            rows += [bench_row(peer, budget, by[peer.name], by[BASELINE]) for peer in peers if by[peer.name]]
            told += [
                f"{budget:,}: {OWN} above the {BASELINE}: {each}"
                for each in leads(by.get(OWN, []), by.get(BASELINE, []))
            ]
        about = {"ctxguard": "", "created": "", "sources": [], "counter": "", "absent": [], "skipped": []}
        sessions = len({call.place[:2] for call in of})
        text = markdown(BenchReport(sessions=sessions, rows=rows, **about)).partition("\n* ")[0]
        yield "\n".join([f"## {'all sessions' if half == 'ab' else f'half {half}'}", "", text, *told, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sessions", nargs="*", help="recordings: files, folders, globs")
    parser.add_argument("--with", dest="modules", action="append", default=[], help="a module with further libraries")
    parser.add_argument("--only", action="append", default=[], help="a library; repeat for several")
    parser.add_argument("--budget", default="8k", help="tokens, such as 4k,8k")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--save", help="write the calls to this file")
    parser.add_argument("--add", action="append", default=[], help="a file that another run wrote")
    arguments = parser.parse_args()
    sys.path.insert(0, str(Path.cwd()))
    from ctxguard.harness.bench import contestants, play
    from ctxguard.harness.recordings import Skipped, recordings

    budgets = [int(float(text.removesuffix("k")) * 1_000) for text in arguments.budget.split(",")]
    able, absent = contestants(arguments.only, arguments.modules)
    calls = [call for path in arguments.add for call in added(path)]
    for _, outcome in play(recordings(arguments.sessions), able, budgets, processes=arguments.processes):
        if isinstance(outcome, Skipped):
            print(f"skipped {outcome}", file=sys.stderr)
        else:
            calls += outcome
    if not calls:
        sys.exit("no model call exceeds the budget: name recordings, or a smaller --budget")
    calls = list({(call.name, call.budget, call.place): call for call in calls}.values())
    if arguments.save:
        Path(arguments.save).write_text("".join(json.dumps(asdict(call)) + "\n" for call in calls), encoding="utf-8")
    print(*tables(calls, {call.name for call in calls}, arguments.modules), *absent, sep="\n")


if __name__ == "__main__":
    main()
