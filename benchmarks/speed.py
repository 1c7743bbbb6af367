"""What a guard costs on messages as people write them, beside tokenizing the same texts in the same run.

    python benchmarks/speed.py [--sizes 1000,5000] [--budget 8000] [--quick]
    python benchmarks/speed.py --tiny [--sizes 4000,20000]    # many tiny messages through each door

Three kinds of histories: *mix* (sessions of agents and support, one after another, several turns each), *chat* (long
memories of a person, every second message a question), and *agent* (one request, then calls and results). They are made
of recordings where these are there (`recordings.py`); without them, of the invented sessions of `invented.py` with
personal data of the templates in `pii_templates.py` in every message of a user, and the first line says so.

All figures are processor time in one process, after `ctxguard.warm()`, which loads rules and vocabulary, and one call. *First sight* is
the first call on a history that the process does not know, with masking and all checks; its ratio is to counting the
same texts with the same tokenizer. *Next* is the call after one more message of a growing history: after a message of
the user, or after any other one. Masking the new message is part of it. *List* hands over the whole list each time, as
frameworks do, and each message in it is compared with what it was; *session* hands over the new message alone.

With `--tiny`, each door and size has a process of its own, and its messages have eight words, so that what a message
costs besides its text shows: five times as many are to take at most six times as long.
"""

from __future__ import annotations

import argparse
import gc
import gzip
import json
import statistics
import subprocess
import sys
import time
import tracemalloc
import warnings
from collections.abc import Iterator
from pathlib import Path
from random import Random

from recordings import RECORDINGS

from ctxguard import Stabilizer, warm
from ctxguard.errors import BudgetExceededError
from ctxguard.tokens import find_counter
from ctxguard_openai import stabilize_messages

COUNTER = "o200k_base"
HERE = Path(__file__).parent


