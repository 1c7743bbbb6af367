"""What the proxy adds to a request, beside a proxy of the same make that only passes on, in one run on loopback.

    python benchmarks/proxy.py                       # 200 requests to each, 20 a second, bodies of about 20 kB
    python benchmarks/proxy.py --requests 20000 --rate 300 --size 4000    # does the memory of the process stay flat?
    python benchmarks/proxy.py --alone 20000 --size 4000                 # the same of the guard in this process
    python benchmarks/proxy.py --streams 200                             # 200 streamed answers at once, through each
    python benchmarks/proxy.py --session claude.jsonl --budget 80%       # the requests of one session of a real client

`make clients CLIENTS="--save FOLDER claude"` writes such a session.

The provider, both proxies and the client are processes of their own; the guarding one is `ctxguard serve`. Requests go to
both proxies in turn. Each belongs to one of several conversations that grow by a question and an answer, as those of chats
and agents do, and begin anew where they are long. On a loaded machine the processor time says more than p50 and p99 do.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import statistics
import subprocess
import sys
import time
from pathlib import Path

import httpx

WORDS = [
    "order",
    "invoice",
    "parcel",
    "depot",
    "route",
    "driver",
    "customer",
    "refund",
    "window",
    "signature",
    "pallet",
    "label",
]
STREAM = {"content-type": "text/event-stream"}
PAUSE, WORDS_AT_ONCE = 0.05, 10
"""Seconds between two events of a streamed answer, and the words in one of them, of five characters each."""
TURN = 60
"""Words of one message."""


def provider_app():
    from starlette.applications import Starlette
    from starlette.responses import JSONResponse, StreamingResponse
    from starlette.routing import Route

    reply = {"role": "assistant", "content": "Done, <EMAIL_1>. " + "word " * 40}
    answer = {
        "id": "c",
        "object": "chat.completion",
        "choices": [{"index": 0, "finish_reason": "stop", "message": reply}],
    }

    async def pieces(events, words):
        for number in range(events):
            await asyncio.sleep(PAUSE)
            text = "Done, <EMAIL_1>. " if number % 10 == 5 else "word " * words
            delta = {
                "id": "c",
                "object": "chat.completion.chunk",
                "choices": [{"index": 0, "delta": {"content": text}}],
            }
            yield f"data: {json.dumps(delta)}\n\n"
        yield "data: [DONE]\n\n"

    async def chat(request):
        asked = await request.json()
        if not asked.get("stream"):
            return JSONResponse(answer)
        events = asked["max_tokens"] // WORDS_AT_ONCE
        return StreamingResponse(pieces(events, WORDS_AT_ONCE), 200, STREAM)

    async def messages(request):
        await request.body()
        events = (f"event: {one['type']}\ndata: {json.dumps(one)}\n\n" for one in anthropic_events())
        return StreamingResponse(events, 200, STREAM)

    routes = [("/v1/chat/completions", chat), ("/v1/messages", messages)]
    return Starlette(routes=[Route(path, one, methods=["POST"]) for path, one in routes])


def anthropic_events():
    """Walk the events of an answer that calls a tool, as Anthropic streams it."""
    call = {"type": "tool_use", "id": "toolu_1", "name": "Read", "input": {}}
    yield {"type": "message_start", "message": {"id": "m", "role": "assistant", "usage": {"input_tokens": 9}}}
    yield {"type": "content_block_start", "index": 0, "content_block": call}
    for piece in ('{"file_', 'path": "', "/work/", "file_1.", 'py"}'):
        yield {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": piece}}
    yield {"type": "content_block_stop", "index": 0}
    yield {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 9}}
    yield {"type": "message_stop"}


def passing_app(upstream):
    from starlette.applications import Starlette
    from starlette.responses import StreamingResponse
    from starlette.routing import Route

    limits = httpx.Limits(max_connections=None, max_keepalive_connections=200)
    transport = httpx.AsyncHTTPTransport(limits=limits)

    async def pass_on(request):
        headers = [(name, value) for name, value in request.headers.raw if name not in (b"host", b"content-length")]
        sent = httpx.Request(request.method, upstream + request.url.path, headers=headers, content=await request.body())
        answer = await transport.handle_async_request(sent)
        headers = {"content-type": answer.headers["content-type"]}
        return StreamingResponse(answer.aiter_raw(), answer.status_code, headers)

    return Starlette(routes=[Route("/{path:path}", pass_on, methods=["POST"])])


def serve(role, port, upstream):
    import uvicorn

    app = provider_app() if role == "provider" else passing_app(upstream)
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="error", access_log=False)


def started(role, port, upstream, budget):
    own = [__file__, "--serve", role] if role != "guarding" else ["-m", "ctxguard", "serve", "--budget", budget]
    return subprocess.Popen([sys.executable, *own, "--port", str(port), "--upstream", upstream])


class Conversation:
    """Grow by a question and an answer, and begin anew where the body reaches twice the size."""

    def __init__(self, number, size):
        self.random = random.Random(number)
        self.number, self.size = number, size
        self.begin()

    def begin(self):
        self.messages = [{"role": "system", "content": "You are a clerk. " + self.text(200)}]
        while len(json.dumps(self.messages)) < self.size - 1_000:
            self.ask()
            self.reply()

    def text(self, words):
        return " ".join(f"{self.random.choice(WORDS)} {self.random.randrange(999)}" for _ in range(words))

    def ask(self):
        mail = f"customer{self.number}@example.com"
        self.messages.append({"role": "user", "content": f"What of {mail}? {self.text(TURN // 2)}"})

    def reply(self):
        mail = f"customer{self.number}@example.com"
        self.messages.append({"role": "assistant", "content": f"It is on its way to {mail}. {self.text(TURN // 2)}"})

    def body(self):
        """Return the next request: what was said so far, the reply to the latest question, and another question."""
        if len(json.dumps(self.messages)) > self.size * 1.2:
            self.begin()
        if self.messages[-1]["role"] == "user":
            self.reply()
        self.ask()
        return json.dumps({"model": "gpt-4o", "messages": self.messages}).encode()


def processor_time(process):
    """Return the seconds of processor time that a process has taken; 0 where the system does not say."""
    stat = Path(f"/proc/{process.pid}/stat")
    fields = stat.read_text().rpartition(")")[2].split() if stat.exists() else ["0"] * 13
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def exact_processor_time(process):
    """Return the seconds of processor time that the threads of a process have taken, to the nanosecond (Linux)."""
    tasks = Path(f"/proc/{process.pid}/task").glob("*/schedstat")
    return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9


def memory(pid):
    """Return the resident memory of a process in MB; 0 where the system does not say."""
    status = Path(f"/proc/{pid}/status")
    lines = status.read_text().splitlines() if status.exists() else []
    return next((int(line.split()[1]) / 1_000 for line in lines if line.startswith("VmRSS")), 0.0)


def waited_for(client, ports):
    for port in ports:
        for _ in range(600):
            try:
                client.get(f"http://127.0.0.1:{port}/healthz")
                break
            except httpx.TransportError:
                time.sleep(0.05)


def measure(client, ports, conversations, requests, rate):
    """Return the seconds of each request by port."""
    taken = {port: [] for port in ports}
    start = time.perf_counter()
    for number in range(requests):
        body = conversations[number % len(conversations)].body()
        for place, port in enumerate(ports if number % 2 else ports[::-1]):
            due = start + (number + place / 2) / rate
            time.sleep(max(0.0, due - time.perf_counter()))
            begun = time.perf_counter()
            answer = client.post(f"http://127.0.0.1:{port}/v1/chat/completions", content=body)
            taken[port].append(time.perf_counter() - begun)
            assert answer.status_code == 200, answer.text
    return taken


def share(values, part):
    return 1_000 * statistics.quantiles(values, n=100, method="inclusive")[part - 1]


def alone(requests, conversations):
    """Guard requests in this process, and print what each takes and how much memory there is."""
    from ctxguard import Stabilizer
    from ctxguard.wire import Guard
    from ctxguard.wire.guard import WireRequest

    guard = Guard(Stabilizer.from_policy("agent", budget=32_000))
    guard.warm()
    taken = []
    for number in range(1, requests + 1):
        body = conversations[number % len(conversations)].body()
        begun = time.process_time()
        guard.prepare(WireRequest("POST", "/v1/chat/completions", {}, body))
        taken.append(time.process_time() - begun)
        if number in (1_000, 5_000, 10_000, 20_000, requests):
            print(f"{number:>7,} requests: {memory(os.getpid()):.0f} MB", flush=True)
    p50, p99 = share(taken, 50), share(taken, 99)
    print(f"processor time of a request: p50 {p50:.2f} ms, p99 {p99:.2f} ms, mean {1_000 * statistics.mean(taken):.2f}")


def begun(given):
    """Start the provider and both proxies; return their ports and processes."""
    ports = (given.port, given.port + 1, given.port + 2)
    upstream = f"http://127.0.0.1:{given.port}"
    return ports, [
        started(*one, given.budget)
        for one in zip(("provider", "passing", "guarding"), ports, ("", upstream, upstream), strict=True)
    ]


async def streamed(client, port, bodies):
    """Ask for streamed answers all at once; return the seconds until the first and the last byte of each."""

    async def one(body):
        start, first = time.perf_counter(), 0.0
        async with client.stream("POST", f"http://127.0.0.1:{port}/v1/chat/completions", content=body) as answer:
            async for chunk in answer.aiter_raw():
                first = first or (time.perf_counter() - start if chunk else 0.0)
        assert answer.status_code == 200
        return first, time.perf_counter() - start

    return await asyncio.gather(*map(one, bodies))


async def streams(given, ports, rounds=3):
    """Send rounds of streamed requests through both proxies in turn; return the seconds by port."""
    taken = {port: [] for port in ports[1:]}
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
    bodies = [
        json.dumps({**json.loads(Conversation(n, given.size).body()), "stream": True, "max_tokens": given.words})
        for n in range(given.streams)
    ]
    async with httpx.AsyncClient(trust_env=False, timeout=300, limits=limits) as client:
        for number in range(rounds + 1):  # in the first one, the guard reads what is new to it
            for port in ports[1:]:
                done = await streamed(client, port, bodies)
                taken[port] += done if number else []
    return taken


def at_once(given):
    """Stream answers at once through both proxies, and print when their first and last bytes come."""
    ports, processes = begun(given)
    try:
        with httpx.Client(trust_env=False, timeout=30) as client:
            waited_for(client, ports)
        taken = asyncio.run(streams(given, ports))
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait()
    print(
        f"{given.streams} streams at once, {given.words / 200:g} kB of text in {given.words // WORDS_AT_ONCE} events, "
        f"{PAUSE * given.words / WORDS_AT_ONCE:g} s each at least; load {os.getloadavg()[0]:.1f}"
    )
    print(f"{'seconds until':<16}{'passing p50':>12}{'p95':>8}{'guarding p50':>14}{'p95':>8}{'times p95':>11}")
    for place, name in enumerate(("first byte", "last byte")):
        shares = [share([one[place] for one in taken[port]], part) / 1_000 for port in ports[1:] for part in (50, 95)]
        print(
            f"{name:<16}{shares[0]:>12.2f}{shares[1]:>8.2f}{shares[2]:>14.2f}{shares[3]:>8.2f}{shares[3] / shares[1]:>11.2f}"
        )


def session(given):
    """Send each request of a recorded session once through both proxies, and print the processor time that it takes."""
    asked = [json.loads(line) for line in Path(given.session).read_text(encoding="utf-8").splitlines()]
    ports, processes = begun(given)
    taken = {port: [] for port in ports[1:]}
    try:
        with httpx.Client(trust_env=False, timeout=60) as client:
            waited_for(client, ports)
            for number, (path, body) in enumerate(asked):
                places = list(zip(ports[1:], processes[1:], strict=True))
                for port, process in places if number % 2 else places[::-1]:
                    before = exact_processor_time(process)
                    answer = client.post(f"http://127.0.0.1:{port}{path}", json=body)
                    assert answer.status_code == 200, answer.text
                    time.sleep(0.05)  # what follows the answer counts, too
                    taken[port].append(exact_processor_time(process) - before)
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait()
    sizes = [len(json.dumps(body)) // 1_000 for _, body in asked]
    print(
        f"{len(asked)} requests of {sizes[0]:,} to {sizes[-1]:,} kB, budget {given.budget}; load {os.getloadavg()[0]:.1f}"
    )
    print(f"{'processor ms':<16}{'p50':>8}{'p95':>8}{'first':>8}")
    for name, port in zip(("passing on", "guarding"), ports[1:], strict=True):
        print(f"{name:<16}{share(taken[port], 50):>8.1f}{share(taken[port], 95):>8.1f}{1_000 * taken[port][0]:>8.1f}")


def beside(given, conversations):
    """Send requests to both proxies, and print what they take."""
    (_, passing, guarding), processes = begun(given)
    provider = given.port
    try:
        with httpx.Client(trust_env=False, timeout=30) as client:
            waited_for(client, (provider, passing, guarding))
            measure(client, (passing, guarding), conversations, given.conversations, given.rate)  # what is new is read
            before, spent = memory(processes[2].pid), [processor_time(one) for one in processes]
            taken: dict[int, list[float]] = {passing: [], guarding: []}
            after = []
            for quarter in range(4):
                part = given.requests * (quarter + 1) // 4 - given.requests * quarter // 4
                for port, seconds in measure(client, (passing, guarding), conversations, part, given.rate).items():
                    taken[port] += seconds
                after.append(f"{memory(processes[2].pid):.0f}")
            spent = [processor_time(one) - was for one, was in zip(processes, spent, strict=True)]
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait()
    added = [one - other for one, other in zip(taken[guarding], taken[passing], strict=True)]
    load = os.getloadavg()[0] / (os.cpu_count() or 1)
    print(f"{given.requests} requests to each, {given.rate:g} a second, bodies of about {given.size:,} bytes")
    print(f"load for each processor: {load:.1f}")
    print(f"{'':<22}{'p50 ms':>9}{'p99 ms':>9}{'processor ms':>14}")
    each = [1_000 * one / given.requests for one in spent]
    rows = (("passing on", passing, each[1]), ("guarding", guarding, each[2]))
    for name, values, processor in [(name, taken[port], one) for name, port, one in rows] + [
        ("added", added, each[2] - each[1])
    ]:
        print(f"{name:<22}{share(values, 50):>9.2f}{share(values, 99):>9.2f}{processor:>14.2f}")
    print(f"memory of the guarding proxy: {before:.0f} MB before, {', '.join(after)} MB after each quarter")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=200, help="requests to each proxy")
    parser.add_argument("--rate", type=float, default=20.0, help="requests a second to each proxy")
    parser.add_argument("--size", type=int, default=20_000, help="bytes of a body, about")
    parser.add_argument("--conversations", type=int, default=10)
    parser.add_argument("--port", type=int, default=18_790, help="first of three ports on loopback")
    parser.add_argument("--alone", type=int, default=0, help="requests to the guard alone, in this process")
    parser.add_argument("--streams", type=int, default=0, help="streamed answers at once")
    parser.add_argument("--words", type=int, default=4_000, help="words of five characters in each streamed answer")
    parser.add_argument("--session", help="file of JSON lines, each with the path and the body of a request")
    parser.add_argument("--budget", default="32000", help="of the guarding proxy")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    parser.add_argument("--upstream", default="", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        serve(given.serve, given.port, given.upstream)
        return
    conversations = [Conversation(number, given.size) for number in range(given.conversations)]
    if given.session:
        session(given)
    elif given.streams:
        at_once(given)
    elif given.alone:
        alone(given.alone, conversations)
    else:
        beside(given, conversations)


if __name__ == "__main__":
    main()
