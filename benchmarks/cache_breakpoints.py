"""Price prompts with our cache breakpoints and with a single one at the end, on recorded sessions with usage.

    python benchmarks/cache_breakpoints.py [--budgets 16k,32k,64k]

Each model call of a session is stabilized, written as a request, and priced twice, with a cache of its own: with one
breakpoint at the end of the prompt, as providers set it automatically, and with those of `with_breakpoints`. A cache is
simulated as the providers describe it: a prefix is stored where a breakpoint is and has at least 1,024 tokens; a prompt
is served up to the longest stored prefix with which it begins (at Anthropic at most 20 blocks before a breakpoint). A
token that is read costs 0.1, one that is written 1.25, and any other 1. Nothing expires, because the recordings have
no times. The sessions were recorded without their system prompt and tools, so one is added that is as long as the first
recorded prompt. The column `billed` is what the recorded calls cost with the same prices, without any cut.
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate

from recordings import RECORDINGS

from ctxguard import Stabilizer
from ctxguard.formats.registry import format_of
from ctxguard.harness.engine import number
from ctxguard.wire.caches import with_breakpoints
from ctxguard_openai import stabilize_messages

READ, WRITTEN, PLAIN, LEAST, LOOKBACK = 0.1, 1.25, 1.0, 1_024, 20
ROWS = {
    "OpenAI": ("/v1/chat/completions", "gpt-6", "prompt_cache_breakpoint", None),
    "Anthropic": ("/v1/messages", "claude-sonnet-4-5", "cache_control", LOOKBACK),
}


class Cache:
    """A provider's prompt cache, and what the prompts have cost so far."""

    def __init__(self, lookback: int | None) -> None:
        self.lookback = lookback
        self.stored: set[tuple[str, ...]] = set()
        self.bill = 0.0

    def send(self, blocks: Sequence[str], tokens: Sequence[int], breakpoints: set[int]) -> None:
        """Add the price of a prompt: its blocks, their tokens, and the positions of the blocks with a breakpoint."""
        ends = list(accumulate(tokens))
        marked = sorted(at for at in breakpoints if ends[at] >= LEAST)
        places = (
            range(len(blocks))
            if self.lookback is None
            else [n for at in marked for n in range(max(0, at - self.lookback), at + 1)]
        )
        served = max((ends[at] for at in places if tuple(blocks[: at + 1]) in self.stored), default=0)
        written = max((ends[at] for at in marked), default=0) - served
        self.bill += READ * served + WRITTEN * max(0, written) + PLAIN * (ends[-1] - served - max(0, written))
        self.stored.update(tuple(blocks[: at + 1]) for at in marked)


def chat(messages: Sequence[Mapping[str, object]]) -> dict[str, object]:
    return {"model": "gpt-6", "messages": list(messages)}


def anthropic(messages: Sequence[Mapping[str, object]]) -> dict[str, object]:
    """Return a request to Anthropic with the texts, calls, and results of messages; only its shape counts here."""
    system, *rest = messages
    out: list[dict[str, object]] = []
    for message in rest:
        role = "assistant" if message["role"] == "assistant" else "user"
        blocks = [{"type": "text", "text": json.dumps(message)}]
        if out and out[-1]["role"] == role == "user":
            out[-1]["content"] = [*out[-1]["content"], *blocks]  # type: ignore[misc]
        else:
            out.append({"role": role, "content": blocks})
    return {"model": "claude-sonnet-4-5", "system": system["content"], "messages": out}


def blocks_of(body: Mapping[str, object], mark: str) -> Iterator[tuple[str, bool]]:
    """Yield each block of a request without its breakpoint, and whether it has one."""
    held = [{"role": "system", "content": body["system"]}] if "system" in body else []
    for message in [*held, *body["messages"]]:
        content = message["content"]
        parts = content if isinstance(content, list) else [{"type": "text", "text": content}]
        others = {key: value for key, value in message.items() if key != "content"}
        for part in parts:
            yield json.dumps([others, {key: value for key, value in part.items() if key != mark}]), mark in part


def sessions() -> Iterator[dict[str, object]]:
    for file in sorted((RECORDINGS / "transcripts_long").glob("*.jsonl.gz")):
        with gzip.open(file, "rt", encoding="utf-8") as lines:
            yield from map(json.loads, lines)


def billed(usage: Sequence[Mapping[str, int]]) -> float:
    return sum(
        READ * one["cache_read_input_tokens"]
        + WRITTEN * one["cache_creation_input_tokens"]
        + PLAIN * one["input_tokens"]
        for one in usage
    )


def price(session: Mapping[str, object], budget: int, api: str) -> tuple[float, float, int]:
    """Return the bill with one breakpoint, the bill with ours, and the number of cuts."""
    path, model, mark, lookback = ROWS[api]
    kind, stabilizer = format_of("POST", path), Stabilizer(budget)
    first = session["usage"][0]
    size = sum(first[key] for key in ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"))
    system = {"role": "system", "content": "rule " * (size - len(str(session["messages"][0])) // 4)}
    automatic, ours, cuts = Cache(lookback), Cache(lookback), 0
    for call in session["usage"]:
        history = [system, *session["messages"][: call["message"]]]
        done, report = stabilize_messages(history, stabilizer)
        cuts += report.cut is not None and report.cut.fresh
        body = (chat if api == "OpenAI" else anthropic)(done)
        marked = list(blocks_of(with_breakpoints(body, kind, model), mark))
        blocks = [block for block, _ in marked]
        tokens = [stabilizer.counter.text(block) for block in blocks]
        last = len(blocks) - 1
        own = {at for at, (_, has) in enumerate(marked) if has}
        automatic.send(blocks, tokens, {last})
        ours.send(blocks, tokens, own | {last} if api == "OpenAI" else own)
    return automatic.bill, ours.bill, cuts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budgets", default="16k,32k,64k")
    budgets = [int(number(part)) for part in parser.parse_args().budgets.split(",")]
    print(
        "| provider | session | budget | cuts | one at the end | ours | ours / one | billed |\n|---|---|---|---|---|---|---|---|"
    )
    for api in ROWS:
        for budget in budgets:
            sums = [0.0, 0.0]
            for session in sessions():
                one, ours, cuts = price(session, budget, api)
                sums = [sums[0] + one, sums[1] + ours]
                print(
                    f"| {api} | {session['id']} | {budget:,} | {cuts} | {one:,.0f} | {ours:,.0f} | {ours / one:.3f} | {billed(session['usage']):,.0f} |",
                    flush=True,
                )
            if sums[0]:
                print(
                    f"| {api} | sum | {budget:,} | | {sums[0]:,.0f} | {sums[1]:,.0f} | {sums[1] / sums[0]:.3f} | |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
