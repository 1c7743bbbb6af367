"""Measure what a context still holds of what the agent's next step needs, and what it is billed: ours beside others.

    python benchmarks/what_stays.py [--budgets 4000,8000,32000] [--processes 2] [--sources claude-code,tau-bench]

At every recorded model call whose history exceeds the budget: next-action support (`ctxguard.harness.fidelity`), plain
and with context, averaged over the calls that need anything; the share of prompts that extend the one before; and the
bill as a share of a rolling window's, cut anew at each call, over the calls that both serve (a cached token costs a
tenth, prefixes are cached from 1,024 tokens on in steps of 128). Calls are refused where nothing valid fits.

`summarize` is LangChain's `SummarizationMiddleware` with an empty summary: it shows what the structure keeps, without
what a summary would add and without the tokens of writing it. `clear tool uses` is LangChain's `ClearToolUsesEdit`,
whose prompts may exceed the budget: such calls count as refused.
"""

from __future__ import annotations

import argparse
import inspect
import sys
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path

from ctxguard import BudgetExceededError, Kind, Stabilizer
from ctxguard.harness import read_sessions
from ctxguard.harness.fidelity import Fidelity, Support, mean_support
from ctxguard.harness.pricing import PriceModel, common_prefix
from ctxguard.history import exchanges
from ctxguard.pii import STANDARD, Masker
from ctxguard.tokens import REPLY_TOKENS, ArtifactCounter, find_counter

DATA = Path(__file__).resolve().parents[2] / "shared" / "data" / "transcripts"
COUNTER = "o200k_base"
KEPT_RESULTS = 3
"""Tool results that clearing leaves, as in LangChain's and Anthropic's defaults."""


class Player:
    """Answer the calls of one session in order: what would be sent for the history up to a position.

    `at` returns the artifacts, or None where the strategy can send nothing valid within the budget.
    """

    def __init__(self, artifacts, budget, beside, tools):
        self.artifacts, self.budget, self.beside, self.tools = artifacts, budget, beside, tools
        self.count = ArtifactCounter(find_counter(COUNTER))
        self.authority = [a for a in artifacts if a.kind in (Kind.SYSTEM, Kind.TASK)]

    def room(self, end):
        """Tokens that are left beside system prompt, task and tools."""
        return self.budget - self.beside - self.count.artifacts(self.before(end)[0])

    def before(self, end):
        """Return authority and the rest of the history before a position."""
        history = self.artifacts[:end]
        authority = [a for a in history if a.kind in (Kind.SYSTEM, Kind.TASK)]
        return authority, [a for a in history if a.kind not in (Kind.SYSTEM, Kind.TASK)]


class Ours(Player):
    """The default policy of this library."""

    def __init__(self, *given):
        super().__init__(*given)
        settings = {"margin": 0} if "margin" in inspect.signature(Stabilizer).parameters else {}
        self.stabilizer = Stabilizer(self.budget, counter=COUNTER, checks=(), **settings)

    def at(self, end):
        try:
            history = self.artifacts[:end]
            return self.stabilizer.stabilize(history, tools=self.tools, overhead=REPLY_TOKENS).artifacts
        except BudgetExceededError:
            return None


class Rolling(Player):
    """The longest valid tail that fits, cut anew at each call, behind the user message that opened its first turn."""

    def at(self, end):
        authority, rest = self.before(end)
        room = self.room(end)
        units = [[rest[p] for p in exchange.positions] for exchange in exchanges(rest)]
        openers, opener = [], None
        for number, unit in enumerate(units):
            opener = number if unit[0].kind is Kind.USER else opener
            openers.append(opener)
        best, tokens = None, 0
        for number in range(len(units) - 1, -1, -1):
            tokens += self.count.artifacts(units[number])
            opener = openers[number]
            extra = 0 if opener in (None, number) else self.count.artifacts(units[opener])
            if tokens + extra <= room and (opener is not None or number == 0):
                best = number
        if best is None:
            return None
        kept = sorted({*range(best, len(units)), openers[best]} - {None})
        return authority + [artifact for number in kept for artifact in units[number]]


