"""Convert one document to text in a separate process: `python -m ctxguard.content.worker KIND SECONDS < FILE`.

Documents are untrusted, and the libraries that read them do not defend against malicious ones: a small file may take
gigabytes or hours. This process limits its own memory and CPU time; its caller limits the elapsed time.
"""

from __future__ import annotations

import io
import json
import logging
import sys
import tarfile
import warnings
import zipfile
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, BinaryIO, Final, TypedDict, cast

if TYPE_CHECKING:
    from openpyxl import Workbook
    from openpyxl.worksheet.worksheet import Worksheet


MEMORY: Final = 3 << 30  # bytes of address space for the process
MAX_TEXT: Final = 8_000_000  # maximum characters of the result
MAX_UNPACKED: Final = 512_000_000  # maximum bytes to which the entries of a zip may unpack in total
MAX_RATIO: Final = 200  # maximum ratio of unpacked to packed bytes; real documents stay far below
MAX_ENTRIES: Final = 10_000  # entries of an archive that are listed
MAX_SINGLE: Final = 64_000_000  # bytes of a single compressed file that are unpacked
MAX_ROWS: Final = 200_000  # rows of a sheet that are read
ENDS: Final = 200  # rows from each end of a sheet that are returned
MAX_RANGE: Final = 100_000  # maximum rows of a requested range
_EXCEL_ROWS: Final = 1_048_576  # rows that a sheet can have
_UNLISTED: Final = ((b"7z\xbc\xaf", "7z"), (b"Rar!", "RAR"))
_OLE: Final = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"


class ConversionError(Exception):
    """Raised when a document cannot be read; the message is the reason."""


def main(arguments: list[str]) -> int:
    """Convert standard input to text on standard output, and return the exit code.

    If that fails, the exit code is 1 and standard error has one line with the reason.

    Args:
        arguments: The kind (`pdf`, `docx`, `pptx`, `spreadsheet`, or `archive`), the limit of CPU time in seconds, and
            optionally the first and the last row of a spreadsheet to read.
    """
    _limit(int(arguments[1]))
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    out, sys.stdout = sys.stdout.buffer, io.StringIO()
    try:
        if arguments[2:]:
            text = _spreadsheet(sys.stdin.buffer, (int(arguments[2]), int(arguments[3])))
        else:
            text = CONVERTERS[arguments[0]](sys.stdin.buffer)
    except Exception as error:  # noqa: BLE001 - libraries raise any exception for a broken file
        sys.stderr.write(_reason(error) + "\n")
        return 1
    out.write(text[:MAX_TEXT].encode("utf-8", "replace"))
    return 0


def _limit(seconds: int) -> None:
    try:
        import resource
    except ImportError:  # not available on Windows; the caller still limits the elapsed time
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
    messages = " ".join(chain)
    if isinstance(error, ImportError):
        return f"missing:{error.name}"
    if isinstance(error, MemoryError):
        return "needs more memory than a document is allowed"
    if "Password" in messages or "encrypted" in messages:
        return "is protected by a password"
    text = " ".join(str(error).split()) if isinstance(error, ConversionError) else ""
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
    """Raise ConversionError for a zip bomb, an encrypted document, or an Office file from before 2007."""
    size = file.seek(0, io.SEEK_END)
    file.seek(0)
    start = file.read(8)
    if start == _OLE and "EncryptedPackage".encode("utf-16-le") in file.read():
        raise ConversionError("is protected by a password; save it without one")
    if start == _OLE:
        raise ConversionError("is of an Office format from before 2007; save it as .docx, .pptx or .xlsx")
    with zipfile.ZipFile(file) as archive:
        unpacked = sum(entry.file_size for entry in archive.infolist())
    if unpacked > MAX_UNPACKED or (unpacked > 20_000_000 and unpacked > size * MAX_RATIO):
        raise ConversionError(f"would unpack {size} bytes to {unpacked}, which is refused as a zip bomb")
    file.seek(0)


