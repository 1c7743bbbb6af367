"""How tests wait, and how they judge time, so that they say the same on every machine, however busy it is."""

from __future__ import annotations

import sys
import time

PATIENCE = 240
"""Seconds until a test gives something up that does not come. Where all is well, nothing waits that long."""


def until(holds):
    """Wait until something holds, and return whether it does."""
    end = time.monotonic() + PATIENCE
    while not (held := holds()) and time.monotonic() < end:
        time.sleep(0.01)
    return bool(held)


def is_linear(work, size, *, tries=6):
    """Return whether `work(n)` takes time in proportion to `n`: four times the size is to take less than ten times as long.

    Quadratic work takes sixteen times as long. Both sizes are measured in turn, in processor time of this thread, and the
    least of several tries counts, so that neither a slow machine nor a busy one changes the answer.
    """

    def seconds(n):
        began = time.thread_time()
        work(n)
        return time.thread_time() - began

    small = large = float("inf")
    for _ in range(tries):
        small, large = min(small, seconds(size)), min(large, seconds(4 * size))
        if large < 10 * max(small, 0.004):
            return True
    return False


def calls_of(work):
    """Return how many functions are called while `work()` runs: a measure that no machine changes."""
    count = 0

    def note(frame, event, argument):
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count
