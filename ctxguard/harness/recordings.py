"""Stream recordings out of files, folders and globs. What cannot be read is named, and the rest is read on.

A recording is handed on as it stands in its file, one line or one JSON value, so that it can be parsed in the process
that replays it and memory does not depend on how many there are.
"""

from __future__ import annotations

import glob
import gzip
import io
import json
import sys
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, TypeAlias

from ctxguard.errors import AdapterError, CtxguardError, SessionFileError
from ctxguard.harness.sessions import HISTORIES, MAX_BYTES, Session, parse_json, parse_session

__all__ = ["Recording", "Skipped", "expand", "opened", "recordings"]

MAX_LINE: Final = 64 << 20
"""A line that is longer than this is no session, in bytes."""
SUFFIXES: Final = (".json", ".jsonl", ".ndjson", ".json.gz", ".jsonl.gz", ".ndjson.gz")
"""What is read of a folder."""
_GZIP: Final = b"\x1f\x8b"
_BOM: Final = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Recording:
    """Hold one recorded session as it stands in its file.

    Attributes:
        path: the file as it was named.
        line: the line it begins on, counted from 1.
        place: its number among the sessions of the file, from 0; names a session that has no id.
        data: the JSON text, UTF-8.
    """

    path: str
    line: int
    place: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Skipped:
    """Name what could not be replayed.

    Attributes:
        path: the file as it was named.
        reason: why, in one line.
        line: the line it stands on, or None where the whole file is meant.
        session: id of the session, where it was read that far.
    """

    path: str
    reason: str
    line: int | None = None
    session: str | None = None

    def __str__(self) -> str:
        place = "" if self.line is None else f":{self.line}"
        return f"{self.path}{place}: {'' if self.session is None else f'session {self.session}: '}{self.reason}"


Source: TypeAlias = "Recording | Skipped"


def expand(names: Iterable[str]) -> Iterator[str | Skipped]:
    """Walk the files that names stand for: a file, `-`, a folder with all below it, or a glob, in a stable order."""
    for name in names:
        path = Path(name)
        if name == "-" or path.is_file():
            yield name
            continue
        found = _below(path) if path.is_dir() else _matching(name)
        if not found:
            where = f"no file in it ends in {', '.join(SUFFIXES[:3])} or the same with .gz"
            yield Skipped(
                name, where if path.is_dir() else "no such file or folder, and no file matches it as a pattern"
            )
        yield from found


def _matching(pattern: str) -> list[str]:
    found = glob.glob(pattern, recursive=True)  # noqa: PTH207 - a pattern may be absolute
    return sorted(name for name in found if Path(name).is_file())


def _below(folder: Path) -> list[str]:
    return sorted(str(p) for p in folder.rglob("*") if p.is_file() and p.name.lower().endswith(SUFFIXES))


def recordings(names: Iterable[str]) -> Iterator[Source]:
    """Walk the recordings of files, folders and globs in their order, and what of them cannot be read."""
    for name in expand(names):
        if isinstance(name, Skipped):
            yield name
            continue
        try:
            with closing(_binary(name)) as file:
                yield from _of_file(name, file)
        except OSError as error:
            yield Skipped(name, (error.strerror or str(error)).lower())


def _binary(name: str) -> BinaryIO:
    if name == "-":
        return io.BytesIO(sys.stdin.buffer.read(MAX_BYTES))
    return Path(name).open("rb")


def _of_file(name: str, file: BinaryIO) -> Iterator[Source]:
    lines = _Lines(gzip.GzipFile(fileobj=file) if _is_gzip(file) else file)
    try:
        yield from _of_lines(name, lines)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        yield Skipped(name, f"the gzip data is damaged: {str(error).lower()}", line=lines.number + 1)


def _is_gzip(file: BinaryIO) -> bool:
    begins = file.read(2) == _GZIP
    file.seek(0)
    return begins


class _Lines:
    """Read line by line, with the number of the latest one. Lines that are too long are read past."""

    def __init__(self, file: gzip.GzipFile | BinaryIO) -> None:
        self._file = file
        self.number = 0

    def __iter__(self) -> Iterator[bytes | None]:
        """Walk the lines that are not blank, without their ends; None stands for one that is too long."""
        while line := self._file.readline(MAX_LINE + 1):
            is_long = len(line) > MAX_LINE
            while line and len(line) > MAX_LINE and not line.endswith(b"\n"):
                line = self._file.readline(MAX_LINE + 1)
            self.number += 1
            if self.number == 1:
                line = line.removeprefix(_BOM)
            if is_long or line.strip():
                yield None if is_long else line.rstrip(b"\r\n")


