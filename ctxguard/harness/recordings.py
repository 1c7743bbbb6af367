"""Read recordings as a stream from what a user names: paths, folders, globs, standard input, and URLs.

Recordings that cannot be read are reported, and reading continues. A recording is passed on as bytes, which are one
line or one JSON value. It is parsed only in the process that replays it, and memory use does not depend on the number
of recordings.
"""

from __future__ import annotations

import glob
import gzip
import io
import json
import logging
import sys
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from io import BytesIO
from itertools import chain, islice
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Final, TypeAlias, TypeVar, cast

from pydantic import Field

from ctxguard.adapting.registry import OBJECT_ADAPTERS
from ctxguard.errors import AdapterError, ConfigError, CtxguardError, SessionFileError, reason_of
from ctxguard.harness.logs import LogKind, kind_of, nearest_kind, translate_row
from ctxguard.harness.sessions import (
    AS_DATA,
    AS_TEXT,
    HISTORIES,
    MAX_BYTES,
    RecordedSession,
    is_cut_off,
    json_fault,
    parse_json,
    parse_session,
)
from ctxguard.harness.spans import Record, is_dumped, translate_dumps
from ctxguard.settings import install_command

_LOGGER: Final = logging.getLogger("ctxguard.harness")
SUFFIXES: Final = (".json", ".jsonl", ".ndjson", ".json.gz", ".jsonl.gz", ".ndjson.gz", ".parquet")
"""Suffixes of the files that are read if a folder is named."""


def is_url(name: str) -> bool:
    """Return whether a name is a URL, such as `s3://bucket/sessions/`, rather than a path."""
    return "://" in name


def matching_files(name: str) -> list[str]:
    """Return the files that a name denotes, sorted by name.

    Raises:
        ConfigError: If a URL needs a package that is not installed.
        OSError: If a URL cannot be reached.
    """
    if is_url(name):
        return _remote(name)
    path = Path(name)
    if name == "-" or path.is_file():
        return [name]
    if path.is_dir():
        return sorted(str(p) for p in path.rglob("*") if p.is_file() and _is_read(p.name))
    matching = glob.glob(name, recursive=True)  # noqa: PTH207 - a pattern may be absolute
    return sorted(each for each in matching if Path(each).is_file())


def _is_read(name: str) -> bool:
    return name.lower().endswith(SUFFIXES)


def _remote(url: str) -> list[str]:
    system, path = _system(url)
    if system.isdir(path):
        below = [each for each in system.find(path) if _is_read(each)]
    else:
        below = system.glob(path) if any(sign in path for sign in "*?[") else [path]
    return sorted(str(system.unstrip_protocol(each)) for each in below)


def _system(url: str) -> tuple[Any, str]:
    """Return the file system of a URL, and the path in it. The file system is untyped because fsspec has no types."""
    try:
        from fsspec.core import url_to_fs

        system, path = url_to_fs(url)
    except ImportError as error:
        raise ConfigError(
            f"{url} cannot be opened: {error}; {install_command('remote')} and what the protocol needs",
            setting="sessions",
        ) from error
    except ValueError as error:
        raise ConfigError(f"{url} cannot be opened: {error}", setting="sessions") from error
    return system, path


def opened_file(name: str) -> BinaryIO:
    """Open a file, standard input, or a URL for reading bytes.

    Raises:
        ConfigError: If a URL needs a package that is not installed.
        SessionFileError: If standard input is too large to be read at once.
        OSError: If the file cannot be opened.
    """
    if name == "-":
        data = sys.stdin.buffer.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise SessionFileError(name, f"it is larger than {MAX_BYTES} bytes; write it to a file")
        return io.BytesIO(data)
    if is_url(name):
        system, path = _system(name)
        return cast("BinaryIO", system.open(path, "rb"))
    return Path(name).open("rb")


def total_size(names: Iterable[str]) -> int | None:
    """Return the total size in bytes of all files that `names` denote; None if a size is unknown."""
    with suppress(CtxguardError, OSError, TypeError):
        return sum(_size(each) for name in names for each in matching_files(name))
    return None


