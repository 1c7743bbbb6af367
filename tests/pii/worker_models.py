"""What stands for models in a worker process: functions of a module, as `WorkerDetector` needs them."""

from __future__ import annotations

import os
import time

from ctxguard.pii import Span


def names():
    """Find two names, tell which process searched, and do what a text asks for."""

    def find(text):
        if "hang" in text:
            time.sleep(600)
        if "crash" in text:
            os._exit(3)
        if "raise" in text:
            raise ValueError(text)
        spans = [Span(text.find(one), text.find(one) + len(one), "PERSON") for one in ("Zora", "Bob") if one in text]
        return [*spans, *([Span(0, 3, f"PID_{os.getpid()}")] if "pid" in text else [])]

    return find


def broken():
    raise OSError("no such file")
