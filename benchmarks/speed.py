"""The call after one new message: ours against langchain_core's trim_messages, side by side in one run.

Figures are medians over the latest calls of a growing history, and ratios of medians; both sides see the same
messages in the same process, in turns. `python benchmarks/speed.py` prints the table.
"""

from __future__ import annotations

import gc
import statistics
import subprocess
import sys
import time
import warnings

from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.messages.utils import count_tokens_approximately, trim_messages

from ctxguard import Artifact, Stabilizer
from ctxguard.tokens import find_counter
from ctxguard_openai import OpenAIAdapter, stabilize_messages

BUDGET = 8_000
WORDS = [
    "the",
    "order",
    "was",
    "shipped",
    "on",
    "monday",
    "and",
    "the",
    "customer",
    "asks",
    "where",
    "the",
    "parcel",
    "is",
    "now",
]


def text(seed: int, words: int) -> str:
    return " ".join(
        WORDS[(seed * 7 + n * 3) % len(WORDS)] + (str(seed + n) if n % 11 == 0 else "") for n in range(words)
    )


def dicts(count: int) -> list[dict]:
    """Return a history of `count` messages: turns of a question, a tool exchange and a reply."""
    messages: list[dict] = [{"role": "system", "content": text(1, 60)}]
    for n in range(count - 1):
        step = n % 4
        if step == 0:
            messages.append({"role": "user", "content": text(n, 25)})
        elif step == 1:
            call = {
                "id": f"call_{n}",
                "type": "function",
                "function": {"name": "look_up", "arguments": f'{{"order": "A-{n}"}}'},
            }
            messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        elif step == 2:
            messages.append({"role": "tool", "tool_call_id": f"call_{n - 1}", "content": text(n, 150)})
        else:
            messages.append({"role": "assistant", "content": text(n, 60)})
    return messages


def lang(messages: list[dict]) -> list:
    """Return the same history as LangChain messages."""
    made: list = []
    for m in messages:
        if m["role"] == "system":
            made.append(SystemMessage(m["content"]))
        elif m["role"] == "user":
            made.append(HumanMessage(m["content"]))
        elif m["role"] == "tool":
            made.append(ToolMessage(m["content"], tool_call_id=m["tool_call_id"]))
        else:
            calls = [
                {"name": c["function"]["name"], "args": {"order": c["id"]}, "id": c["id"]}
                for c in m.get("tool_calls", [])
            ]
            made.append(AIMessage(m["content"] or "", tool_calls=calls))
    return made


def timed(call, repeat: int) -> float:
    times = []
    for _ in range(repeat):
        start = time.process_time()
        call()
        times.append(time.process_time() - start)
    return statistics.median(times) * 1_000


def rows() -> None:
    counter = find_counter("o200k_base")

    def exact(messages: list) -> int:
        return sum(3 + counter.count(m.content if isinstance(m.content, str) else str(m.content)) for m in messages)

    print(f"budget {BUDGET:,} tokens, counter {counter.name}; CPU ms of the call after one new message, median")
    print(
        f"{'messages':>9} {'ours, new message':>18} {'ours, first call':>17} {'trim exact':>11} {'trim approx':>12} {'exact/ours':>11} {'approx/ours':>12}"
    )
    for size in (100, 1_000, 10_000):
        messages = dicts(size + 12)
        native = lang(messages[:size])
        stabilizer = Stabilizer(BUDGET, counter="o200k_base")
        first = timed(lambda m=messages, s=stabilizer, n=size: stabilize_messages(m[:n], s), 1)
        grown = [
            timed(lambda m=messages, s=stabilizer, n=size + k: stabilize_messages(m[:n], s), 1) for k in range(1, 12)
        ]
        gc.collect()
        options = {"max_tokens": BUDGET, "strategy": "last", "start_on": "human", "include_system": True}
        repeat = 3 if size > 1_000 else 7
        with_exact = timed(lambda n=native, o=options: trim_messages(n, token_counter=exact, **o), repeat)
        approximate = timed(
            lambda n=native, o=options: trim_messages(n, token_counter=count_tokens_approximately, **o), repeat
        )
        ours = statistics.median(grown)
        print(
            f"{size:>9,} {ours:>18.2f} {first:>17.2f} {with_exact:>11.2f} {approximate:>12.2f} {with_exact / ours:>10.1f}x {approximate / ours:>11.2f}x"
        )
        mask = next(s for s in stabilizer.stages if hasattr(s, "masker"))
        held = stabilizer.counter.cache
        print(
            f"{'':>9} caches: {len(held):,} counts over {held.chars / 1e6:.2f} M characters, bound {2 * held.max_chars / 1e6:.0f} M; masks likewise ({type(mask).__name__})"
        )