def _size(name: str) -> int:
    if is_url(name):
        system, path = _system(name)
        return int(system.size(path))
    return Path(name).stat().st_size


def absence_reason(name: str) -> str:
    """Return why a name denotes no files."""
    if not is_url(name) and Path(name).is_dir():
        return f"no file in it ends in {', '.join(SUFFIXES[:3])}, the same with .gz, or {SUFFIXES[-1]}"
    return "no such file or folder, and no file matches it as a pattern"


MAX_SESSION: Final = 64 << 20
"""Maximum length of a session that is played, in bytes of its JSON. Such a session has thousands of calls."""
_HEAD: Final = 20
"""Number of lines at the beginning of a file, of which the first one that is understood tells what the file is."""
_PARQUET: Final = b"PAR1"
_ROWS: Final = 64
"""Number of rows of a Parquet file that are in memory at a time."""
_PACKED: Final = frozenset({"messages", "input", "artifacts", "tools", "history"})
"""Columns that often contain JSON in strings."""
_GZIP: Final = b"\x1f\x8b"
_ZIP: Final = b"PK\x03\x04"
_BOM: Final = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Recording:
    """One recorded session, as bytes.

    Attributes:
        path: File that contains the session, as the user named it.
        line: Line number at which the session begins, from 1.
        place: Position of the session in its file, from 0. It is the name of the session if the session has no id.
        data: JSON of the session, in UTF-8. It is not saved in a checkpoint of a replay.
        share: Share of what was read of the file that is done with this session, which is less than one while
            sessions follow that were gathered from the same bytes.
        read: Number of bytes of all files done so far, by which a replay shows its progress.
    """

    path: str
    line: int
    place: int
    data: Annotated[bytes, Field(exclude=True)] = b""
    share: float = field(default=1.0, compare=False)
    read: int = field(default=0, compare=False)

    @property
    def location(self) -> tuple[str, int, int]:
        """The file, the line number, and the position of the session in the file."""
        return self.path, self.line, self.place


@dataclass(frozen=True, slots=True)
class Skipped:
    """A recording or a file that could not be replayed, and the reason.

    Attributes:
        path: File as the user named it.
        reason: Reason, in one line.
        line: Line number of the recording in the file, from 1; None if the whole file was skipped.
        session: Id of the session, or None if it could not be read.
    """

    path: str
    reason: str
    line: int | None = None
    session: str | None = None

    def __str__(self) -> str:
        place = "" if self.line is None else f":{self.line}"
        return f"{self.path}{place}: {'' if self.session is None else f'session {self.session}: '}{self.reason}"


MOST_NOTES: Final = 20  # more notes would scroll the report out of view


def skipped_lines(skipped: Sequence[Skipped], count: int) -> Iterator[str]:
    """Yield one line for each file and reason for which something was skipped, and a last one that counts the others.

    Args:
        skipped: What was skipped, possibly only the first items.
        count: Number of all that was skipped.
    """
    alike: dict[tuple[str, str, str | None], list[Skipped]] = {}
    for each in skipped:
        alike.setdefault((each.path, each.reason, each.session), []).append(each)
    shown = list(alike.values())[:MOST_NOTES]
    for first, *others in shown:
        yield f"skipped {first}{f' (and {len(others)} more of the file)' if others else ''}"
    if left := count - sum(map(len, shown)):
        yield f"skipped {left} more; all are in the JSON report"


Source: TypeAlias = "Recording | Skipped"
Line: TypeAlias = tuple[int, bytes | None]
"""The line number, from 1, and the line's bytes, or None if the line is too long."""


def every_nth(sources: Iterable[Source], every: int) -> Iterator[Source]:
    """Yield every nth recording, beginning with the first, and all that could not be read."""
    place = 0
    for source in sources:
        if isinstance(source, Skipped):
            yield source
            continue
        if place % every == 0:
            yield source
        place += 1


def expand(names: Iterable[str]) -> Iterator[str | Skipped]:
    """Yield the files that names denote, in order, and a `Skipped` for each name that denotes no file.

    Args:
        names: Each is a file, `-` for standard input, a folder (with everything below it), a glob, or a URL.
    """
    for name in names:
        try:
            files = matching_files(name)
        except (CtxguardError, OSError) as error:
            yield Skipped(name, reason_of(error))
            continue
        if not files:
            yield Skipped(name, absence_reason(name))
        yield from files