def _spreadsheet(file: BinaryIO, requested: tuple[int, int] | None = None) -> str:
    """Return the sheets as JSON, each with its name, number of rows, and first and last rows.

    If rows are requested, counted from 1 after the header, `head` contains the header and these rows, and `tail` is
    empty.
    """
    if file.read(8) == _OLE:
        return _to_json(_old_sheets(file, requested))
    _refuse_bomb(file)
    book = _new_workbook(file)
    return _to_json([_new_sheet(sheet, requested) for sheet in book.worksheets[:100]])


def _new_workbook(file: BinaryIO) -> Workbook:
    """Open a workbook. If openpyxl does not understand its styles, they are ignored, and dates are read as numbers."""
    import openpyxl.reader.excel as reader

    try:
        return reader.load_workbook(file, read_only=True, data_only=True)
    except (TypeError, ValueError, AttributeError):
        styles: Any = reader.apply_stylesheet  # type: ignore[attr-defined]
    file.seek(0)
    setattr(reader, "apply_stylesheet", lambda archive, book: None)  # noqa: ARG005, B010 - openpyxl has no setting for this
    try:
        return reader.load_workbook(file, read_only=True, data_only=True)
    finally:
        setattr(reader, "apply_stylesheet", styles)  # noqa: B010


def _new_sheet(sheet: Worksheet, requested: tuple[int, int] | None) -> SheetRows:
    # With an explicit last row, openpyxl does not rely on the size that the sheet states.
    rows = sheet.iter_rows(values_only=True, max_row=_EXCEL_ROWS, max_col=1000)
    return _sheet(sheet.title, rows, sheet.max_row or 0, requested)


def _to_json(sheets: Sequence[SheetRows]) -> str:
    """Return sheets as JSON, with as many rows of each as `MAX_TEXT` allows."""
    keep = max((len(sheet["head"]) for sheet in sheets), default=1)
    while len(text := json.dumps(sheets)) > MAX_TEXT:
        if keep == 1:
            raise ConversionError(f"has rows of more than {MAX_TEXT} characters, which is more than can be shown")
        keep //= 2
        sheets = [{**sheet, "head": sheet["head"][:keep], "tail": sheet["tail"][-keep:]} for sheet in sheets]
    return text


class SheetRows(TypedDict):
    """A sheet as it is written to the caller; `rows` counts the header."""

    name: str
    rows: int
    head: list[list[str]]
    tail: list[list[str]]


def _old_sheets(file: BinaryIO, requested: tuple[int, int] | None) -> list[SheetRows]:
    """Read a workbook of Excel 5.0 to 2003."""
    xlrd: Any = import_module("xlrd")
    file.seek(0)
    with xlrd.open_workbook(file_contents=file.read(), on_demand=True, logfile=io.StringIO()) as book:
        sheets = (book.sheet_by_index(index) for index in range(min(100, book.nsheets)))
        return [_old_sheet(sheet, book.datemode, requested) for sheet in sheets]


def _old_sheet(sheet: Any, datemode: int, requested: tuple[int, int] | None) -> SheetRows:  # noqa: ANN401 - xlrd has no types
    rows = ([_old_value(cell, datemode) for cell in sheet.row(number)[:1000]] for number in range(sheet.nrows))
    return _sheet(sheet.name, rows, sheet.nrows, requested)