def passages() -> None:
    """Time the calls of a chat that sends passages with its latest question and does not store them."""
    for size in (100, 1_000, 10_000):
        messages = dicts(size + 60)
        stabilizer = Stabilizer(BUDGET, counter="o200k_base")
        times = []
        for end in (n for n in range(size, size + 60) if messages[n]["role"] == "user"):
            asked = {"role": "user", "content": f"Passages: {text(end, 300)}\n\n{messages[end]['content']}"}
            request = [*messages[:end], asked]
            times.append(timed(lambda r=request, s=stabilizer: stabilize_messages(r, s), 1))
        print(
            f"{size:>9,} messages, passages in the request alone: first call {times[0]:.0f} ms, "
            f"later ones {statistics.median(times[1:]):.1f} ms"
        )


def cuts() -> None:
    """Time the calls that cut at the end of a long session; an outsider has nothing to compare them with."""
    for size in (100, 1_000, 10_000):
        messages = OpenAIAdapter().read(dicts(size + 400))
        session = Stabilizer(BUDGET, counter="o200k_base").session()
        session.extend(messages[:size])
        session.context()
        fresh, others = [], []
        for message in messages[size:]:
            session.append(message)
            began = time.process_time()
            cut = session.context().report.cut
            (fresh if cut is not None and cut.fresh else others).append((time.process_time() - began) * 1_000)
        print(
            f"{size:>9,} messages: a call that cuts {statistics.median(fresh):.1f} ms (worst of {len(fresh)}: "
            f"{max(fresh):.1f}), one that does not {statistics.median(others):.1f} ms"
        )


def appended() -> None:
    """Time `session.context()` after one more message of 200 characters, where nothing has to be cut."""
    for size in (100, 1_000, 10_000):
        session = Stabilizer(32_000, counter="o200k_base").session()
        session.append(Artifact("system", "You help."))
        messages = [Artifact("user" if n % 2 == 0 else "assistant", text(n, 60)[:200]) for n in range(size + 41)]
        session.extend(messages[:size])
        session.context()
        times = []
        for message in messages[size:]:
            began = time.process_time()
            session.append(message)
            session.context()
            times.append((time.process_time() - began) * 1_000)
        print(f"{size:>9,} messages: session.context() after one more {statistics.median(times):.2f} ms")


def lens() -> None:
    messages = dicts(2_000)
    adapter = OpenAIAdapter()
    adapter.write(messages, adapter.read(messages))
    ms = timed(lambda: adapter.write(messages, adapter.read(messages)), 21)
    print(f"read + write without edits: {ms * 1_000 / len(messages):.2f} us a message (dicts)")


def first_of_a_process() -> None:
    """Time the first call of a process, which loads the rules and the vocabulary, with one short message."""
    program = (
        "import time, ctxguard; began = time.process_time(); "
        "ctxguard.guard([{'role': 'user', 'content': 'Hi'}], budget=8_000); print(time.process_time() - began)"
    )
    times = [
        float(subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout)
        for _ in range(3)
    ]
    print(f"first call of a process: {min(times):.2f} s (least of three)")


def imports() -> None:
    times = []
    for _ in range(10):
        run = subprocess.run(
            [sys.executable, "-X", "importtime", "-c", "import ctxguard"], capture_output=True, text=True, check=True
        )
        last = run.stderr.strip().splitlines()[-1]
        times.append(int(last.split("|")[1]) / 1_000)
    print(f"import ctxguard: {statistics.median(times):.1f} ms (median of ten)")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    imports()
    first_of_a_process()
    lens()
    cuts()
    passages()
    appended()
    rows()
