"""Output of the command line: results, notes on standard error, and the current activity on a terminal."""

from __future__ import annotations

import gzip
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from ctxguard.errors import ConfigError, reason_of

if TYPE_CHECKING:
    from ctxguard.report import Report


ReportFormat: TypeAlias = Literal["text", "json", "html"]
_CONTROLS: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]|\r(?!\n)")


_FIRST_COLUMN: Final = re.compile(r" *\S+(?: \S+)*  +(?=\S)")
"""The first column of a line, and the spaces that separate it from the next column."""


def printable(text: str) -> str:
    """Escape control characters and text-direction characters, as in JSON, so that a string is safe to print.

    Untrusted text may contain sequences that rename the terminal's window, fill the clipboard, or hide lines.
    """
    return _CONTROLS.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def counted(count: int, what: str, plural: str = "") -> str:
    """Format a count with its noun, such as `1 session` or `2,000 sessions`."""
    return f"{count:,} {what if count == 1 else plural or what + 's'}"


def terminal_width() -> int | None:
    """Return the width of the terminal in columns; None if standard output is a file or a pipe."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def fitted(text: str) -> str:
    """Wrap lines to the width of the terminal; return the text unchanged if it goes to a file or a pipe.

    The continuation of a line is aligned with its second column if it has columns; otherwise it is indented.
    """
    width = terminal_width()
    if width is None:
        return text
    return "\n".join(part for line in text.split("\n") for part in _wrap(line, width))


def _wrap(line: str, width: int) -> list[str]:
    if len(line) <= width:
        return [line]
    first = _FIRST_COLUMN.match(line)
    indent = first.end() if first is not None and first.end() <= width // 2 else len(line) - len(line.lstrip()) + 4
    return textwrap.wrap(line, width, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False)


def speak_utf8() -> None:
    """Write UTF-8 to files and pipes, whatever the locale; on terminals, escape characters that are not supported."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(encoding=stream.encoding if stream.isatty() else "utf-8", errors="backslashreplace")


def out(text: str, output: Path | None = None, *, end: str = "\n") -> None:
    """Write a text to standard output or to a file; a file whose name ends in `.gz` is compressed."""
    if output is None:
        sys.stdout.write(printable(text) + end)
        return
    data = (text + end).encode(errors="backslashreplace")  # JSON can contain lone surrogates, which UTF-8 cannot
    try:
        output.write_bytes(gzip.compress(data, mtime=0) if output.suffix == ".gz" else data)
    except OSError as error:
        raise ConfigError(
            f"{output} cannot be written ({reason_of(error)}); name a file in a folder that is there", setting="output"
        ) from error


def refuse_overwriting(output: Path | None, sources: Sequence[str | Path]) -> None:
    """Raise an error if writing the output would overwrite an input."""
    if output is not None and output.exists() and any(Path(s).exists() and output.samefile(s) for s in sources):
        raise ConfigError(f"{output} is read here and would be lost; name another file for --output", setting="output")


_CREDENTIALS: Final = re.compile(r"(:/{1,2})[^\s/@]+@")


def note(line: str) -> None:
    """Write one line to standard error: without line breaks, and without the credentials in a URL.

    The line may name a file or URL as the user gave it, such as one with a line break in its name.
    """
    shown = _CREDENTIALS.sub(r"\1…@", " ".join(printable(line).split("\n")))
    sys.stderr.write(f"ctxguard: {shown}\n")


class Reports:
    """The reports of one file, formatted as they are added: as texts, as JSON with one line each, or as one HTML page.

    Only for a page are they kept, because a report refers to its whole history.

    Args:
        form: How they are shown; None if they are not.
        several: Whether there are several. Then each text and each part of the page is headed by the position of its
            session in the file, from 0.
    """

    def __init__(self, form: ReportFormat | None, *, several: bool) -> None:
        self._form = form
        self._several = several
        self._shown: list[str] = []
        self._kept: list[Report] = []

    def add(self, report: Report) -> None:
        """Add the report on the next session."""
        if self._form == "json":
            self._shown.append(report.to_json(indent=None if self._several else 2))
        elif self._form == "text":
            self._shown.append(f"session {len(self._shown)}: {report}" if self._several else str(report))
        elif self._form == "html":
            self._kept.append(report)

    def shown(self) -> str:
        """Return what is shown of all of them."""
        if self._form != "html":
            return ("\n" if self._form == "json" else "\n\n").join(self._shown)
        from ctxguard.report.page import calls_page

        return calls_page(self._kept)


@contextmanager
def working(what: str, *, after: float = 1.0) -> Iterator[Callable[[str], None]]:
    """Show the current activity and its duration on standard error, as one line that vanishes at the end.

    Nothing is shown if standard error is not a terminal, or if the activity ends within `after` seconds.

    Args:
        what: Current activity, such as `checking`.
        after: Number of seconds before the line appears.

    Yields:
        A function that changes the current activity.
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
