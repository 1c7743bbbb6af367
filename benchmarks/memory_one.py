"""Measure which facts survive: share of questions whose evidence is all in the context, the question put last.

    python benchmarks/memory.py [--questions 300] [--budgets 2000,4000,8000,16000] [--only recall]

No model is asked. A question counts where every message that holds its evidence stands in the context word for word
(after masking, which all strategies share). A conversation is taken in once; each question is then asked in a copy of
the process, so that none of them sees another. The time is that of one question. Needs a system that can fork.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import random
import statistics
import sys
import time
from collections import defaultdict
from functools import partial
from itertools import chain

from recordings import RECORDINGS

from ctxguard import Artifact, Stabilizer
from ctxguard.pii import STANDARD, Masker
from ctxguard.policies import agent_stages, default_stages, recall_stages
from ctxguard.stages import FillBudget, MaskPII, OrderByAuthority, RepairExchanges

DATA = RECORDINGS / "memory"
SOURCES = ("goodai-ltm", "lifebench", "longmemeval-evidence")


def conversations(source):
    with gzip.open(DATA / f"{source}.jsonl.gz", "rt", encoding="utf-8") as lines:
        records = [json.loads(line) for line in lines]
    if source != "longmemeval-evidence":
        return [(record["messages"], record["qa"]) for record in records]
    messages, questions = [], []  # evidence sessions alone: each question has all the others as filler
    for record in records:
        questions += [{**qa, "evidence": [e + len(messages) for e in qa["evidence"]]} for qa in record["qa"]]
        messages += record["messages"]
    return [(messages, questions)]


def sample(total, seed=7):
    """Draw the same number of questions from each source, evenly over its conversations."""
    drawn = []
    for source in SOURCES:
        found = conversations(source)
        most = total // len(SOURCES) // len(found)
        for number, (messages, questions) in enumerate(found):
            asked = [qa for qa in questions if qa["evidence"]]
            chosen = random.Random(f"{seed}{source}{number}").sample(asked, min(most, len(asked)))
            drawn.append((source, messages, chosen))
    return drawn


def strategies(masker):
    return {
        "stable window (agent)": lambda: agent_stages(masker=masker),
        "fill from the newest": lambda: [RepairExchanges(), MaskPII(masker=masker), FillBudget(), OrderByAuthority()],
        "recall in every turn": lambda: recall_stages(masker=masker),
        "default": lambda: default_stages(masker=masker),
        "semantic recall in every turn": lambda: recall_stages(masker=masker, embed="static"),
        "semantic default": lambda: default_stages(masker=masker, embed="static"),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--questions", type=int, default=300)
    parser.add_argument("--budgets", default="2000,4000,8000,16000")
    parser.add_argument("--only", default="", help="measure the strategies whose name contains this")
    options = parser.parse_args()
    if not DATA.is_dir():
        sys.exit(f"no recorded conversations at {DATA}")
    budgets = [int(b) for b in options.budgets.split(",")]
    masker = Masker(STANDARD)
    drawn = sample(options.questions)
    rows, times = {}, {}
    for name, stages in strategies(masker).items():
        if options.only != name:
            continue
        spent, kept = [], {}
        for budget in budgets:
            stabilizer = Stabilizer(budget, stages=stages())
            kept[budget] = measure(stabilizer, drawn, masker, spent)
        rows[name], times[name] = kept, spent
    show(rows, times, budgets)


def measure(stabilizer, drawn, masker, spent):
    kept = defaultdict(list)
    for source, messages, questions in drawn:
        history = [Artifact(m["role"], m["content"]) for m in messages]
        if stabilizer.counter.artifacts(history) <= stabilizer.budget_for():
            continue
        session = stabilizer.session()
        session.extend(history)
        session.context()
        evidence = [[masker.mask(messages[e]["content"]) for e in qa["evidence"]] for qa in questions]
        for qa, wanted in zip(questions, evidence, strict=True):
            is_ok, is_found, seconds = json.loads(in_a_copy(partial(asked, session, str(qa["question"]), wanted)))
            if not is_ok:
                sys.exit(f"{source}: a check failed at {qa['question']!r}")
            spent.append(seconds)
            kept[source].append(is_found)
    return kept


def asked(session, question, evidence):
    """Return whether the checks hold, whether all of the evidence is in the context of a question, and the seconds."""
    session.append(Artifact("user", question))
    began = time.perf_counter()
    result = session.context()
    spent = time.perf_counter() - began
    text = "\0".join(a.text for a in result.artifacts[:-1])
    return json.dumps([result.report.ok, all(one in text for one in evidence), spent])


def in_a_copy(work):
    """Return the text that a function returns in a copy of this process."""
    reads, writes = os.pipe()
    if not os.fork():
        try:
            os.write(writes, work().encode())
        finally:
            os._exit(0)
    os.close(writes)
    with os.fdopen(reads, encoding="utf-8") as answer:
        text = answer.read()
    os.wait()
    return text


def show(rows, times, budgets):
    print(
        "| strategy | "
        + " | ".join(f"{b:,}" for b in budgets)
        + " | goodai / lifebench / longmemeval at 4,000 | ms p50 |"
    )
    print("|---" * (len(budgets) + 3) + "|")
    for name, kept in rows.items():
        shares = [f"{100 * statistics.mean(chain.from_iterable(kept[b].values())):.0f}%" for b in budgets]
        at = kept.get(4_000) or kept[budgets[0]]
        sources = " / ".join(f"{100 * statistics.mean(at[s]):.0f}" if at[s] else "–" for s in SOURCES)
        print(f"| {name} | {' | '.join(shares)} | {sources} | {1000 * statistics.median(times[name]):.1f} |")
    counts = {b: sum(map(len, next(iter(rows.values()))[b].values())) for b in budgets}
    print("\nquestions: " + ", ".join(f"{n} at {b:,}" for b, n in counts.items()))


if __name__ == "__main__":
    main()
