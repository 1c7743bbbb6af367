"""What a vault costs: the call after one new message, masked into a vault in SQLite and redacted, side by side.

Figures are medians of processor time, and their ratio. A message has 2.5 kB and names somebody: who was named before,
or somebody new, whose value is sealed and written. `python benchmarks/vault.py` prints the table.
"""

from __future__ import annotations

import gc
import statistics
import tempfile
import time
from pathlib import Path

from speed import text

from ctxguard import Artifact, Stabilizer
from ctxguard.pii import STANDARD, Masker, SessionVault, Vault, new_key
from ctxguard.stages import MaskPII
from ctxguard.stores import open_store

CALLS = 25
PEOPLE = 20
"""How many people a conversation names again and again."""


def message(number: int, *, is_new: bool) -> Artifact:
    person = f"new{number}" if is_new else f"user{number % PEOPLE}"
    return Artifact("assistant" if number % 2 else "user", f"{person}@corp-mail.net wrote: {text(number, 450)}")


def call_after_one_message(messages: int, vault: SessionVault, *, is_new: bool) -> tuple[float, float]:
    """Return milliseconds of one call, redacting and into the vault."""
    maskers = Masker(STANDARD), Masker(STANDARD, strategy="pseudonymize", vault=vault)
    sessions = [Stabilizer(10_000_000, stages=[MaskPII(masker=masker)]).session() for masker in maskers]
    for session in sessions:
        session.extend([message(number, is_new=False) for number in range(messages)])
        session.context()
    taken: tuple[list[float], list[float]] = ([], [])
    for number in range(messages, messages + CALLS):
        for session, times in zip(sessions, taken, strict=True):
            session.append(message(number, is_new=is_new))
            gc.collect()
            began = time.process_time()
            session.context()
            times.append(1e3 * (time.process_time() - began))
    return statistics.median(taken[0]), statistics.median(taken[1])


def main() -> None:
    print(f"{'messages':>8}  {'names':<12}{'redact':>8}{'vault':>8}{'ratio':>8}")
    with tempfile.TemporaryDirectory() as folder, open_store(Path(folder) / "vault.db") as store:
        vault = Vault(store, key=new_key())
        for messages in (100, 400, 1_000):
            for is_new in (False, True):
                redact, kept = call_after_one_message(messages, vault.session(f"{messages} {is_new}"), is_new=is_new)
                named = "somebody new" if is_new else "known people"
                print(f"{messages:>8}  {named:<12}{redact:>8.2f}{kept:>8.2f}{kept / redact:>8.2f}")


if __name__ == "__main__":
    main()