class OfLangChain(Player):
    """What the strategies of LangChain share: the messages, numbered by the artifacts they stand for."""

    def __init__(self, *given):
        super().__init__(*given)
        self.messages = [self._message(p, a) for p, a in enumerate(self.artifacts)]

    def _message(self, position, artifact):
        from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage

        name, text = str(position), artifact.text
        if artifact.kind is Kind.TOOL:
            return ToolMessage(text, tool_call_id=artifact.answers or "none", id=name)
        if artifact.kind is Kind.ASSISTANT:
            calls = [{"name": call.name, "args": {}, "id": call.id or "none"} for call in artifact.calls]
            return AIMessage(text, tool_calls=calls, id=name)
        return (HumanMessage if artifact.kind is Kind.USER else SystemMessage)(text, id=name)

    def artifact(self, message):
        """Return the artifact of a message, edited as the message is."""
        if message.id is None or not message.id.isdigit():
            from ctxguard import Artifact

            return Artifact("user", message.text)
        own = self.artifacts[int(message.id)]
        return own if message.text == own.text else own.revised(content=message.text)

    def tokens(self, messages):
        return self.count.artifacts(map(self.artifact, messages))


class Trimmed(OfLangChain):
    """`trim_messages` with the settings its documentation shows; a tail may also start with the model's message."""

    def at(self, end):
        from langchain_core.messages import trim_messages

        kept = trim_messages(
            self.messages[:end],
            max_tokens=max(0, self.budget - self.beside),
            token_counter=self.tokens,
            strategy="last",
            include_system=True,
            start_on=("human", "ai"),
        )
        found = [self.artifact(message) for message in kept]
        return found if any(a.kind not in (Kind.SYSTEM, Kind.TASK) for a in found) else None


class Cleared(OfLangChain):
    """`ClearToolUsesEdit`: all but the latest tool results are replaced by a placeholder."""

    def at(self, end):
        from langchain.agents.middleware import ClearToolUsesEdit

        messages = list(self.messages[:end])
        edit = ClearToolUsesEdit(trigger=max(1, self.budget - self.beside), keep=KEPT_RESULTS)
        edit.apply(messages, count_tokens=self.tokens)
        found = [self.artifact(message) for message in messages]
        return found if self.beside + self.count.artifacts(found) <= self.budget else None


