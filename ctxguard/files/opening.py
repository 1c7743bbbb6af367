"""Open files safely and read no more of them than a view needs."""

from __future__ import annotations

import io
import mimetypes
import os
import re
import stat
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

from ctxguard.content.detection import detect
from ctxguard.content.views import FileType, Source
from ctxguard.files.encodings import decode, find_encoding

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "FileMetadata",
    "RefusedError",
    "count_lines",
    "detect_file",
    "open_file",
    "pick_lines",
    "read_lines",
    "read_source",
    "spelled",
]

WHOLE: Final = 4_000_000
"""Bytes up to which a text file is read whole."""
_CHUNK: Final = 1 << 20
_MAX_RANGE: Final = 8_000_000


def _each(file_type: FileType, names: str) -> Iterable[tuple[str, FileType]]:
    return ((f".{name}", file_type) for name in names.split())


_EXTENSIONS: Final[dict[str, FileType]] = dict(
    (
        *_each(FileType.ARCHIVE, "zip tar gz tgz bz2 xz 7z rar jar whl epub odt odp ods numbers pages key"),
        *_each(FileType.AUDIO, "mp3 wav flac ogg m4a aac opus wma aiff"),
        *_each(FileType.CODE, "py pyi js jsx ts tsx mjs cjs c h cc cpp hpp cs java kt kts go rs rb php swift scala"),
        *_each(FileType.CODE, "sh bash zsh fish ps1 sql r jl lua pl css scss vue svelte tf proto gradle ex exs"),
        *_each(FileType.CSV, "csv tsv tab psv"),
        *_each(FileType.DOCX, "docx doc"),
        *_each(FileType.HTML, "html htm xhtml"),
        *_each(FileType.IMAGE, "png jpg jpeg gif webp bmp tif tiff ppm ico"),
        *_each(FileType.JSON, "json geojson ipynb webmanifest har"),
        *_each(FileType.JSONL, "jsonl ndjson"),
        *_each(FileType.LOG, "log"),
        *_each(FileType.MARKDOWN, "md markdown rst"),
        *_each(FileType.PDF, "pdf"),
        *_each(FileType.PPTX, "pptx ppt"),
        *_each(FileType.SPREADSHEET, "xlsx xlsm xls"),
        *_each(FileType.TEXT, "txt text cfg ini toml env rtf mbox eml"),
        *_each(FileType.XML, "xml xsd xsl xslt svg rss atom plist"),
        *_each(FileType.YAML, "yaml yml"),
    )
)
_OLE: Final = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
"""First bytes of Office files before 2007, and of newer ones that are protected by a password."""
_MAGIC: Final = (
    (b"%PDF-", FileType.PDF),
    (b"\x89PNG", FileType.IMAGE),
    (b"\xff\xd8\xff", FileType.IMAGE),
    (b"GIF8", FileType.IMAGE),
    (b"BM", FileType.IMAGE),
    (b"II*\0", FileType.IMAGE),
    (b"MM\0*", FileType.IMAGE),
    (b"\x1f\x8b", FileType.ARCHIVE),
    (b"BZh", FileType.ARCHIVE),
    (b"\xfd7zXZ", FileType.ARCHIVE),
    (b"7z\xbc\xaf", FileType.ARCHIVE),
    (b"Rar!", FileType.ARCHIVE),
    (b"PK\x03\x04", FileType.ARCHIVE),
    (b"PK\x05\x06", FileType.ARCHIVE),
    (b"ID3", FileType.AUDIO),
    (b"fLaC", FileType.AUDIO),
    (b"OggS", FileType.AUDIO),
    (_OLE, FileType.BINARY),
    (b"\x7fELF", FileType.BINARY),
)
_PRINTABLE_SIGN: Final = re.compile(rb"%PDF-\d\.\d[ \t]*[\r\n]|BZh[1-9]1AY&SY")
"""Signatures of printable characters that no text begins with; of the others, a text may: `BMW`, `ID3 is a tree`."""
_IN_ZIP: Final = {FileType.DOCX, FileType.PPTX, FileType.SPREADSHEET, FileType.ARCHIVE}
_OFFICE: Final = ((b"word/", FileType.DOCX), (b"ppt/", FileType.PPTX), (b"xl/", FileType.SPREADSHEET))
_SNIFFED: Final = {FileType.TEXT, FileType.LOG}
_PRINTED: Final = {FileType.IMAGE, FileType.AUDIO, FileType.PDF, FileType.BINARY, *_IN_ZIP}


