"""Show the current activity and its duration on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread

from ctxguard.report.printing import printable


@contextmanager
def working(what: str, *, after: float = 1.0) -> Iterator[Callable[[str], None]]:
    """Show the current activity and its duration, as one line on standard error that vanishes at the end.

    Nothing is shown if standard error is not a terminal, or if the activity ends sooner.

    Yields:
        A function that sets the current activity.
    """
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    latest, done = [what], Event()
    screen = Thread(target=_show, args=(latest, done, after), daemon=True)
    screen.start()
    try:
        yield lambda now: latest.__setitem__(0, now)
    finally:
        done.set()
        screen.join()


def _show(latest: list[str], done: Event, after: float) -> None:
    if after and done.wait(after):
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(printable(latest[0]), total=None)
        finished = False
        while not finished:
            finished = done.wait(0.1)
            bar.update(task, description=printable(latest[0]))