class Summarized(OfLangChain):
    """`SummarizationMiddleware` at half of the budget, with an empty summary."""

    def __init__(self, *given):
        super().__init__(*given)
        self.state, self.seen = [], 0

    def at(self, end):
        from langchain.agents.middleware import SummarizationMiddleware
        from langchain_core.language_models import FakeListChatModel

        room = max(2, self.room(end))
        new = self.messages[self.seen : end]
        self.state += [m for m in new if m.type != "system"]
        self.seen = end
        middleware = SummarizationMiddleware(
            FakeListChatModel(responses=["-"]),
            trigger=("tokens", room),
            keep=("tokens", room // 2),
            token_counter=self.tokens,
            trim_tokens_to_summarize=None,
        )
        update = middleware.before_model({"messages": self.state}, None)
        if update is not None:
            self.state = list(update["messages"][1:])
        found = self.before(end)[0] + [self.artifact(message) for message in self.state]
        return found if self.beside + self.count.artifacts(found) <= self.budget else None


PLAYERS = {
    "rolling window": Rolling,
    "trim_messages": Trimmed,
    "clear tool uses": Cleared,
    "summarize (structure)": Summarized,
    "ctxguard (agent)": Ours,
}


@dataclass(frozen=True, slots=True)
class Call:
    """What one strategy did at one call under pressure; `price` is None where it refused."""

    source: str
    name: str
    budget: int
    place: tuple[str, int]
    price: float | None = None
    extends: bool = False
    support: Support | None = None


def sessions(names) -> Iterator[tuple[str, object]]:
    for path in sorted(DATA.glob("*.jsonl.gz")):
        source = path.name.removesuffix(".jsonl.gz")
        if not names or source in names:
            yield from ((source, session) for session in read_sessions(path))


def measured(source, session, budgets, strategies) -> list[Call]:
    """Play one session with every strategy at every budget."""
    artifacts = session.read()
    count = ArtifactCounter(find_counter(COUNTER))
    beside = count.tools(session.tools) + REPLY_TOKENS
    if beside + count.artifacts(artifacts) <= min(budgets):
        return []
    fidelity = Fidelity(mask=Masker(STANDARD).mask)
    ends = [end for end, a in enumerate(artifacts) if end and a.kind is Kind.ASSISTANT]
    before = {end: beside + count.artifacts(artifacts[:end]) for end in ends}
    needs = {end: fidelity.needs(artifacts[:end], artifacts[end]) for end in ends if before[end] > min(budgets)}
    calls = []
    for budget in (b for b in budgets if max(before.values(), default=0) > b):
        for name in strategies:
            player = PLAYERS[name]
            try:
                playing = player(artifacts, budget, beside, session.tools)
            except ImportError:
                continue
            calls += played(source, session, name, playing, ends, before, needs, fidelity)
    return calls


def played(source, session, name, playing, ends, before, needs, fidelity) -> Iterator[Call]:
    prices, previous = PriceModel(), None
    for end in ends:
        context = playing.at(end)
        place = (session.id, end)
        pressed = before[end] > playing.budget
        if context is None:
            previous = None
            if pressed:
                yield Call(source, name, playing.budget, place)
            continue
        shared, extends = 0, True
        if previous is not None:
            same = common_prefix(previous, context)
            extends, shared = same == len(previous), playing.beside + playing.count.artifacts(context[:same])
        price = prices.price(playing.beside + playing.count.artifacts(context), shared)
        previous = context
        if pressed:
            support = fidelity.support(needs[end], context) if needs[end] else None
            yield Call(source, name, playing.budget, place, price, extends, support)


def show(calls: list[Call], base: dict[tuple[str, int], float], label: str, name: str) -> None:
    served = [call for call in calls if call.price is not None]
    if not served:
        print(f"| {label} | {name} | {len(calls)} | {len(calls)} | – | – | – | – |")
        return
    mean = mean_support(call.support for call in served if call.support)
    support = " | ".join(f"{share:.2f}" for share in mean) if mean else "– | –"
    kept = sum(call.extends for call in served) / len(served)
    both = [(call.price, base[call.place]) for call in served if call.place in base]
    bill = f"{sum(own for own, _ in both) / sum(other for _, other in both):.2f}" if both else "–"
    print(f"| {label} | {name} | {len(calls)} | {len(calls) - len(served)} | {support} | {kept:.2f} | {bill} |")


def report(calls: list[Call], budget: int, *, by_source: bool) -> None:
    groups = defaultdict(list)
    for call in calls:
        if call.budget == budget:
            groups["all", call.name].append(call)
            if by_source:
                groups[call.source, call.name].append(call)
    base = {call.place: call.price for call in groups.get(("all", "rolling window"), ()) if call.price is not None}
    print(f"\n## {budget:,} tokens\n")
    print("| sessions | strategy | calls | refused | support | with context | prefix kept | bill / rolling |")
    print("|---|---|---|---|---|---|---|---|")
    for label in sorted({label for label, _ in groups}, key=lambda label: (label != "all", label)):
        for name in PLAYERS:
            if (label, name) in groups:
                show(groups[label, name], base, label, name)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budgets", default="4000,8000,32000")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--strategies", default=",".join(PLAYERS), help="comma-separated; all by default")
    parser.add_argument("--sources", default="", help="comma-separated names of files; all by default")
    parser.add_argument("--by-source", action="store_true", help="also show each source of the data")
    options = parser.parse_args()
    if not DATA.is_dir():
        sys.exit(f"no recorded sessions at {DATA}")
    budgets = tuple(int(budget) for budget in options.budgets.split(","))
    calls: list[Call] = []
    with ProcessPoolExecutor(options.processes) as pool:
        work = sessions(set(filter(None, options.sources.split(","))))
        sources, played_sessions = zip(*work, strict=True)
        for found in pool.map(
            measured, sources, played_sessions, repeat(budgets), repeat(options.strategies.split(",")), chunksize=4
        ):
            calls += found
    for budget in budgets:
        report(calls, budget, by_source=options.by_source)


if __name__ == "__main__":
    main()
