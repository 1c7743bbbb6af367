"""Run a detector in a separate process, so that a slow or crashing model cannot stop or crash the caller."""

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
    """Finds personal data with your own model (spaCy, an ONNX file) in a worker process, which ends on a timeout.

    The process starts when the first text is searched, and serves all later texts. After a failure, the next text
    starts a new process. A `Masker` asks about each text only once, and never treats a failure as a clean text (see
    `on_detector_error` of `Masker`).

    Args:
        load: A module-level function, or a `functools.partial` of one. The worker calls it once; it loads the model and
            returns a function that takes a string and returns spans.
        name: The detector's name in error messages.
        timeout: Maximum time for one text or one batch of texts, in seconds. For the first text, this includes starting
            the process and loading the model.

    Raises:
        ConfigError: If `timeout` is not greater than 0.
    """

    def __init__(self, load: Callable[[], Finder], *, name: str = "worker", timeout: float = 60.0) -> None:
        seconds(timeout, "timeout")
        self.name = name
        self._load = load
        self._timeout = timeout
        self._lock = Lock()
        self._pools: dict[int, Pool] = {}

    def find(self, text: str) -> Sequence[Span]:
        """Return the findings in a string.

        An exception of the model and a `TimeoutError` are raised here; a `Masker` handles both as detector failures.
        """
        return self.find_many((text,))[0]

    def find_many(self, texts: Sequence[str]) -> Sequence[Sequence[Span]]:
        """Return the findings in each string; all strings are sent to the worker at once."""
        with self._lock:
            pool = self._pools.get(os.getpid())  # a forked child must not use its parent's worker
            if pool is None:
                pool = multiprocessing.get_context("spawn").Pool(1, _store_loader, (self._load,))
                self._pools = {os.getpid(): pool}
            try:
                found = pool.apply_async(_find_all, (list(texts),)).get(self._timeout)
            except BaseException:
                self.close()
                raise
        return [resolve(spans, text) for spans, text in zip(found, texts, strict=True)]

    def close(self) -> None:
        """Stop the worker process. The next text starts a new one."""
        pool = self._pools.pop(os.getpid(), None)
        if pool is not None:
            pool.terminate()
            pool.join()


def _store_loader(load: Callable[[], Finder]) -> None:
    """Store the loader in the worker process, without calling it yet.

    The loader runs when the first text is searched, so that an error in it is raised for that text.
    """
    global _model  # noqa: PLW0603 - each worker process has exactly one model
    _model = cache(load)


_model: Callable[[], Finder]


def _find_all(texts: Sequence[str]) -> list[list[Span]]:
    return [list(_model()(text)) for text in texts]
