"""Whether the record of what was sent is whole: requests through `ctxguard serve --audit`, which is killed now and then.

    python benchmarks/audit.py                    # 1,000 requests, killed five times
    python benchmarks/audit.py --requests 5000

It prints how many requests upstream saw, how many of these have a line, whether a body with another byte has none, and
what a line costs: seconds of the same requests with and without a record.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx

from ctxguard.wire import AuditLog

os.environ["CTXGUARD_AUDIT_KEY"] = "of this benchmark alone"
CLIENTS = 8


def upstream(seen):
    class Provider(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            size = int(self.headers["content-length"])
            body = self.rfile.read(size)
            if len(body) == size:  # of a request that the kill broke off, it saw a part
                seen.append(body)
            data = b'{"id": "c", "choices": []}'
            self.send_response(200)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Provider)
    server.handle_error = lambda *_: None  # a killed proxy breaks connections off
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}"


@contextmanager
def proxy(url, folder, *options):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    command = [sys.executable, "-m", "ctxguard", "serve", "--upstream", url, "--port", str(port), "--grace", "0"]
    address = f"http://127.0.0.1:{port}"
    with subprocess.Popen([*command, *options], cwd=folder, stderr=subprocess.DEVNULL) as process:
        for _ in range(600):
            with suppress(httpx.TransportError):
                httpx.get(f"{address}/healthz", trust_env=False)
                break
            time.sleep(0.1)
        try:
            yield process, address
        finally:
            process.kill()


def asked(address, numbers, process=None, kill_at=None):
    """Send requests of several clients; kill the proxy after some of them. Return the seconds."""
    begun = time.perf_counter()
    done = []
    with httpx.Client(base_url=address, trust_env=False, timeout=30) as client, ThreadPoolExecutor(CLIENTS) as pool:

        def ask(number):
            content = f"note {number} of ann{number}@corp-mail.net " * 20
            with suppress(httpx.TransportError):
                body = {"model": "gpt-4o", "messages": [{"role": "user", "content": content}]}
                client.post("/v1/chat/completions", content=json.dumps(body))
                done.append(number)
            if kill_at is not None and len(done) >= kill_at:
                process.kill()

        list(pool.map(ask, numbers))
    return time.perf_counter() - begun


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--requests", type=int, default=1_000)
    options.add_argument("--kills", type=int, default=5)
    given = options.parse_args()
    seen: list[bytes] = []
    url = upstream(seen)
    with tempfile.TemporaryDirectory() as folder:
        number = 0
        share = given.requests // (given.kills + 1)
        while len(seen) < given.requests:
            is_last = len(seen) + share >= given.requests
            with proxy(url, folder, "--audit", "audit.jsonl") as (process, address):
                count = given.requests - len(seen) if is_last else 2 * share
                asked(address, range(number, number + count), process, None if is_last else share)
                number += count
        log = AuditLog(Path(folder) / "audit.jsonl")
        recorded = sum(len(list(log.sent(body))) == 1 for body in seen)
        changed = sum(any(log.sent(body[:-1] + b" ")) for body in seen[:50])
        lines = len(log.path.read_bytes().splitlines())
        print(f"upstream saw {len(seen)} requests; {recorded} have one line; the record has {lines} lines")
        print(f"of 50 bodies with another last byte, {changed} have a line")
        for told, extra in (("without a record", ()), ("with a record", ("--audit", "second.jsonl"))):
            with proxy(url, folder, *extra) as (_, address):
                asked(address, range(20))
                print(f"{told}: {asked(address, range(300)):.2f} s for 300 requests of {CLIENTS} clients")


if __name__ == "__main__":
    main()
