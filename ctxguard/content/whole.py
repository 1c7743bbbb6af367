"""Read the whole text of a file, so that it can be searched: texts in any encoding, documents, and spreadsheets."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import BinaryIO, Final, cast

from ctxguard.content.documents import convert
from ctxguard.content.opening import RefusedError, decode, detect_file, find_encoding, open_file
from ctxguard.content.worker import MAX_TEXT, SheetRows
from ctxguard.views.processors.table import write_row
from ctxguard.views.views import FileType

_HEAD: Final = 65_536  # bytes that are read to detect the type
_MAX_SIZE: Final = 1 << 30  # bytes; larger texts are refused
_DOCUMENTS: Final = (FileType.PDF, FileType.DOCX, FileType.PPTX)
_WITHOUT_TEXT: Final = (FileType.ARCHIVE, FileType.AUDIO, FileType.BINARY, FileType.IMAGE)


def whole_text(path: Path) -> str:
    """Return the whole text of a file. Nothing is left out: a file of which only a part could be read is refused.

    Args:
        path: A text, a PDF, a document, or a spreadsheet. Each sheet is its heading, and its rows as CSV.

    Raises:
        RefusedError: If the file cannot be opened, has no text, or has more than can be read.
        ImportError: If the package that reads such documents is not installed.
        OSError: If the file cannot be read.
    """
    file, metadata = open_file(path, None)
    with file:
        kind = detect_file(path.name, file.read(_HEAD))
        if kind in _WITHOUT_TEXT:
            raise RefusedError(f"has no text that can be searched ({kind.value})")
        if kind in _DOCUMENTS:
            return _document(file, kind)
        if kind is FileType.SPREADSHEET:
            return _sheets(file)
        if metadata.size > _MAX_SIZE:
            raise RefusedError(f"is larger than {_MAX_SIZE} bytes; split it")
        file.seek(0)
        data = file.read()
        return decode(data, find_encoding(data))


def _document(file: BinaryIO, kind: FileType) -> str:
    text = convert(file, kind.value, cache_dir=None)
    if len(text) >= MAX_TEXT:
        raise RefusedError(f"has more than {MAX_TEXT:,} characters; split it")
    if not text.strip():
        raise RefusedError("contains no text; pages that are pictures need text recognition")
    return text


def _sheets(file: BinaryIO) -> str:
    converted = convert(file, FileType.SPREADSHEET.value, cache_dir=None, rows=(1, sys.maxsize))
    sheets = cast("list[SheetRows]", json.loads(converted))
    for sheet in sheets:
        if len(sheet["head"]) < sheet["rows"]:
            raise RefusedError(f"has more rows than can be searched in sheet {sheet['name']}; save it as CSV")
    tables = ((sheet["name"], "\n".join(map(write_row, sheet["head"]))) for sheet in sheets)
    return "".join(f"## Sheet {name}\n{rows}\n" for name, rows in tables)
