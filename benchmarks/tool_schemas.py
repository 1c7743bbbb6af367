"""Which share of recorded calls can be served with tools as they are, and with shorter descriptions?

    python benchmarks/tool_schemas.py [--budgets 3500,4000]

Every model call whose history exceeds the budget is given to the default stabilizer, once with the recorded tools and once
with what `shortened_tools` makes of them for the budget. A call is served if what must stay fits. Recordings without tools
are the same in both columns.
"""

from __future__ import annotations

import argparse
from collections import Counter
from itertools import accumulate

from recordings import RECORDINGS

from ctxguard import Stabilizer
from ctxguard.adapting import find_adapter, shortened_tools
from ctxguard.errors import BudgetExceededError
from ctxguard.harness import read_sessions
from ctxguard.tokens import ArtifactCounter, find_counter

REPLY = 3


def served(artifacts, tools, budget, counter, pressed):
    """Return how many of the pressed calls fit."""
    session, done, fits = Stabilizer(budget, counter=counter).session(tools=tools, overhead=REPLY), 0, 0
    for end in (n for n, artifact in enumerate(artifacts) if n and artifact.kind == "assistant"):
        session.extend(artifacts[done:end])
        done = end
        try:
            session.context()
            fits += end in pressed
        except BudgetExceededError:
            pass
    return fits


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budgets", default="3500,4000")
    parser.add_argument("--counter", default="o200k_base")
    arguments = parser.parse_args()
    count = ArtifactCounter(find_counter(arguments.counter))
    adapter = find_adapter("openai")
    for budget in map(int, arguments.budgets.split(",")):
        found: Counter[tuple[str, str]] = Counter()
        for file in sorted((RECORDINGS / "transcripts").glob("*.gz")):
            for session in read_sessions(file):
                artifacts = adapter.read(session.native)
                before = list(accumulate(map(count.artifact, artifacts), initial=REPLY + count.tools(session.tools)))
                ends = [n for n, artifact in enumerate(artifacts) if n and artifact.kind == "assistant"]
                pressed = {end for end in ends if before[end] > budget}
                if not pressed:
                    continue
                short = shortened_tools(session.tools, budget) if session.tools else session.tools
                found[file.stem, "calls"] += len(pressed)
                for name, tools in (("as they are", session.tools), ("shortened", short)):
                    found[file.stem, name] += served(artifacts, tools, budget, arguments.counter, pressed)
        for name in (*sorted({file for file, _ in found}), "all"):
            row = {k: sum(v for (f, c), v in found.items() if c == k and name in (f, "all")) for _, k in found}
            told = ", ".join(
                f"{key} {row[key]} ({row[key] / row['calls']:.1%})" for key in ("as they are", "shortened")
            )
            print(f"{budget}: {name}: {row['calls']} calls; {told}")


if __name__ == "__main__":
    main()
