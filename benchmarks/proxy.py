"""What the proxy adds to a request, beside a proxy of the same make that only passes on, in one run on loopback.

    python benchmarks/proxy.py                       # 200 requests to each, 20 a second, bodies of about 20 kB
    python benchmarks/proxy.py --requests 20000 --rate 200    # does its memory stay flat?

The provider, both proxies and the client are processes of their own. Requests go to both proxies in turn. Each belongs to
one of several conversations that grow by a question and an answer, as those of chats and agents do.
"""

from __future__ import annotations

import argparse
import json
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
TURN = 60
"""Words of one message."""


def provider_app():
    from starlette.applications import Starlette
    from starlette.responses import JSONResponse
    from starlette.routing import Route

    reply = {"role": "assistant", "content": "Done, <EMAIL_1>. " + "word " * 40}
    answer = {
        "id": "c",
        "object": "chat.completion",
        "choices": [{"index": 0, "finish_reason": "stop", "message": reply}],
    }

    async def chat(request):
        await request.body()
        return JSONResponse(answer)

    return Starlette(routes=[Route("/v1/chat/completions", chat, methods=["POST"])])


def passing_app(upstream):
    from starlette.applications import Starlette
    from starlette.responses import StreamingResponse
    from starlette.routing import Route

    transport = httpx.AsyncHTTPTransport()

    async def pass_on(request):
        headers = [(name, value) for name, value in request.headers.raw if name not in (b"host", b"content-length")]
        sent = httpx.Request(request.method, upstream + request.url.path, headers=headers, content=await request.body())
        answer = await transport.handle_async_request(sent)
        headers = {"content-type": answer.headers["content-type"]}
        return StreamingResponse(answer.aiter_raw(), answer.status_code, headers)

    return Starlette(routes=[Route("/{path:path}", pass_on, methods=["POST"])])


def guarding_app(upstream):
    from ctxguard import Stabilizer
    from ctxguard.wire import Guard, proxy_app

    return proxy_app(Guard(Stabilizer.from_policy("agent", budget=32_000)), upstream)


def serve(role, port, upstream):
    import uvicorn

    app = provider_app() if role == "provider" else {"passing": passing_app, "guarding": guarding_app}[role](upstream)
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="error", access_log=False)


def started(role, port, upstream=""):
    command = [sys.executable, __file__, "--serve", role, "--port", str(port), "--upstream", upstream]
    return subprocess.Popen(command)


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


def memory(process):
    """Return the resident memory of a process in MB; 0 where the system does not say."""
    status = Path(f"/proc/{process.pid}/status")
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


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=200, help="requests to each proxy")
    parser.add_argument("--rate", type=float, default=20.0, help="requests a second to each proxy")
    parser.add_argument("--size", type=int, default=20_000, help="bytes of a body, about")
    parser.add_argument("--conversations", type=int, default=10)
    parser.add_argument("--port", type=int, default=18_790, help="first of three ports on loopback")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    parser.add_argument("--upstream", default="", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        serve(given.serve, given.port, given.upstream)
        return
    provider, passing, guarding = given.port, given.port + 1, given.port + 2
    upstream = f"http://127.0.0.1:{provider}"
    processes = [
        started("provider", provider),
        started("passing", passing, upstream),
        started("guarding", guarding, upstream),
    ]
    try:
        with httpx.Client(trust_env=False, timeout=30) as client:
            waited_for(client, (provider, passing, guarding))
            conversations = [Conversation(number, given.size) for number in range(given.conversations)]
            measure(client, (passing, guarding), conversations, given.conversations, given.rate)  # what is new is read
            before = memory(processes[2])
            taken = measure(client, (passing, guarding), conversations, given.requests, given.rate)
            after = memory(processes[2])
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait()
    added = [one - other for one, other in zip(taken[guarding], taken[passing], strict=True)]
    print(f"{given.requests} requests to each, {given.rate:g} a second, bodies of about {given.size:,} bytes")
    print(f"{'':<22}{'p50 ms':>9}{'p99 ms':>9}")
    for name, values in (("passing on", taken[passing]), ("guarding", taken[guarding]), ("added", added)):
        print(f"{name:<22}{share(values, 50):>9.2f}{share(values, 99):>9.2f}")
    print(f"memory of the guarding proxy: {before:.0f} MB before, {after:.0f} MB after")


if __name__ == "__main__":
    main()