def recordings(names: Iterable[str]) -> Iterator[Source]:
    """Yield the recordings of files, folders, globs, and URLs, in order; yield a `Skipped` for what cannot be read."""
    before = 0
    for name in expand(names):
        if isinstance(name, Skipped):
            yield name
            continue
        try:
            with closing(opened_file(name)) as file:
                for source in _of_file(name, file):
                    if isinstance(source, Recording):
                        yield replace(source, read=before + int(source.share * file.tell()))
                    else:
                        yield source
                before += file.tell()
        except (CtxguardError, OSError) as error:
            yield Skipped(name, reason_of(error))


def _of_file(name: str, file: BinaryIO) -> Iterator[Source]:
    if _begins_with(file, _PARQUET):
        yield from _of_parquet(name, file)
        return
    if (refusal := _refusal(file)) is not None:
        yield Skipped(name, refusal)
        return
    try:
        yield from _of_lines(name, _lines(_unzip(file)))
    except _DAMAGED as error:
        yield Skipped(name, f"the gzip data is damaged: {str(error).lower()}")


def _refusal(file: BinaryIO) -> str | None:
    """Return why a file cannot be a text, also a gzipped one, judged by its first bytes; None if it can be one."""
    head = file.read(1024)
    file.seek(0)
    if head.startswith(_ZIP):
        return "it is a ZIP archive, not a text; unpack it first (Inspect's logs: inspect log convert --to json)"
    if b"\0" in head and not head.startswith(_GZIP):
        return f"not UTF-8 text (byte {head.index(0)} is zero); {AS_TEXT}"
    return None


def _begins_with(file: BinaryIO, magic: bytes) -> bool:
    found = file.read(len(magic))
    file.seek(0)
    return found == magic


def _unzip(file: BinaryIO) -> gzip.GzipFile | BinaryIO:
    return gzip.GzipFile(fileobj=file) if _begins_with(file, _GZIP) else file


_DAMAGED: Final = (EOFError, zlib.error, gzip.BadGzipFile)


def _of_parquet(name: str, file: BinaryIO) -> Iterator[Source]:
    """Yield the recordings in a Parquet file.

    Each row is a session, with its messages as a list or as JSON. If rows are single messages, the whole file is one
    session.
    """
    try:
        from pyarrow import ArrowException
        from pyarrow.parquet import ParquetFile
    except ImportError:
        yield Skipped(name, f"Parquet needs pyarrow: {install_command('parquet')}")
        return
    rows: list[bytes] = []
    place = 0
    try:
        for batch in ParquetFile(file).iter_batches(_ROWS):
            for row in batch.to_pylist():
                data = json.dumps(_without_nulls(row), default=str).encode()
                if "role" in row:
                    rows.append(data)
                else:
                    yield Recording(name, place + 1, place, data)
                place += 1
    except (ArrowException, OSError, ValueError) as error:
        yield Skipped(name, f"the Parquet data is damaged: {reason_of(error)}", line=place + 1)
    if rows:
        yield _join(name, 1, rows)


def _without_nulls(value: object) -> object:
    """Remove the empty fields that a row has only because other rows use them, and parse columns that contain JSON."""
    if isinstance(value, Mapping):
        kept = {key: each for key, each in value.items() if each is not None or key == "content"}
        return {key: _unpack(each) if key in _PACKED else _without_nulls(each) for key, each in kept.items()}
    return [_without_nulls(each) for each in value] if isinstance(value, list) else value


def _unpack(value: object) -> object:
    if isinstance(value, str):
        parsed = _value(value.encode())
        return value if parsed is None else parsed
    return _without_nulls(value)


