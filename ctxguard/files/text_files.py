"""Detect the type of a file, and read no more of a text file than a view needs: both ends, or a range of lines."""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path
from typing import BinaryIO, Final

from ctxguard.content.detection import detect
from ctxguard.content.views import FileType, Source
from ctxguard.files.encodings import decode, find_encoding
from ctxguard.files.opening import FACTS, RefusedError

_EXTENSIONS: Final = {
    f".{name}": FileType(kind) for kind, names in FACTS["extensions"].items() for name in names.split()
}
_MAGIC: Final = tuple((sign.encode("latin-1"), FileType(kind)) for sign, kind in FACTS["signatures"].items())
_OLE: Final = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
"""The first bytes of Office files before 2007, and of newer ones that are protected by a password."""
_PRINTABLE_SIGN: Final = re.compile(rb"%PDF-\d\.\d[ \t]*[\r\n]|BZh[1-9]1AY&SY")
"""Printable signatures with which no text begins. With other printable signatures a text may begin, such as `BMW` or
`ID3 is a tree`."""
_IN_ZIP: Final = {FileType.DOCX, FileType.PPTX, FileType.SPREADSHEET, FileType.ARCHIVE}
_OFFICE: Final = ((b"word/", FileType.DOCX), (b"ppt/", FileType.PPTX), (b"xl/", FileType.SPREADSHEET))
_SNIFFED: Final = {FileType.TEXT, FileType.LOG}
"""If the extension names one of these types, the type is detected from the content, because a `.txt` file may hold a
table."""
_NOT_TEXT: Final = {FileType.IMAGE, FileType.AUDIO, FileType.PDF, FileType.BINARY, *_IN_ZIP}


def detect_file(name: str, head: bytes) -> FileType:
    """Return the type of a file by its extension, unless its first bytes (up to 65,536) contradict the extension."""
    suffix = Path(name).suffix.lower()
    named = _EXTENSIONS.get(suffix)
    magic = _by_signature(head)
    if magic is FileType.ARCHIVE and head[:2] == b"PK":
        return named if named in _IN_ZIP else next((kind for part, kind in _OFFICE if part in head), FileType.ARCHIVE)
    if head.startswith(_OLE) and named in _NOT_TEXT:
        return named
    if magic is not None:
        return magic
    if named in _NOT_TEXT and head and named not in (FileType.IMAGE, FileType.AUDIO):
        named = None
    if named is None or named in _SNIFFED:
        return _by_content(named, head)
    if named is FileType.JSON and _by_content(None, head) is FileType.JSONL:
        return FileType.JSONL
    return named


def _by_signature(head: bytes) -> FileType | None:
    """Return the type whose signature the first bytes have; None if there is none, or if a text may begin like that."""
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
    """Return whether data is binary: it contains zero bytes but is not UTF-16 or UTF-32, or many control characters."""
    sample = head[:8192]
    if b"\0" in sample and find_encoding(head).startswith(("utf-16", "utf-32")):
        return False
    control = sum(map(sample.count, (bytes([code]) for code in range(32) if code not in (7, 8, 9, 10, 12, 13, 27))))
    return b"\0" in sample[:1024] or control > 0.1 * max(1, len(sample))


WHOLE: Final = 4_000_000
"""Maximum size in bytes of a text file that is read in full."""
_CHUNK: Final = 1 << 20  # bytes per read
_MAX_RANGE: Final = 8_000_000  # maximum bytes of a range of lines, so that memory is bounded


def read_source(file: BinaryIO, size: int, encoding: str, window: int, *, exact: bool = False) -> Source:
    """Read a text file in full, or only the first and last `window` bytes of one with over 4,000,000 bytes.

    With `exact`, a large file is also read in full once, to count its lines.
    """
    file.seek(0)
    if size <= max(WHOLE, 2 * window):
        # The reported size is not a limit: a file may grow, and files in /proc report a size of 0.
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
    """Decode the start or the end of a file, without the line that was cut off where the data ends or starts."""
    text = decode(data, encoding)
    if at_start:
        end = text.rfind("\n")
        return text[: end + 1] if end > 0 else text.rstrip("\ufffd")
    begin = text.find("\n")
    return text[begin + 1 :] if 0 <= begin < len(text) - 1 else text.lstrip("\ufffd")


def count_lines(file: BinaryIO) -> int:
    """Count the lines in a file by reading it in full, in constant memory."""
    file.seek(0)
    lines, last = 0, b""
    while chunk := file.read(_CHUNK):
        lines += chunk.count(b"\n")
        last = chunk[-1:]
    return lines + (last not in (b"", b"\n"))


def pick_lines(text: str, first: int, last: int) -> str:
    """Return lines `first` to `last` of a text, counted from 1.

    Raises:
        RefusedError: If the text has fewer than `first` lines and `first` is not 1.
    """
    lines = io.StringIO(text, newline="\n").readlines()
    _require_lines(len(lines), first, last)
    return "".join(lines[first - 1 : last])


def describe_range(first: int, last: int) -> str:
    """Return a range as text: `3-9`, or `from 3 on` if it has no end (`3:` on the command line)."""
    return f"from {first} on" if last == sys.maxsize else f"{first}-{last}"


def _require_lines(there_are: int, first: int, last: int) -> None:
    if first > max(1, there_are):
        raise RefusedError(f"has no lines {describe_range(first, last)}, only {there_are}")


def read_lines(file: BinaryIO, encoding: str, first: int, last: int) -> str:
    """Read lines `first` to `last` of a file, but at most 8,000,000 bytes. Errors are raised as by `pick_lines`."""
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
