"""What the strict servers of Google's and Amazon's APIs share: HTTP on loopback, a count of their own, a script.

Written from the providers' documented rules, without any code of ctxguard's.
"""

from __future__ import annotations

import json
import re
from http.server import BaseHTTPRequestHandler
from urllib.parse import unquote

from loopback import RefusedError, listening, require

PLANTED = ("ann@example.com", "bob@mailhost.org", "4111 1111 1111 1111", "536-22-8726", "ops-pager@mailhost.org")
"""What nobody may see: in questions, tool output, system prompts and tool descriptions."""
LINE = "row {number}: the parcel left the warehouse, ask bob@mailhost.org, card 4111 1111 1111 1111, shelf {shelf}"


def output(number, lines=30):
    """Return the output of a tool: some of what was planted in it."""
    return "\n".join(LINE.format(number=f"{number}-{line}", shelf=line * 7919 % 1009) for line in range(lines))


def texts_in(value):
    """Walk every text of a JSON value, keys included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, member in value.items():
            yield key
            yield from texts_in(member)
    elif isinstance(value, list):
        for member in value:
            yield from texts_in(member)
    elif value is not None:
        yield json.dumps(value)


_PIECE = re.compile(r"[^\W\d_]{1,8}|\d{1,3}|[^\w\s]|_")


def tokens_of(body, *, without=()):
    """Return the tokens of a body by a count of the server's own: pieces of words, of numbers, and marks.

    Framing is not counted: only what every tokenizer agrees is there.
    """
    texts = [text for text in texts_in({k: v for k, v in body.items() if k not in without}) if len(text) < 50_000]
    return sum(len(_PIECE.findall(text)) for text in texts)


class Script:
    """Play the model: call tools for some steps, then answer; repeat the addresses that it was shown.

    Args:
        steps: Replies that call tools.
        parallel: Calls in each of them.
        budget: Tokens that a body may take by `tokens_of`.
    """

    def __init__(self, steps=40, *, parallel=1, budget=8_000):
        self.steps, self.parallel, self.budget = steps, parallel, budget
        self.bodies, self.refusals, self.raw = [], [], []
        self.answered = 0

    def address(self, body):
        """Return the address of the user as the model sees it."""
        history = json.dumps(body.get("contents") or body.get("messages"), ensure_ascii=False)
        found = re.search(r"<EMAIL_\d+>|\[REDACTED_EMAIL\]|ann@example\.com", history)
        return found[0] if found else "nobody"

    def judge_budget(self, body, message):
        found = tokens_of(body)
        require(found <= self.budget, message.format(found=found, budget=self.budget))

    def leaks(self):
        """Return what was planted and came in."""
        sent = unquote("\n".join(self.raw))
        return [value for value in PLANTED if value in sent]

    def extended(self, key):
        """Return the share of bodies whose history begins with that of the body before, up to its newest exchange.

        What was new in the body before may be sent whole once and bounded with the next; what stands before it may not.
        """
        pairs = [(was[key], now[key]) for was, now in zip(self.bodies, self.bodies[1:], strict=False)]
        return sum(now[: newest(was)] == was[: newest(was)] for was, now in pairs) / max(len(pairs), 1)


def newest(history):
    """Return where the newest exchange of a history begins; without one, where the history ends."""
    replies = [place for place, message in enumerate(history) if message["role"] != "user"]
    return replies[-1] if replies else len(history)


def serving(script):
    """Serve on a free port of 127.0.0.1 and give the address."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            raw = self.rfile.read(int(self.headers["Content-Length"]))
            script.raw.append(raw.decode())
            try:
                status, kind, answer = script.handle(unquote(self.path), json.loads(raw))
            except RefusedError as refusal:
                script.refusals.append(str(refusal))
                status, kind, answer = script.refused(str(refusal))
            chunks = [answer] if isinstance(answer, bytes) else answer
            self.send_response(status)
            self.send_header("Content-Type", kind)
            for name, value in script.headers(status).items():
                self.send_header(name, value)
            self.send_header("Transfer-Encoding", "chunked")
            self.send_header("Connection", "close")  # no client is left with an open socket
            self.end_headers()
            for chunk in chunks:
                self.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
                self.wfile.flush()
            self.wfile.write(b"0\r\n\r\n")

    return listening(Handler)