def read_sessions(path: str | Path, *, adapter: str | None = None) -> Iterator[RecordedSession]:
    """Yield the sessions in a file.

    The file contains one history as JSON, or JSONL with one session or one message per line, and may be gzipped. A
    session is a list of messages, or an object with `messages`, `input`, `contents`, or `artifacts`, optionally with
    `id` and `tools`.

    Args:
        path: Path of the file; `-` is standard input. As for a replay, a folder, a glob, and a Parquet file will do.
        adapter: Name of the adapter; None detects it.

    Raises:
        SessionFileError: If the file cannot be read or contains no session. The error names the line.
        AdapterError: If the adapter is unknown, or reads message objects, which a file cannot contain.
    """
    for found in read_rows(path, adapter=adapter):
        if isinstance(found, Unread):
            raise SessionFileError(found.path, found.reason, line=found.line)
        yield found


@dataclass(frozen=True, slots=True)
class Unread:
    """A row of a file that is JSON, but no session that anybody here knows.

    Attributes:
        path: File that contains the row.
        line: Line number of the row, from 1; None if it is not known.
        place: Position of the row in its file, from 0, as a name.
        reason: Why it is no session.
        value: The row.
    """

    path: str
    line: int | None
    place: str
    reason: str
    value: object


def read_rows(path: str | Path, *, adapter: str | None = None) -> Iterator[RecordedSession | Unread]:
    """Yield the sessions in a file as `read_sessions` does, and the rows that are no session instead of an error."""
    name = str(path)
    if _is_one_text(name):
        yield from _rows(_of_lines(name, _lines(BytesIO(read_text(name).encode()))), adapter)
    else:
        yield from _rows(recordings([name]), adapter)


def _is_one_text(name: str) -> bool:
    """Return whether a name is that of a file with text, rather than of a folder, a glob, or a Parquet file."""
    place = Path(name)
    if is_url(name) or name == "-" or not place.is_file():
        return not place.is_dir() and (is_url(name) or not glob.has_magic(name))
    with suppress(OSError), place.open("rb") as file:
        return not _begins_with(file, _PARQUET)
    return True


def sessions_in(text: str, name: str = "-", *, adapter: str | None = None) -> Iterator[RecordedSession]:
    """Yield the sessions in the content of a file, in the formats that `read_sessions` accepts."""
    for found in _rows(_of_lines(name, _lines(BytesIO(text.encode()))), adapter):
        if isinstance(found, Unread):
            raise SessionFileError(name, found.reason, line=found.line)
        yield found


def _rows(sources: Iterable[Source], adapter: str | None) -> Iterator[RecordedSession | Unread]:
    if adapter in OBJECT_ADAPTERS:
        raise AdapterError(f"adapter {adapter!r} reads message objects, which a file cannot contain; {AS_DATA}")
    for source in sources:
        found = source if isinstance(source, Skipped) else open_session(source, adapter=adapter)
        if isinstance(source, Recording) and isinstance(found, Skipped):
            value = _value(source.data)
            if value is not None:
                yield Unread(source.path, source.line, str(source.place), found.reason, value)
                continue
        if isinstance(found, Skipped):
            raise SessionFileError(found.path, found.reason, line=found.line)
        yield found


def read_text(name: str) -> str:
    """Return the text of a file, decompressed if it is gzipped; `-` is standard input.

    Raises:
        SessionFileError: If the file cannot be read, is too large when decompressed, or is not UTF-8.
    """
    try:
        with closing(opened_file(name)) as file:
            packed = BytesIO(file.read(MAX_BYTES + 1))  # a pipe can be read once
        if (refusal := _refusal(packed)) is not None:
            raise SessionFileError(name, refusal)
        data = _unzip(packed).read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise SessionFileError(name, f"it is larger than {MAX_BYTES} bytes")
        return data.decode("utf-8-sig")
    except _DAMAGED as error:
        raise SessionFileError(name, f"the gzip data is damaged ({error})") from error
    except OSError as error:
        raise SessionFileError(name, reason_of(error)) from error
    except UnicodeDecodeError as error:
        raise SessionFileError(name, f"{reason_of(error)}; {AS_TEXT}") from error