class RefusedError(Exception):
    """Say why a file is not read; the reader turns it into a result with `success=False`."""


@dataclass(frozen=True, slots=True)
class FileMetadata:
    """Hold what the file system says of a file.

    Attributes:
        size: bytes.
        modified: when it was last changed, in UTC.
        mime_type: by its name; `application/octet-stream` where that says nothing.
        encoding: of a text file; None for any other.
        details: what its own header says (`pixels`, `seconds`, `sheets`).
    """

    size: int
    modified: datetime
    mime_type: str
    encoding: str | None = None
    details: tuple[tuple[str, str], ...] = ()


def open_file(path: Path, root: Path | None) -> tuple[BinaryIO, FileMetadata]:
    """Open a regular file for reading.

    Args:
        path: the file; relative to `root` where there is one.
        root: folder outside of which nothing is read, whatever links say; None means anywhere.

    Raises:
        RefusedError: it is outside the root, no regular file, or cannot be opened.
    """
    try:
        real = _confined(path, root)
        _require_regular(real.stat().st_mode, path)
        descriptor = os.open(real, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0))
    except (OSError, ValueError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise RefusedError(f"{_short(path)}: {reason[:1].lower()}{reason[1:]}") from None
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or not _is_inside(descriptor, path, root):
        os.close(descriptor)
        raise RefusedError(f"{_short(path)}: was replaced while it was opened; read it again")
    mime = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    return os.fdopen(descriptor, "rb"), FileMetadata(status.st_size, datetime.fromtimestamp(status.st_mtime, UTC), mime)


def _short(path: Path) -> str:
    name = str(path).replace("\n", " ")
    return name if len(name) <= 300 else f"{name[:300]}…"


def _confined(path: Path, root: Path | None) -> Path:
    """Return the real path, resolved once: a second look could find something else."""
    if root is None:
        return path.resolve()
    base = root.resolve(strict=True)
    real = (base / path).resolve()
    if not real.is_relative_to(base):
        raise RefusedError(f"{_short(path)}: is outside of {_short(root)}, to which reading is confined")
    return real


def _is_inside(descriptor: int, path: Path, root: Path | None) -> bool:
    """Tell whether the file that was opened is in the root: by what the system says of it, or else by looking again."""
    if root is None:
        return True
    told = Path(f"/proc/self/fd/{descriptor}")
    if told.is_symlink():
        return told.readlink().is_relative_to(root.resolve(strict=True))
    return os.path.samestat(os.fstat(descriptor), _confined(path, root).stat())


def _require_regular(mode: int, path: Path) -> None:
    kinds = (
        (stat.S_ISDIR, "a folder"),
        (stat.S_ISFIFO, "a pipe (FIFO)"),
        (stat.S_ISCHR, "a device"),
        (stat.S_ISBLK, "a device"),
        (stat.S_ISSOCK, "a socket"),
    )
    for test, name in kinds:
        if test(mode):
            raise RefusedError(f"{_short(path)}: is {name}, not a file that can be read")


def detect_file(name: str, head: bytes) -> FileType:
    """Return what a file is: by its extension, unless its first bytes say otherwise, else by looking at it.

    Args:
        name: name of the file.
        head: its first bytes, up to 65,536.
    """
    suffix = Path(name).suffix.lower()
    named = _EXTENSIONS.get(suffix)
    magic = _signed(head)
    if magic is FileType.ARCHIVE and head[:2] == b"PK":
        return named if named in _IN_ZIP else next((kind for part, kind in _OFFICE if part in head), FileType.ARCHIVE)
    if head.startswith(_OLE) and named in _PRINTED:
        return named
    if magic is not None:
        return magic
    if named in _PRINTED and head and not (named is FileType.IMAGE or named is FileType.AUDIO):
        named = None
    if named is None or named in _SNIFFED:
        return _by_content(named, head)
    if named is FileType.JSON and _by_content(None, head) is FileType.JSONL:
        return FileType.JSONL
    return named


def _signed(head: bytes) -> FileType | None:
    """Return what the signature says, unless it may as well be the beginning of a text."""
    if head[:4] == b"RIFF" and _is_binary(head):
        return FileType.IMAGE if head[8:12] == b"WEBP" else FileType.AUDIO
    for sign, kind in _MAGIC:
        if head.startswith(sign):
            printable = all(32 <= byte < 127 for byte in sign)
            return kind if not printable or _PRINTABLE_SIGN.match(head) or _is_binary(head) else None
    return None


def _by_content(named: FileType | None, head: bytes) -> FileType:
    if _is_binary(head):
        return FileType.BINARY
    looked = detect(decode(head, find_encoding(head)))
    return FileType.LOG if named is FileType.LOG and looked in (FileType.TEXT, FileType.CODE, FileType.YAML) else looked


def _is_binary(head: bytes) -> bool:
    """Tell binary data from text: zero bytes that are no UTF-16, or many control characters."""
    if find_encoding(head).startswith(("utf-16", "utf-32")):
        return False
    sample = head[:8192]
    control = sum(map(sample.count, (bytes([code]) for code in range(32) if code not in (7, 8, 9, 10, 12, 13, 27))))
    return b"\0" in sample[:1024] or control > 0.1 * max(1, len(sample))


def read_source(file: BinaryIO, size: int, encoding: str, window: int, *, exact: bool = False) -> Source:
    """Read a text file: whole up to 4,000,000 bytes, else its head and its tail.

    Args:
        file: open at any position.
        size: bytes of it.
        encoding: of its text.
        window: bytes to read at either end of a large file.
        exact: count the lines of a large file, which reads all of it.
    """
    file.seek(0)
    if size <= max(WHOLE, 2 * window):
        # More than the size is read where there is more: a file grows, and those of /proc say that they are empty.
        return Source(decode(file.read(max(WHOLE, 2 * window)), encoding))
    head = _whole_lines(file.read(window), encoding, at_start=True)
    start = size - window
    start -= start % 4
    file.seek(start)
    tail = _whole_lines(file.read(window + 4), _tail_encoding(encoding), at_start=False)
    return Source(head + tail, gap=len(head), size=size, lines=count_lines(file) if exact else None)


def _tail_encoding(encoding: str) -> str:
    return {"utf-8-sig": "utf-8", "utf-16": "utf-16-le"}.get(encoding, encoding)


def _whole_lines(data: bytes, encoding: str, *, at_start: bool) -> str:
    """Decode a part of a file and cut off the line it starts or ends inside."""
    text = decode(data, encoding)
    if at_start:
        end = text.rfind("\n")
        return text[: end + 1] if end > 0 else text.rstrip("\ufffd")
    begin = text.find("\n")
    return text[begin + 1 :] if 0 <= begin < len(text) - 1 else text.lstrip("\ufffd")


def count_lines(file: BinaryIO) -> int:
    """Count the lines of a file by reading all of it, in constant memory."""
    file.seek(0)
    lines, last = 0, b""
    while chunk := file.read(_CHUNK):
        lines += chunk.count(b"\n")
        last = chunk[-1:]
    return lines + (last not in (b"", b"\n"))


def pick_lines(text: str, first: int, last: int) -> str:
    """Return lines `first` to `last` of a text, counted from 1.

    Raises:
        RefusedError: `first` comes after the last line, and is not 1.
    """
    lines = io.StringIO(text, newline="\n").readlines()
    _require_lines(len(lines), first, last)
    return "".join(lines[first - 1 : last])


def spelled(first: int, last: int) -> str:
    """Write a range; one without an end, as the command line gives it, by its start."""
    return f"from {first} on" if last == sys.maxsize else f"{first}-{last}"


def _require_lines(there_are: int, first: int, last: int) -> None:
    if first > max(1, there_are):
        raise RefusedError(f"has no lines {spelled(first, last)}, only {there_are}")


def read_lines(file: BinaryIO, encoding: str, first: int, last: int) -> str:
    """Read lines `first` to `last`, counted from 1, in bounded memory: at most 8,000,000 bytes of them.

    Args:
        file: open at any position.
        encoding: of its text; for UTF-16 and UTF-32 the whole file is decoded.
        first: number of the first line.
        last: number of the last line, itself included.

    Raises:
        RefusedError: `first` comes after the last line, and is not 1.
    """
    file.seek(0)
    if encoding.startswith(("utf-16", "utf-32")):
        return pick_lines(decode(file.read(_MAX_RANGE * 4), encoding), first, last)
    seen, parts, size = 1, [], 0
    for line in iter(lambda: file.readline(_CHUNK), b""):
        if first <= seen <= last and size < _MAX_RANGE:
            parts.append(line)
            size += len(line)
        seen += line.endswith(b"\n")
        if seen > last:
            break
    if not parts:
        _require_lines(count_lines(file), first, last)
    return decode(b"".join(parts), encoding if first == 1 else _tail_encoding(encoding))
