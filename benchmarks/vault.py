"""What a vault costs: the call after one new message, masked into a vault in SQLite and redacted, side by side.

Figures are medians of processor time, and their ratio. A message has 2.5 kB that nobody has masked before, and names
somebody: who was named before, or somebody new, whose value is sealed and written, for good or for a day.
`python benchmarks/vault.py` prints the table, `python benchmarks/vault.py agent` what 200 calls of a LangChain agent cost.
"""

from __future__ import annotations

import gc
import statistics
import sys
import tempfile
import time
from itertools import count
from pathlib import Path
from typing import Any

from speed import text

from ctxguard import Artifact, Stabilizer
from ctxguard.pii import STANDARD, Masker, Vault, new_key
from ctxguard.stages import MaskPII
from ctxguard.stores import open_store

CALLS = 40
PEOPLE = 20
"""How many people a conversation names again and again."""
CONVERSATIONS = count(1)
DAY = 86_400.0


def message(conversation: int, number: int, *, is_new: bool) -> Artifact:
    person = f"new{number}" if is_new else f"user{number % PEOPLE}"
    said = text(10_000 * conversation + number, 450)  # checks remember texts, so that each conversation has its own
    return Artifact("assistant" if number % 2 else "user", f"{person}@corp-mail.net wrote: {said}")


def call_after_one_message(messages: int, vault: Vault, *, is_new: bool) -> tuple[float, float]:
    """Return milliseconds of one call, redacting and into the vault."""
    conversation = next(CONVERSATIONS)
    sealed = Masker(STANDARD, strategy="pseudonymize", vault=vault.session(str(conversation)))
    sessions = [
        Stabilizer(10_000_000, stages=[MaskPII(masker=masker)]).session() for masker in (Masker(STANDARD), sealed)
    ]
    for session in sessions:
        session.extend([message(conversation, number, is_new=False) for number in range(messages)])
        session.context()
    taken: tuple[list[float], list[float]] = ([], [])
    for number in range(messages, messages + CALLS):
        for side in (0, 1) if number % 2 else (1, 0):
            sessions[side].append(message(conversation, number, is_new=is_new))
            gc.collect()
            began = time.process_time()
            sessions[side].context()
            taken[side].append(1e3 * (time.process_time() - began))
    return statistics.median(taken[0]), statistics.median(taken[1])


def table() -> None:
    print(f"{'messages':>8}  {'names':<20}{'redact':>8}{'vault':>8}{'ratio':>8}")
    with tempfile.TemporaryDirectory() as folder, open_store(Path(folder) / "vault.db") as store:
        for messages in (100, 400, 1_000):
            for named, is_new, ttl in (("known", False, None), ("new", True, None), ("new, for a day", True, DAY)):
                vault = Vault(store, key=new_key(), ttl=ttl)
                redact, kept = call_after_one_message(messages, vault, is_new=is_new)
                print(f"{messages:>8}  {named:<20}{redact:>8.2f}{kept:>8.2f}{kept / redact:>8.2f}")


def agent() -> None:
    """Print the processor time that 200 calls of a LangChain agent spend in the guard, and the rest of them."""
    from langchain.agents import create_agent
    from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
    from langchain_core.messages import AIMessage
    from langchain_core.tools import tool

    from ctxguard_langchain import ContextGuardMiddleware

    class Model(GenericFakeChatModel):
        def bind_tools(self, *_: Any, **_settings: Any) -> Model:
            return self

    class Timed(ContextGuardMiddleware):
        spent = 0.0

        def wrap_model_call(self, request: Any, handler: Any) -> Any:
            began, inside = time.process_time(), [0.0]

            def answered(changed: Any) -> Any:
                start = time.process_time()
                try:
                    return handler(changed)
                finally:
                    inside[0] += time.process_time() - start

            try:
                return super().wrap_model_call(request, answered)
            finally:
                self.spent += time.process_time() - began - inside[0]

    @tool
    def look_up(number: int) -> str:
        """Look up a case."""
        return str(message(0, number, is_new=True).text)

    replies = [AIMessage("", tool_calls=[{"name": "look_up", "args": {"number": n}, "id": str(n)}]) for n in range(199)]
    STANDARD.find("ada@example.com")  # deriving the words to look for takes a second, once in a process
    with tempfile.TemporaryDirectory() as folder, open_store(Path(folder) / "vault.db") as store:
        guard = Timed(Stabilizer(10_000_000), vault=Vault(store, key=new_key()).session("agent"))
        model = Model(messages=iter([*replies, AIMessage("done")]))
        began = time.process_time()
        create_agent(model, [look_up], middleware=[guard]).invoke(
            {"messages": [("user", "Look them all up.")]}, {"recursion_limit": 1_000}
        )
        print(f"200 calls: {guard.spent:.1f} s in the guard, {time.process_time() - began:.1f} s in all")


if __name__ == "__main__":
    agent() if sys.argv[1:] == ["agent"] else table()