def _lines(file: gzip.GzipFile | BinaryIO) -> Iterator[Line]:
    """Yield the number and content of each line that is not blank; the content is None if the line is too long."""
    most = MAX_BYTES
    for number, line in enumerate(iter(lambda: file.readline(most + 1), b""), 1):
        rest = line
        while len(rest) > most and not rest.endswith(b"\n"):
            rest = file.readline(most + 1)
        if len(line) > most:
            yield number, None
            continue
        data = line.removeprefix(_BOM) if number == 1 else line
        if data.strip():
            yield number, data.rstrip(b"\r\n")


def _of_lines(name: str, lines: Iterator[Line]) -> Iterator[Source]:
    """Yield the recordings in a file: one session per line, one message per line, or one JSON value on many lines.

    The first line that is understood decides what the file is, so that a damaged or foreign line before it hides
    nothing.
    """
    head: list[Line] = []
    for number, line in islice(lines, _HEAD):
        head.append((number, line))
        read = _reader(line, is_first=len(head) == 1)
        if read is not None:
            break
    else:
        read = _one_a_line
    if not head:
        yield Skipped(name, "the file is empty; a session is a list of messages")
    yield from read(name, chain(head, lines))


def _reader(line: bytes | None, *, is_first: bool) -> Callable[[str, Iterable[Line]], Iterator[Source]] | None:
    """Return the function that reads a file with such a line; None if the line does not tell what the file is."""
    value = None if line is None else _value(line)
    if (kind := kind_of(value, is_rows=False)) is not None:
        return partial(_of_kind, kind)
    if _is_message(value):
        return _of_messages
    if _is_session(value) or (value and isinstance(value, list)):
        return _one_a_line
    return _of_many_lines if is_first and value is None and line is not None and _is_incomplete(line) else None


def _of_kind(kind: LogKind, name: str, lines: Iterable[Line]) -> Iterator[Source]:
    """Yield the sessions in a log, and any other line as a recording of its own.

    The values of a session may be on many lines.
    """
    others: list[Line] = []

    def values() -> Iterator[tuple[int, object]]:
        for number, line in lines:
            parsed = None if line is None else _value(line)
            if kind.detects(parsed):
                yield number, parsed
            else:
                others.append((number, line))

    found = deque(kind.sessions(values()))
    number = len(found)
    place = empty = 0
    while found:  # each session is freed when it is passed on, since a file may be one session
        if (recorded := _recorded(name, place, *found.popleft())) is None:
            empty += 1
        else:
            yield replace(recorded, share=1 - len(found) / number)
            place += 1
    yield from _one_a_line(name, others, place)
    if not place:
        yield Skipped(name, f"its {kind.name} contain no messages{_REMEDY.get(kind.name, '')}")
    elif empty:
        _LOGGER.warning("%s: no messages in %d of %d sessions of its %s", name, empty, place + empty, kind.name)


def _recorded(name: str, place: int, line: int, session: Record) -> Recording | None:
    """Return a session of a log as a recording; None if it has no messages."""
    is_empty = not (session.get("messages") or session.get("input"))
    return None if is_empty else Recording(name, line, place, json.dumps(session).encode())


_REMEDY: Final = {"OpenTelemetry spans": "; enable content capture when you record them"}


def _listed(name: str, begin: int, place: int, value: object) -> list[Recording]:
    """Return one recording for each session if a value is a list of sessions; otherwise an empty list."""
    listed = value if isinstance(value, list) and all(map(_is_session, value)) else []
    return [Recording(name, begin, n, json.dumps(each).encode()) for n, each in enumerate(listed, place)]


def _of_messages(name: str, lines: Iterable[Line]) -> Iterator[Source]:
    """Yield the one session of a file with a message per line, and any other line as a recording of its own."""
    messages: list[tuple[int, bytes]] = []
    others: list[Line] = []
    for number, line in lines:
        if line is not None and _is_message(_value(line)):
            messages.append((number, line))
        else:
            others.append((number, line))
    yield _join(name, messages[0][0], [line for _, line in messages])
    yield from _one_a_line(name, others, 1)


def _one_a_line(name: str, lines: Iterable[Line], place: int = 0) -> Iterator[Source]:
    for number, line in lines:
        if line is None:
            yield Skipped(name, f"the line is longer than {MAX_BYTES} bytes; write one session per line", line=number)
            continue
        listed = _listed(name, number, place, _value(line)) if line.lstrip().startswith(b"[") else []
        yield from listed or [Recording(name, number, place, line)]
        place += len(listed) or 1


