"""Large texts: what the first call costs, and the next one, beside one plain expression over the same text.

`python benchmarks/large_texts.py [MB]` (10 by default) prints processor seconds, and ratios of one run.
"""

from __future__ import annotations

import random
import re
import resource
import sys
import time

from ctxguard import Artifact, Stabilizer
from ctxguard.pii import STANDARD

PLAIN = re.compile(r"\b\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}\b|@[a-z0-9.]{3,64}")


def hosts(rng: random.Random, number: int) -> str:
    address = ".".join(str(rng.randint(11, 220)) for _ in range(4))
    return (
        f"2026-01-{number % 28 + 1:02d} 12:{number % 60:02d}:07.{number % 1000:03d} INFO {address} request {number}\n"
    )


def mails(rng: random.Random, number: int) -> str:
    to = f"user{number}@mailhost{number % 97}.org"
    return f"2026-01-{number % 28 + 1:02d} 12:{number % 60:02d}:07 INFO mail {rng.getrandbits(32):08x} to {to} queued\n"


def text_of(kind: str, size: int) -> str:
    if kind == "one letter":
        return "a" * size
    rng, line = random.Random(1), hosts if kind == "hosts" else mails
    lines = "".join(line(rng, number) for number in range(size // 60))
    return lines[:size]


def seconds(work) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def main(megabytes: float) -> None:
    STANDARD.find("ready: jane@site.org, 4111 1111 1111 1111, 203.0.113.9")
    stabilizer = Stabilizer(4_000)
    stabilizer.stabilize([Artifact("user", "ready")])
    print(f"{megabytes:g} MB; processor seconds per MB, and how many times a plain expression's")
    for kind in ("hosts", "mails", "one letter"):
        text = text_of(kind, int(megabytes * 1e6))
        plain = seconds(lambda text=text: PLAIN.findall(text))
        find = seconds(lambda text=text: STANDARD.find(text))
        history = [Artifact("user", "look"), Artifact("assistant", text), Artifact("user", "and?")]
        first = seconds(lambda history=history: stabilizer.stabilize(history))
        # the texts of a new request are equal, and not the same objects
        again = [Artifact("user", "look"), Artifact("assistant", text[:1] + text[1:]), Artifact("user", "and?")]
        second = seconds(lambda again=again: stabilizer.stabilize(again))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(
            f"  {kind:<11} find {find / megabytes:6.3f} ({find / plain:5.1f})  first call {first / megabytes:6.3f}"
            f" ({first / plain:5.1f})  next call {second / megabytes:6.3f} ({first / max(second, 1e-6):.0f} times less)"
            f"  peak {peak:,.0f} MB"
        )


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 10)