def records(path: str) -> list[dict]:
    with gzip.open(RECORDINGS / path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def told_apart(message: dict, session: object) -> dict:
    """Return a message whose ids of calls are those of its session alone."""
    own = dict(message)
    if own.get("tool_calls"):
        own["tool_calls"] = [{**call, "id": f"{session}-{call['id']}"} for call in own["tool_calls"]]
    if own.get("tool_call_id"):
        own["tool_call_id"] = f"{session}-{own['tool_call_id']}"
    return own


def mix() -> Iterator[dict]:
    """Yield the messages of recorded sessions one after another, one session of each source in turn."""
    pools = [iter(records(f"transcripts/{path.name}")) for path in sorted((RECORDINGS / "transcripts").glob("*.gz"))]
    has_prompt = False
    while pools:
        for pool in list(pools):
            session = next(pool, None)
            if session is None:
                pools.remove(pool)
            elif not session.get("broken"):
                for message in session["messages"]:
                    if message["role"] in ("system", "developer"):
                        if has_prompt:
                            continue
                        has_prompt = True
                    yield told_apart(message, session["id"])


def chat() -> Iterator[dict]:
    """Yield the messages of long chats."""
    for name in ("goodai-ltm", "lifebench"):
        for conversation in records(f"memory/{name}.jsonl.gz"):
            yield from ({"role": m["role"], "content": m["content"]} for m in conversation["messages"])


def agent() -> Iterator[dict]:
    """Yield one request, and the calls and results of long coding sessions."""
    yield {"role": "user", "content": "Reorganize the coding agent as planned, and keep its tests green."}
    for name in ("transcripts_long/pi-mono", "transcripts/claude-code"):
        for session in records(f"{name}.jsonl.gz"):
            for message in session["messages"]:
                if message["role"] in ("assistant", "tool"):
                    yield told_apart(message, session["id"])


def invented(kind: str) -> Iterator[dict]:
    """Yield messages that are as personal and as varied as recorded ones, without a recording."""
    from invented import session
    from pii_template_sets import SETS
    from pii_templates import text_of

    chance = Random(7)
    templates = [template for templates in SETS.values() for template in templates]
    yield {"role": "user", "content": "Look into these cases one by one."}
    for seed in range(10**6):
        for message in session(seed % 60)[0]:
            if message["role"] in ("system", "developer") or (kind == "agent" and message["role"] == "user"):
                continue
            if kind == "chat" and (message["role"] == "tool" or message.get("tool_calls")):
                continue
            own = told_apart(message, seed)
            if own["role"] == "user":
                own["content"] = f"{own['content']} {text_of(chance.choice(templates), chance)}"
            yield own


KINDS = {"mix": mix, "chat": chat, "agent": agent}


def history(kind: str, size: int) -> list[dict]:
    """Return the first messages of a kind of history, as many times as it takes."""
    make = KINDS[kind] if RECORDINGS.is_dir() else lambda: invented(kind)
    found: list[dict] = []
    for number in range(10**6):
        for message in make():
            if len(found) == size:
                return found
            found.append(message if number == 0 else again(message, number))
    return found


def again(message: dict, number: int) -> dict:
    """Return a message for a further round: other ids, and a text that no cache knows."""
    own = told_apart(message, number)
    if isinstance(own.get("content"), str) and own["role"] != "system":
        own["content"] = f"{own['content']} ({number})"
    return own


def texts(messages: list[dict]) -> Iterator[str]:
    for message in messages:
        content = message.get("content")
        yield from [content] if isinstance(content, str) else [p["text"] for p in content or () if p.get("text")]
        yield from (call["function"]["arguments"] for call in message.get("tool_calls") or ())


def spent(call) -> float:
    began = time.process_time()
    call()
    return time.process_time() - began


def first_sight(kind: str, size: int, budget: int) -> None:
    messages, count = history(kind, size), find_counter(COUNTER).count
    gc.collect()
    tokenizing = spent(lambda: [count(text) for text in texts(messages)])
    first = spent(lambda: stabilize_messages(messages, Stabilizer(budget, counter=COUNTER)))
    from ctxguard.pii import STANDARD

    fresh = [f"{text} " for text in texts(messages)]  # unknown to the cache
    finding = spent(lambda: [STANDARD.find(text) for text in fresh])
    size_kb = sum(map(len, texts(messages))) / 1_000
    print(
        f"{kind:<6} {size:>6,} messages, {size_kb:>6,.0f} kB | first sight {first:6.2f} s = {first / tokenizing:4.0f} "
        f"times tokenizing ({tokenizing * 1_000:.0f} ms) | of it finding personal data {finding:5.2f} s"
    )


def growing(kind: str, size: int, budget: int, more: int) -> None:
    """Time each call of a history that grows by one message, from `size` messages on."""
    messages, stabilizer = history(kind, size + more), Stabilizer(budget, counter=COUNTER)
    stabilize_messages(messages[:size], stabilizer)
    lists = _calls(messages, size, lambda end: stabilize_messages(messages[:end], stabilizer))
    messages = [again(message, 1) for message in messages]
    session = Stabilizer(budget, counter=COUNTER).session()
    session.extend(messages[:size])
    session.context()
    sessions = _calls(messages, size, lambda end: (session.append(messages[end - 1]), session.context()))
    for name, (asked, others) in (("list", lists), ("session", sessions)):
        told = f"next: {_figures(others)} | after a user's message: {_figures(asked)}"
        print(f"{kind:<6} {size:>6,} messages, {name:<7} | {told}")


def _calls(messages: list[dict], size: int, call) -> tuple[list[float], list[float]]:
    """Return the milliseconds of the calls after a user's message, and of all others."""
    asked: list[float] = []
    others: list[float] = []
    for end in range(size + 1, len(messages) + 1):
        try:
            took = spent(lambda end=end: call(end)) * 1_000
        except BudgetExceededError:
            continue
        (asked if messages[end - 1]["role"] == "user" else others).append(took)
    return asked, others


def _figures(times: list[float]) -> str:
    return f"{statistics.median(times):6.1f} ms, worst {max(times):6.1f} of {len(times)}" if times else "none"


def memory(kind: str, size: int, budget: int) -> None:
    """Print the memory that a guard keeps for a history, without the history itself."""
    messages, stabilizer = history(kind, size), Stabilizer(budget, counter=COUNTER)
    tracemalloc.start()
    stabilize_messages(messages, stabilizer)
    gc.collect()
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    print(f"{kind:<6} {size:>6,} messages | {kept / 1e6:.0f} MB are kept between calls, caches included")


def tiny(size: int) -> list[dict]:
    """Return messages of eight words in turn of a user and an assistant, the last one of the user."""
    roles = ("user", "assistant")
    return [
        {"role": roles[n % 2], "content": f"ok {n}, go on with part {n % 17} please"} for n in range(size // 2 * 2 + 1)
    ]


def door(name: str, size: int, budget: int) -> float:
    """Return the seconds of the first call on tiny messages through one door of the library."""
    from ctxguard import guard
    from ctxguard.wire import Guard
    from ctxguard.wire.guard import WireRequest

    def session(messages: list[dict]) -> None:
        session = Stabilizer(budget).session()
        session.extend(messages)
        session.context()

    def wire(path: str, key: str):
        wire_guard = Guard(Stabilizer(budget))
        return lambda messages: wire_guard.prepare(
            WireRequest("POST", path, {}, json.dumps({"model": "gpt-4o", "max_tokens": 99, key: messages}).encode())
        )

    def langchain(messages: list[dict]) -> list:
        from langchain_core.messages import AIMessage, HumanMessage

        return [(HumanMessage if one["role"] == "user" else AIMessage)(one["content"]) for one in messages]

    def pydantic_ai(messages: list[dict]) -> list:
        from pydantic_ai.messages import ModelRequest, ModelResponse, TextPart, UserPromptPart

        made = {
            "user": lambda text: ModelRequest([UserPromptPart(text)]),
            "assistant": lambda text: ModelResponse([TextPart(text)]),
        }
        return [made[one["role"]](one["content"]) for one in messages]

    def gemini(messages: list[dict]) -> list:
        roles = {"user": "user", "assistant": "model"}
        return [{"role": roles[one["role"]], "parts": [{"text": one["content"]}]} for one in messages]

    convert = {"langchain": langchain, "pydantic_ai": pydantic_ai, "gemini": gemini}.get(name, list)
    call = {
        "session": session,
        "chat": wire("/v1/chat/completions", "messages"),
        "anthropic": wire("/v1/messages", "messages"),
        "responses": wire("/v1/responses", "input"),
        "gemini": wire("/v1beta/models/g:generateContent", "contents"),
    }.get(name, lambda messages: guard(messages, budget=budget))
    call(convert(tiny(10)))
    messages = convert(tiny(size))
    return spent(lambda: call(messages))


DOORS = ("guard", "session", "langchain", "pydantic_ai", "chat", "anthropic", "responses", "gemini")


def doors(sizes: list[int], budget: int) -> None:
    """Print what tiny messages cost through each door, each time in a process of its own."""
    for name in DOORS:
        seconds = []
        for size in sizes:
            program = f"import warnings; warnings.simplefilter('ignore'); import speed; print(speed.door({name!r}, {size}, {budget}))"
            told = [
                subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=HERE)
                for _ in range(3)
            ]
            seconds.append(min(float(one.stdout) for one in told))
        figures = ", ".join(f"{size:,}: {took:.2f} s" for size, took in zip(sizes, seconds, strict=True))
        print(f"{name:<12} {figures} | {seconds[-1] / seconds[0]:.1f} times", flush=True)


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes")
    parser.add_argument("--budget", type=int, default=8_000)
    parser.add_argument("--quick", action="store_true", help="1,000 messages of each kind, and nothing else")
    parser.add_argument("--tiny", action="store_true", help="many tiny messages through each door, and nothing else")
    options = parser.parse_args()
    if options.tiny:
        doors([int(each) for each in (options.sizes or "4000,20000").split(",")], options.budget)
        return
    print("messages: " + ("recordings" if RECORDINGS.is_dir() else "invented sessions with personal data of templates"))
    print(f"ctxguard.warm(): {spent(warm):.2f} s")
    stabilize_messages([{"role": "user", "content": "mail a@b.example"}], Stabilizer(options.budget, counter=COUNTER))
    sizes = [1_000] if options.quick else [int(each) for each in (options.sizes or "1000,5000").split(",")]
    for size in sizes:
        for kind in KINDS:
            first_sight(kind, size, options.budget)
    if options.quick:
        return
    for size in (100, 1_000, 10_000):
        for kind in KINDS:
            growing(kind, size, options.budget, 120)
    for kind in KINDS:
        memory(kind, 1_000, options.budget)
    first_of_a_process()


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