def _is_incomplete(line: bytes) -> bool:
    """Return whether a line is the beginning of a JSON value that further lines may complete."""
    try:
        json.loads(line)
    except json.JSONDecodeError as error:
        return is_cut_off(error)
    except (ValueError, RecursionError):
        pass
    return False


def _of_many_lines(name: str, lines: Iterable[Line]) -> Iterator[Source]:
    """Yield the recordings in a file that is one JSON value on many lines."""
    begin, size = 0, 0
    kept = []
    for number, line in lines:
        begin = begin or number
        size += len(line or b"") + 1
        if line is None or size > MAX_BYTES:
            yield Skipped(name, f"it is longer than {MAX_BYTES} bytes")
            return
        kept.append(line)
    text = b"\n".join(kept)
    kept.clear()
    value = _value(text)
    kind = kind_of(value, is_rows=False)
    if kind is not None:
        del value  # it is large, and parsed again
        yield from _of_kind(kind, name, [(begin, text)])
    else:
        yield from _listed(name, begin, 0, value) or [Recording(name, begin, 0, text)]


def _join(name: str, begin: int, messages: Sequence[bytes]) -> Recording:
    return Recording(name, begin, 0, b"[" + b",\n".join(messages) + b"]")


def _value(data: bytes) -> object | None:
    with suppress(ValueError):
        return parse_json(data.decode("utf-8"))
    return None


def _is_message(value: object) -> bool:
    return is_dumped(value) or (
        isinstance(value, Mapping) and "role" in value and not any(key in value for key in HISTORIES)
    )


def _is_session(value: object) -> bool:
    """Return whether an item of a list is a session: an object that has a history and is not itself a message."""
    if not isinstance(value, Mapping) or "role" in value:
        return False
    return any(isinstance(value.get(key), list) for key in HISTORIES) or kind_of(value, is_rows=True) is not None


Played = TypeVar("Played")


def play_session(
    source: Source, play: Callable[[Recording, RecordedSession], Played], *, adapter: str | None = None
) -> Played | Skipped:
    """Open a recording and call `play` with its session; return the reason as a `Skipped` if either fails."""
    if isinstance(source, Skipped):
        return source
    session = open_session(source, adapter=adapter)
    if isinstance(session, Skipped):
        return session
    if len(source.data) > MAX_SESSION:
        reason = f"it is longer than {MAX_SESSION >> 20} MiB, too long to be played; check and stabilize read it"
        return Skipped(source.path, reason, line=source.line, session=session.id)
    try:
        return play(source, session)
    except CtxguardError as error:
        return Skipped(source.path, str(error), line=source.line, session=session.id)


def open_session(recording: Recording, *, adapter: str | None = None) -> RecordedSession | Skipped:
    """Parse the session of a recording; return a `Skipped` with the reason if it cannot be parsed.

    Args:
        recording: Item that `recordings` yielded.
        adapter: Name of the adapter; None detects it.

    Raises:
        AdapterError: If `adapter` is unknown, or does not recognize the messages.
    """
    record: object = None
    try:
        record = parse_json(recording.data.decode("utf-8"))
        if (kind := kind_of(record, is_rows=False)) is not None:
            reason = f"{kind.name}, which are read only from a JSON file of their own; move them to one"
            return Skipped(recording.path, reason, line=recording.line)
        return parse_session(translate_dumps(translate_row(record)), adapter=adapter, place=recording.place)
    except UnicodeDecodeError as error:
        reason = f"{reason_of(error)}; {AS_TEXT}"
    except json.JSONDecodeError as error:
        line = recording.line + error.lineno - 1
        return Skipped(recording.path, json_fault(error), line=line)
    except SessionFileError:
        raise
    except AdapterError:
        if adapter is not None:
            raise
        reason = "no adapter knows its messages"
    except (CtxguardError, ValueError) as error:
        nearest = nearest_kind(record)
        reason = f"{error}; nearest kind: {nearest}" if nearest else str(error)
    return Skipped(recording.path, reason, line=recording.line)