def _of_lines(name: str, lines: _Lines) -> Iterator[Source]:
    """Walk the recordings of a file: one session a line, one message a line, or one JSON value on many lines."""
    walked = iter(lines)
    first = next(walked, b"")
    if first == b"":
        yield Skipped(name, "the file is empty; a session is a list of messages")
        return
    begin = lines.number
    value = None if first is None else _value(first)
    if first is not None and value is None:
        yield from _of_many_lines(name, first, begin, walked, lines)
    elif isinstance(value, Mapping) and "role" in value and not any(key in value for key in HISTORIES):
        yield _joined(name, begin, [first or b"", *(line for line in walked if line is not None)])
    elif isinstance(value, list) and value and all(map(_is_session, value)):
        yield from (Recording(name, begin, n, json.dumps(each).encode()) for n, each in enumerate(value))
    else:
        yield from _one_a_line(name, first, begin, walked, lines)


def _one_a_line(
    name: str, first: bytes | None, begin: int, walked: Iterator[bytes | None], lines: _Lines
) -> Iterator[Source]:
    line, number, place = first, begin, 0
    while True:
        if line is None:
            yield Skipped(name, f"the line is longer than {MAX_LINE >> 20} MiB, which no session is", line=number)
        elif line:
            yield Recording(name, number, place, line)
        place += 1
        if (line := next(walked, b"")) == b"":
            return
        number = lines.number


def _of_many_lines(
    name: str, first: bytes, begin: int, walked: Iterator[bytes | None], lines: _Lines
) -> Iterator[Source]:
    """Walk a file whose first line is no JSON value: one value on many lines, or JSONL with a bad first line."""
    second = next(walked, b"")
    number = lines.number
    if second is None or (second and isinstance(_value(second), (dict, list)) and first.rstrip()[-1:] in b"}]"):
        yield Recording(name, begin, 0, first)
        yield from _one_a_line(name, second, number, walked, lines)
        return
    kept, size = [first, *([second] if second else [])], len(first) + len(second)
    for line in walked:
        size += len(line or b"") + 1
        if line is None or size > MAX_BYTES:
            yield Skipped(name, f"it is longer than {MAX_BYTES} bytes")
            return
        kept.append(line)
    text = b"\n".join(kept)
    value = _value(text)
    if isinstance(value, list) and value and all(map(_is_session, value)):
        yield from (Recording(name, begin, n, json.dumps(each).encode()) for n, each in enumerate(value))
    else:
        yield Recording(name, begin, 0, text)


def _joined(name: str, begin: int, messages: Sequence[bytes]) -> Recording:
    return Recording(name, begin, 0, b"[" + b",\n".join(messages) + b"]")


def _value(data: bytes) -> object | None:
    try:
        return parse_json(data.decode("utf-8"))
    except ValueError:
        return None


def _is_session(value: object) -> bool:
    """Tell whether an item of a list is a session of its own: it holds a history and is no message."""
    return isinstance(value, Mapping) and "role" not in value and any(isinstance(value.get(k), list) for k in HISTORIES)


def opened(recording: Recording, *, adapter: str | None = None) -> Session | Skipped:
    """Return the session of a recording, or why there is none.

    Args:
        recording: as it stands in its file.
        adapter: name of the adapter; None detects it.

    Raises:
        AdapterError: no such adapter.
    """
    try:
        return parse_session(parse_json(recording.data.decode("utf-8")), adapter=adapter, place=recording.place)
    except UnicodeDecodeError as error:
        reason = f"not UTF-8 text (byte {error.start})"
    except json.JSONDecodeError as error:
        line = recording.line + error.lineno - 1
        return Skipped(recording.path, f"not valid JSON: {error.msg} (column {error.colno})", line=line)
    except SessionFileError:
        raise
    except AdapterError:
        if adapter is not None:
            raise
        reason = "no adapter knows its messages"
    except (CtxguardError, ValueError) as error:
        reason = str(error)
    return Skipped(recording.path, reason, line=recording.line)
