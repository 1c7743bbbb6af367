"""Price what a session's calls are billed: the default chain against a valid trim at every call.

    python benchmarks/cost.py [--budgets 8000,32000] [--targets 0.3,0.5,0.7]

Prices are those of provider caches (`ctxguard.harness.pricing`): a cached token costs a tenth, prefixes are cached from
1,024 tokens on in steps of 128. Rolling is the longest valid tail that fits, cut anew at each call: system first, then
whole exchanges, the user message that opened the turn before them. Only sessions count that exceed the budget and whose
every call rolling can serve. The default chain uses no summarizer, so it has no tokens of one to add. The plain cut is
the chain's own window alone, down to half at each hit: what masking and bounding add to it shows in the next rows.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

from ctxguard import BudgetExceededError, Kind, Stabilizer
from ctxguard.harness import read_sessions
from ctxguard.harness.pricing import PriceModel, common_prefix
from ctxguard.history import AUTHORITY, units
from ctxguard.pii import STANDARD, Masker
from ctxguard.stages import BoundToolOutput, ExpireLifetimes, MaskPII, OrderByAuthority, RepairExchanges, StableWindow
from ctxguard.tokens import REPLY_TOKENS

DATA = Path(__file__).resolve().parents[2] / "shared" / "data" / "transcripts"
DEFAULT = 0.6


def rolling_tail(draft):
    """Keep the longest valid tail that fits."""
    if draft.tokens <= draft.budget:
        return draft
    artifacts, found = draft.artifacts, units(draft)
    total = draft.overhead + draft.counter.artifacts(a for a in artifacts if a.kind in AUTHORITY)
    openers, opener = [], None
    for number, unit in enumerate(found):
        openers.append(number if unit.user else opener)
        opener = openers[-1]
    best, tokens = None, 0
    for number in range(len(found) - 1, -1, -1):
        tokens += found[number].tokens
        opener = openers[number]
        if opener is None and number:
            continue
        anchor = 0 if opener in (None, number) else found[opener].tokens
        if total + tokens + anchor <= draft.budget:
            best = number
        if total + tokens > draft.budget:
            break
    if best is None:
        raise BudgetExceededError(total + tokens, draft.budget, {"last exchange": tokens})
    kept = {p for n in {*range(best, len(found)), openers[best]} - {None} for p in range(found[n].start, found[n].end)}
    return draft.revise(a for p, a in enumerate(artifacts) if a.kind in AUTHORITY or p in kept)


def chain(masker, target):
    """The default chain, its masker shared so that every run costs only the fit."""
    before = [RepairExchanges(), ExpireLifetimes(), MaskPII(masker=masker), BoundToolOutput()]
    return [*before, StableWindow(target=target), OrderByAuthority()]


@dataclass
class Bill:
    """What the calls of a session cost, in units of one uncached input token."""

    price: float = 0.0
    full: float = 0.0
    tokens: int = 0
    calls: int = 0
    cuts: int = 0
    refused: int = 0


def billed(session, stabilizer):
    """Replay a session; what stood in the previous prompt is cached, tool schemas first."""
    prices, artifacts, bill, previous, before = PriceModel(), session.read(), Bill(), None, 0
    tools = stabilizer.counter.tools(session.tools)
    for end, artifact in enumerate(artifacts):
        if artifact.kind is not Kind.ASSISTANT or not end:
            continue
        try:
            result = stabilizer.stabilize(artifacts[:end], tools=session.tools, overhead=REPLY_TOKENS)
        except BudgetExceededError:
            bill.refused += 1
            continue
        report, shared = result.report, 0
        if previous is not None:
            same = common_prefix(previous, result.artifacts)
            shared = tools + stabilizer.counter.artifacts(result.artifacts[:same])
        bill.price += prices.price(report.tokens_after, shared)
        bill.full += prices.price(report.tokens_before, before)
        bill.tokens += report.tokens_after
        bill.calls += 1
        bill.cuts += report.cut is not None and report.cut.fresh
        previous, before = result.artifacts, report.tokens_before
    return bill


def sessions_over(budget):
    counter = Stabilizer(budget).counter
    for path in sorted(DATA.glob("*.jsonl.gz")):
        for session in read_sessions(path):
            if counter.artifacts(session.read()) + counter.tools(session.tools) + REPLY_TOKENS > budget:
                yield path.name.removesuffix(".jsonl.gz"), session


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--budgets", default="2000,4000,8000,32000")
    parser.add_argument("--targets", default="0.2,0.3,0.4,0.5,0.6,0.7,0.8")
    options = parser.parse_args()
    if not DATA.is_dir():
        sys.exit(f"no recorded sessions at {DATA}")
    masker = Masker(STANDARD)
    for budget in map(int, options.budgets.split(",")):
        compare(budget, [float(t) for t in options.targets.split(",")], masker)


def compare(budget, targets, masker):
    rolling = Stabilizer(budget, stages=[RepairExchanges(), rolling_tail, OrderByAuthority()], checks=())
    over = [(source, session, billed(session, rolling)) for source, session in sessions_over(budget)]
    served = [(source, session, bill) for source, session, bill in over if not bill.refused]
    print(f"\n## Budget {budget:,}: {len(served)} of {len(over)} sessions over it can be served at every call\n")
    if not served:
        return
    base = [bill for _, _, bill in served]
    print("| target | bill / rolling | bill / full history | share of the budget used | calls that cut |")
    print("|---|---|---|---|---|")
    show("rolling", base, base, budget)
    plain = Stabilizer(budget, stages=[RepairExchanges(), StableWindow(target=0.5), OrderByAuthority()], checks=())
    show("plain cut to half", [billed(session, plain) for _, session, _ in served], base, budget)
    for target in targets:
        stabilizer = Stabilizer(budget, stages=chain(masker, target), checks=())
        own = [billed(session, stabilizer) for _, session, _ in served]
        show(f"{target:g}", own, base, budget)
        if target == DEFAULT:
            default = own
    show_sources([source for source, _, _ in served], default if DEFAULT in targets else own, base)


def show(name, own, base, budget):
    price, full = sum(b.price for b in own), sum(b.full for b in own)
    used = sum(b.tokens for b in own) / (budget * sum(b.calls for b in own))
    cuts = sum(b.cuts for b in own) / sum(b.calls for b in own)
    refused = sum(b.refused for b in own)
    note = f" ({refused} refused)" if refused else ""
    print(f"| {name} | {price / sum(b.price for b in base):.2f} | {price / full:.2f} | {used:.0%} | {cuts:.0%}{note} |")


def show_sources(sources, own, base):
    print("\n| source | sessions | bill / rolling at the default target |\n|---|---|---|")
    for source in sorted(set(sources)):
        pairs = [(o.price, b.price) for s, o, b in zip(sources, own, base, strict=True) if s == source]
        print(f"| {source} | {len(pairs)} | {sum(o for o, _ in pairs) / sum(b for _, b in pairs):.2f} |")


if __name__ == "__main__":
    main()
