"""Run a detector in a process of its own: a model that finds names must not stop or crash the caller."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Sequence
from functools import cache
from multiprocessing.pool import Pool
from threading import Lock

from ctxguard.pii.detectors import Finder
from ctxguard.pii.spans import Span, resolve
from ctxguard.settings import seconds


class WorkerDetector:
    """Find with a model of your own (spaCy, an ONNX file) in a worker process, which is ended if it takes too long.

    The process starts with the first text and serves all later ones; after a failure, the next text starts a new one.
    A masker asks about each text once, and a failure never counts as a clean text (`on_detector_error` of `Masker`).

    Args:
        load: a function of a module, or a `functools.partial` of one, that the worker calls once: it loads the model
            and returns a function from a text to spans.
        name: the detector's name in errors.
        timeout: seconds for one text, or one batch of texts; the first also waits for the process and the model.

    Raises:
        ConfigError: `timeout` is not above 0.
    """

    def __init__(self, load: Callable[[], Finder], *, name: str = "worker", timeout: float = 60.0) -> None:
        seconds(timeout, "timeout")
        self.name = name
        self._load = load
        self._timeout = timeout
        self._lock = Lock()
        self._pools: dict[int, Pool] = {}

    def find(self, text: str) -> Sequence[Span]:
        """Return the findings in a text; whatever the model raises, and `TimeoutError`, is a failure of the masker."""
        return self.find_many((text,))[0]

    def find_many(self, texts: Sequence[str]) -> Sequence[Sequence[Span]]:
        """Return the findings of several texts, which go to the worker together."""
        with self._lock:
            pool = self._pools.get(os.getpid())  # a forked child does not share the worker of its parent
            if pool is None:
                pool = multiprocessing.get_context("spawn").Pool(1, _begin, (self._load,))
                self._pools = {os.getpid(): pool}
            try:
                found = pool.apply_async(_found, (list(texts),)).get(self._timeout)
            except BaseException:
                self.close()
                raise
        return [resolve(spans, text) for spans, text in zip(found, texts, strict=True)]

    def close(self) -> None:
        """End the worker; the next text starts a new one."""
        pool = self._pools.pop(os.getpid(), None)
        if pool is not None:
            pool.terminate()
            pool.join()


def _begin(load: Callable[[], Finder]) -> None:
    """Keep the function that loads the model; an error in it then belongs to a text, and is reported."""
    global _model  # noqa: PLW0603 - the process has one model
    _model = cache(load)


_model: Callable[[], Finder]


def _found(texts: Sequence[str]) -> list[list[Span]]:
    return [list(_model()(text)) for text in texts]
