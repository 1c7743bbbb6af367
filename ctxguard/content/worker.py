"""Convert one document to text, in a process of its own: `python -m ctxguard.content.worker KIND < FILE`.

Documents come from strangers, and the libraries that read them were not written for that: a small file may ask for
gigabytes or for hours. The process has a limit on memory and on processor time; its caller one on the clock.
"""

from __future__ import annotations

import io
import json
import logging
import sys
import warnings
from collections import deque
from typing import TYPE_CHECKING, BinaryIO, Final

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["main"]

MEMORY: Final = 3 << 30
MAX_TEXT: Final = 8_000_000
MAX_UNPACKED: Final = 512_000_000
MAX_RATIO: Final = 200
MAX_ENTRIES: Final = 10_000
MAX_ROWS: Final = 200_000
ENDS: Final = 200


class UnreadableError(Exception):
    """Say why a document cannot be read."""


def main(arguments: list[str]) -> int:
    """Convert standard input to text on standard output; a reason in one line on standard error and 1 if it cannot.

    Args:
        arguments: the kind: `pdf`, `docx`, `pptx`, `spreadsheet` or `archive`.
    """
    _limit(int(arguments[1]) if len(arguments) > 1 else 60)
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    out, sys.stdout = sys.stdout.buffer, io.StringIO()
    try:
        text = CONVERTERS[arguments[0]](sys.stdin.buffer)
    except Exception as error:  # noqa: BLE001 - whatever a library makes of a broken file is the answer
        sys.stderr.write(_reason(error) + "\n")
        return 1
    out.write(text[:MAX_TEXT].encode("utf-8", "replace"))
    return 0


def _limit(seconds: int) -> None:
    try:
        import resource
    except ImportError:  # Windows has none; the caller's clock remains
        return
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _reason(error: Exception) -> str:
    chain: list[str] = []
    current: BaseException | None = error
    while current is not None:
        chain.append(type(current).__name__ + str(current))
        current = current.__cause__ or current.__context__
    told = " ".join(chain)
    if isinstance(error, ImportError):
        return f"missing:{error.name}"
    if isinstance(error, MemoryError):
        return "needs more memory than a document is given"
    if "Password" in told or "encrypted" in told:
        return "is protected by a password"
    text = " ".join(str(error).split()) if isinstance(error, UnreadableError) else ""
    return text or f"is damaged or not what it claims to be ({type(error).__name__})"


def _document(extension: str) -> Callable[[BinaryIO], str]:
    def convert(file: BinaryIO) -> str:
        if extension != ".pdf":
            _refuse_bomb(file)
        from markitdown import MarkItDown, StreamInfo

        info = StreamInfo(extension=extension)
        result = MarkItDown(enable_plugins=False).convert_stream(file, stream_info=info)
        return result.text_content

    return convert


def _refuse_bomb(file: BinaryIO) -> None:
    """Refuse a zip that unpacks to far more than it is."""
    import zipfile

    size = file.seek(0, io.SEEK_END)
    file.seek(0)
    if file.read(4) == b"\xd0\xcf\x11\xe0":
        raise UnreadableError("is protected by a password, or of an old format")
    with zipfile.ZipFile(file) as archive:
        unpacked = sum(entry.file_size for entry in archive.infolist())
    if unpacked > MAX_UNPACKED or (unpacked > 20_000_000 and unpacked > size * MAX_RATIO):
        raise UnreadableError(f"would unpack {size} bytes to {unpacked}, which is refused as a zip bomb")
    file.seek(0)


def _spreadsheet(file: BinaryIO) -> str:
    """Write the sheets as JSON: name, rows there are, columns, the first and the last rows."""
    _refuse_bomb(file)
    from openpyxl import load_workbook

    book = load_workbook(file, read_only=True, data_only=True)
    sheets: list[dict[str, object]] = []
    for sheet in book.worksheets[:100]:
        head: list[list[str]] = []
        tail: deque[list[str]] = deque(maxlen=ENDS)
        count = empty = 0
        for row in sheet.iter_rows(values_only=True, max_row=MAX_ROWS, max_col=1000):
            cells = ["" if value is None else str(value)[:32_768] for value in row]
            while cells and not cells[-1]:
                cells.pop()
            if not cells:
                empty += 1
                continue
            count += 1
            (head if len(head) < ENDS else tail).append(cells)
        total = max(count, (sheet.max_row or 0) - empty) if count + empty >= MAX_ROWS else count
        sheets.append({"name": sheet.title, "rows": total, "head": head, "tail": list(tail)})
    return json.dumps(sheets, ensure_ascii=True)


def _archive(file: BinaryIO) -> str:
    import tarfile
    import zipfile

    lines: list[str] = []
    if zipfile.is_zipfile(file):
        with zipfile.ZipFile(file) as archive:
            entries = archive.infolist()
            lines += [f"{entry.file_size:>12} {entry.filename}" for entry in entries[:MAX_ENTRIES]]
            packed = sum(entry.file_size for entry in entries)
        return _listing(lines, f"{len(entries)} entries, {packed} bytes unpacked")
    file.seek(0)
    with tarfile.open(fileobj=_Bounded(file), mode="r|*") as tar:
        for number, member in enumerate(tar, 1):
            lines.append(f"{member.size:>12} {member.name}")
            if number == MAX_ENTRIES:
                return _listing(lines, f"more than {MAX_ENTRIES} entries")
    return _listing(lines, f"{len(lines)} entries")


def _listing(lines: list[str], total: str) -> str:
    return "\n".join([total, *(line.encode("utf-8", "replace").decode() for line in lines)]) + "\n"


class _Bounded(io.RawIOBase):
    """Read a file up to a number of bytes."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._left = file, MAX_UNPACKED

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        self._left -= len(data)
        if self._left < 0:
            raise UnreadableError("is too large to be listed")
        return data


CONVERTERS: Final[dict[str, Callable[[BinaryIO], str]]] = {
    "pdf": _document(".pdf"),
    "docx": _document(".docx"),
    "pptx": _document(".pptx"),
    "spreadsheet": _spreadsheet,
    "archive": _archive,
}
"""What reads each kind of document."""

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