def _old_value(cell: Any, datemode: int) -> object:  # noqa: ANN401 - xlrd has no types
    """Return the value of a cell. Dates, booleans, and errors are converted, because Excel stores them as numbers."""
    xlrd: Any = import_module("xlrd")
    value: float | str = cell.value
    if cell.ctype == xlrd.XL_CELL_DATE:
        try:
            return xlrd.xldate_as_datetime(value, datemode)
        except (ValueError, OverflowError):  # formatted as a date, but not a valid one
            return value
    if cell.ctype == xlrd.XL_CELL_BOOLEAN:
        return bool(value)
    if cell.ctype == xlrd.XL_CELL_ERROR:
        return xlrd.error_text_from_code.get(value, "#ERROR")
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _sheet(name: str, rows: Iterable[Iterable[object]], last_row: int, requested: tuple[int, int] | None) -> SheetRows:
    """Read the rows at both ends of a sheet, or the requested rows. Empty rows are left out and not counted."""
    first, last = (
        (0, ENDS - 1) if requested is None else (requested[0], min(requested[1], requested[0] + MAX_RANGE - 1))
    )
    head: list[list[str]] = []
    tail: deque[list[str]] = deque(maxlen=ENDS if requested is None else 0)
    count = seen = 0
    for seen, row in enumerate(rows, 1):
        if cells := _cells(row):
            (head if count == 0 or first <= count <= last else tail).append(cells)
            count += 1
        if seen >= MAX_ROWS and (requested is None or count > last):
            break
    total = max(count, last_row - (seen - count)) if seen >= MAX_ROWS else count
    return {"name": name, "rows": total, "head": head, "tail": list(tail)}


def _cells(row: Iterable[object]) -> list[str]:
    """Return the cells of a row as text, without the empty ones at its end."""
    cells = ["" if value is None else str(value)[:32_768] for value in row]
    while cells and not cells[-1]:
        cells.pop()
    return cells


def _archive(file: BinaryIO) -> str:
    lines: list[str] = []
    if zipfile.is_zipfile(file):
        with zipfile.ZipFile(file) as archive:
            entries = archive.infolist()
            lines += [f"{entry.file_size:>12} {entry.filename}" for entry in entries[:MAX_ENTRIES]]
            packed = sum(entry.file_size for entry in entries)
        return _listing(lines, f"{len(entries)} entries, {packed} bytes unpacked")
    file.seek(0)
    start = file.read(8)
    if name := next((name for sign, name in _UNLISTED if start.startswith(sign)), None):
        raise ConversionError(f"is a {name} archive, which cannot be listed; unpack it first")
    file.seek(0)
    try:
        return _tar_listing(file)
    except tarfile.ReadError:
        module = next((module for sign, module in _COMPRESSED.items() if start.startswith(sign)), None)
        if module is None:
            raise
        file.seek(0)
        return _single(cast("BinaryIO", import_module(module).open(file)))


def _tar_listing(file: BinaryIO) -> str:
    lines: list[str] = []
    with tarfile.open(fileobj=file, mode="r|*") as tar:
        for number, member in enumerate(tar, 1):
            lines.append(f"{member.size:>12} {member.name}")
            if number == MAX_ENTRIES:
                return _listing(lines, f"more than {MAX_ENTRIES} entries")
    return _listing(lines, f"{len(lines)} entries")


_COMPRESSED: Final = {b"\x1f\x8b": "gzip", b"BZh": "bz2", b"\xfd7zXZ": "lzma"}
"""The module that opens a compressed file, by the first bytes of the file. Some builds of Python lack a module."""


def _single(unpacked: BinaryIO) -> str:
    """Return a text with the unpacked size of a compressed file, or a note that it is too large, and its start."""
    start = unpacked.read(2_000)
    size = len(start)
    while size <= MAX_SINGLE and (chunk := unpacked.read(1 << 20)):
        size += len(chunk)
    total = f"more than {MAX_SINGLE}" if size > MAX_SINGLE else str(size)
    return f"1 compressed file, {total} bytes unpacked, starts with:\n{start.decode('utf-8', 'replace')}\n"


def _listing(lines: list[str], total: str) -> str:
    return "\n".join([total, *(line.encode("utf-8", "replace").decode() for line in lines)]) + "\n"


CONVERTERS: Final[dict[str, Callable[[BinaryIO], str]]] = {
    "pdf": _document(".pdf"),
    "docx": _document(".docx"),
    "pptx": _document(".pptx"),
    "spreadsheet": _spreadsheet,
    "archive": _archive,
}
"""The converter for each kind of document."""

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
