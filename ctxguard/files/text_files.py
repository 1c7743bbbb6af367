"""Read no more of a text file than a view needs: head and tail, or a range of lines."""

from __future__ import annotations

import io
import sys
from typing import BinaryIO, Final

from ctxguard.content.views import Source
from ctxguard.files.encodings import decode
from ctxguard.files.opening import RefusedError

WHOLE: Final = 4_000_000
"""Bytes up to which a text file is read whole."""
_CHUNK: Final = 1 << 20  # bytes per read when lines are counted
_MAX_RANGE: Final = 8_000_000  # bytes of a range, so that memory is bounded


def read_source(file: BinaryIO, size: int, encoding: str, window: int, *, exact: bool = False) -> Source:
    """Read a text file: whole up to 4,000,000 bytes, else `window` bytes at either end.

    With `exact`, all of a large file is read to count its lines.
    """
    file.seek(0)
    if size <= max(WHOLE, 2 * window):
        # Reads beyond the reported size: a file may grow, and files in /proc report a size of 0.
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
    """Decode a part of a file and remove the incomplete line at its start or end."""
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


def describe_range(first: int, last: int) -> str:
    """Return a range in words; an open range (`A:` on the command line) is described by its start."""
    return f"from {first} on" if last == sys.maxsize else f"{first}-{last}"


def _require_lines(there_are: int, first: int, last: int) -> None:
    if first > max(1, there_are):
        raise RefusedError(f"has no lines {describe_range(first, last)}, only {there_are}")


def read_lines(file: BinaryIO, encoding: str, first: int, last: int) -> str:
    """Read lines `first` to `last` as `pick_lines` does, in bounded memory: at most 8,000,000 bytes of them."""
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
