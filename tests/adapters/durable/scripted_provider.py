"""A provider of Chat Completions that answers from a script, writes down every body that it gets, and can crash.

An answer depends on its request alone, so a request that is sent again gets the same answer.
"""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path

from openai import AsyncOpenAI, DefaultAsyncHttpxClient

PEOPLE = ("ada@corp-mail.net", "bob@corp-mail.net", "eve@corp-mail.net")
TASK = f"I am {PEOPLE[0]}. Look up A-17, and write to {PEOPLE[1]} where it is."
ANSWER = f"I wrote to {PEOPLE[1]}; {PEOPLE[2]} asked before."
MAIL = f"{PEOPLE[1]}: It is moving.\n"
REQUESTS = 4
"""The number of model calls of one run."""
BUDGET = 1_800
"""A budget that the last two requests of a run would exceed."""
KEY = "VGhlIGtleSBvZiBhIHRlc3QsIG9mIDMyIGJ5dGVzISE="
"""The key of the vault, which outlives a process."""
_HTTP = import_module(DefaultAsyncHttpxClient.__mro__[1].__module__.partition(".")[0])
"""The package with which the installed client sends: httpx, or the one after it."""


async def look_up(order: str) -> str:
    log = "\n".join(f"12:{n:02} GET /orders/{order} 200, asked by {PEOPLE[2]}" for n in range(40))
    return f"order {order}\n{log}"


def mailer(folder: Path):
    """Return a tool that writes mails into a file."""

    async def send_mail(to: str, text: str) -> str:
        with (folder / "mails").open("a") as mails:
            mails.write(f"{to}: {text}\n")
        return "sent"

    return send_mail


def reply(messages):
    results = sum(message["role"] == "tool" for message in messages)
    if results == 0:
        return {"tool_calls": [call("c1", "look_up", {"order": "A-17"})]}
    if results == 1:
        mail = call("c3", "send_mail", {"to": "<EMAIL_2>", "text": "It is moving."})
        return {"tool_calls": [call("c2", "look_up", {"order": "B-2"}), mail]}
    if results == 3:
        return {"tool_calls": [call("c4", "look_up", {"order": "C-4"})]}
    return {"content": "I wrote to <EMAIL_2>; <EMAIL_3> asked before."}


def call(identifier, name, arguments):
    return {"id": identifier, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}


class Provider:
    """The provider.

    Args:
        log: The file for the bodies of all requests, one a line.
        crash: What is called in place of an answer.
        at: The request of this process that gets no answer; None means that all are answered.
    """

    def __init__(self, log: Path, crash, at: int | None = None):
        self.log, self.crash, self.at, self.count = Path(log), crash, at, 0

    def begin(self, log: Path, at: int | None = None):
        """Write into another file from now on, and count anew."""
        self.log, self.at, self.count = log, at, 0

    def bodies(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []

    def client(self) -> AsyncOpenAI:
        transport = _HTTP.MockTransport(self._answer)
        return AsyncOpenAI(api_key="none", http_client=_HTTP.AsyncClient(transport=transport), max_retries=0)

    def _answer(self, request):
        with self.log.open("a") as log:
            log.write(request.content.decode() + "\n")
        self.count += 1
        if self.count == self.at:
            self.crash()
        message = {"role": "assistant", "content": None, **reply(json.loads(request.content)["messages"])}
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if "tool_calls" in message else "stop"}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        body = {"id": "r", "object": "chat.completion", "created": 1, "model": "gpt-5.5", "usage": usage}
        return _HTTP.Response(200, json={**body, "choices": [choice]})


def check(bodies):
    """Check the requests of a run that nothing disturbed: masked, cut, and all there."""
    assert not [person for person in PEOPLE if person in "".join(bodies)]
    assert "<EMAIL_3>" in bodies[-1], "a value that came from a tool is masked, too"
    assert "[shortened by ctxguard" in bodies[-1]
    assert len(bodies) == REQUESTS
