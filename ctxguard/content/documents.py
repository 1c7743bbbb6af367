"""Convert documents to text in a separate process, and cache the text by a hash of the document.

A spreadsheet is shown sheet by sheet, each as CSV with its header and rows from both ends.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, Final, cast

from ctxguard.content.opening import RefusedError, describe_range
from ctxguard.settings import extra, install_command
from ctxguard.views.processors.table import Table, TableProcessor, TableRecord, write_row
from ctxguard.views.processors.tree import share_out
from ctxguard.views.views import Count, Limits, TruncationInfo, View

_TITLE = 40  # characters that are reserved for the heading of a sheet


@dataclass(frozen=True, slots=True)
class Sheet:
    """One sheet.

    Attributes:
        name: Its title.
        processor: Shows its table.
        rows: Number of rows without the header.
        extent: Says in words which rows are shown.
        text: The rows that the worker returned, as CSV: all of them, or those from both ends.
        share: The share of the sheet that `text` is, by its rows; 1.0 means all of it.
    """

    name: str
    processor: TableProcessor
    rows: int
    extent: str
    text: str
    share: float


class SheetsProcessor:
    """Shows the sheets of a spreadsheet."""

    def __init__(self, sheets: Sequence[Sheet]) -> None:
        self._sheets = sheets

    def view(self, available: int) -> View:
        """Return each sheet in its share of the available characters. If there are many, only the first are shown."""
        shown = self._sheets[: max(1, available // 80)]
        whole = [sheet.processor.view(available) for sheet in shown]
        shares = share_out([len(view.text) for view in whole], available - len(shown) * _TITLE)
        views = [
            view if len(view.text) <= share else sheet.processor.view(share)
            for sheet, view, share in zip(shown, whole, shares, strict=True)
        ]
        parts = [
            f"## Sheet {sheet.name}: {sheet.extent}\n{view.text}" for sheet, view in zip(shown, views, strict=True)
        ]
        missing = len(self._sheets) - len(shown)
        if missing:
            parts.append(f"[{len(shown)} of {len(self._sheets)} sheets shown]")
        return View("\n".join(parts), cut=bool(missing) or any(view.cut for view in views), info=self._info(views))

    def measured(self, count: Count) -> tuple[int, bool]:
        """Return the number of tokens of all sheets, as CSV below their headings, and whether all rows were counted.

        If only the rows from both ends of a sheet were read, its tokens are extrapolated by the number of its rows.
        """
        total = 0.0
        for sheet in self._sheets:
            total += count(f"## Sheet {sheet.name}: {sheet.extent}\n") + count(sheet.text) / sheet.share
        return round(total), all(sheet.share == 1 for sheet in self._sheets)

    def fallbacks(self) -> tuple[str, ...]:
        """Return the names of the sheets, then the number of sheets, then `…`."""
        names = ", ".join(sheet.name for sheet in self._sheets)
        return f"[sheets: {names}]", f"[{len(self._sheets)} sheets]", "…"

    def _info(self, views: Sequence[View]) -> TruncationInfo:
        infos = [view.info for view in views]
        return TruncationInfo(
            rows_shown=sum(info.rows_shown or 0 for info in infos),
            rows_total=sum(sheet.rows for sheet in self._sheets),
            columns_shown=max((info.columns_shown or 0 for info in infos), default=0),
            columns_total=max((info.columns_total or 0 for info in infos), default=0),
            cells_truncated=sum(info.cells_truncated for info in infos),
        )


def read_sheets(converted: str, limits: Limits, *, rows: tuple[int, int] | None = None) -> SheetsProcessor:
    """Return the processor for the sheets that the worker wrote as JSON. Empty sheets are left out.

    Args:
        converted: A JSON array of objects with the keys `name`, `rows`, `head`, and `tail`.
        limits: The limits of the view of each sheet.
        rows: The first and the last row that were requested, counted from 1 after the header; None means all rows.

    Raises:
        RefusedError: If every sheet ends before the first requested row, and that is not row 1.
    """
    entries = [entry for entry in cast("list[Mapping[str, object]]", json.loads(converted)) if entry["head"]]
    sheets = [_sheet(entry, limits, rows) for entry in entries]
    if rows is not None and sheets and rows[0] > max(1, *(sheet.rows for sheet in sheets)):
        there_are = ", ".join(f"sheet {sheet.name} has {sheet.rows}" for sheet in sheets[:20])
        raise RefusedError(f"has no rows {describe_range(*rows)}; {there_are}")
    return SheetsProcessor(sheets)


def _sheet(entry: Mapping[str, object], limits: Limits, requested: tuple[int, int] | None) -> Sheet:
    name, rows = cast("str", entry["name"]), cast("int", entry["rows"]) - 1
    head = [_record(cells) for cells in cast("list[list[str]]", entry["head"])]
    tail = [_record(cells) for cells in cast("list[list[str]]", entry["tail"])]
    if len(head) + len(tail) - 1 == rows:
        head, tail = head + tail, []
    whole = "\n".join(row.raw for row in head) + "\n"
    read = whole + "".join(row.raw + "\n" for row in tail)
    share = (len(head) + len(tail)) / (rows + 1) if requested is None else 1.0
    table, extent = Table(head[0], head[1:], tail, rows), f"{rows} rows"
    if requested is not None:
        first, last = requested[0], min(requested[1], rows)
        table = replace(table, tail=[], total=max(0, last - first + 1), first=first)
        extent = f"rows {first}-{last} of {rows}" if first <= last else f"{rows} rows, none of {first}-{requested[1]}"
    return Sheet(name, TableProcessor(table, limits, text=whole), rows, extent, read, share)


def _record(cells: list[str]) -> TableRecord:
    return TableRecord(write_row(cells), cells)


DEFAULT_CACHE: Final = Path()
"""Stands for the user's cache folder. Only this object does: an equal path, such as `Path(".")`, is a folder like any
other."""
TIMEOUT: Final = 60  # seconds for a conversion
_VERSION: Final = "2"  # part of the names of cache files: to be raised when the worker's output changes
_MAX_SIZE: Final = 200_000_000  # bytes; larger documents are refused


def convert(
    file: BinaryIO,
    kind: str,
    *,
    cache_dir: str | os.PathLike[str] | None,
    timeout: int = TIMEOUT,
    rows: tuple[int, int] | None = None,
) -> str:
    """Return the text of a document.

    Args:
        file: The document, a regular file.
        kind: `pdf`, `docx`, `pptx`, `spreadsheet`, or `archive`.
        cache_dir: Folder in which texts are cached by the SHA-256 of the document; None means no cache.
        timeout: Maximum duration of the conversion, in seconds.
        rows: The first and the last row of each sheet to read, counted from 1 after the header; None means the rows at
            both ends.

    Raises:
        RefusedError: If the document is too large, damaged, protected by a password, or a zip bomb, or if the
            conversion takes too long.
        ImportError: If the package that reads such documents is not installed.
    """
    if os.fstat(file.fileno()).st_size > _MAX_SIZE:
        raise RefusedError(f"is larger than {_MAX_SIZE} bytes, the limit for documents")
    named = kind if rows is None else f"{kind}-{rows[0]}-{rows[1]}"
    folder = default_cache_dir() if cache_dir is DEFAULT_CACHE else cache_dir
    place = None if folder is None else cached_at(Path(folder), file, named)
    if place is not None and place.is_file():
        return place.read_text(encoding="utf-8")
    text = _run(file, [kind, str(timeout), *map(str, rows or ())], timeout)
    if place is not None:
        _remember(place, text)
    return text


def default_cache_dir() -> Path:
    """Return the folder for converted documents: `ctxguard/documents` in the user's cache folder."""
    with extra("files", "keeping converted documents needs an extra"):
        from platformdirs import user_cache_path

    return user_cache_path("ctxguard", appauthor=False) / "documents"


def cached_at(cache_dir: Path, file: BinaryIO, kind: str) -> Path:
    """Return the path of the cache file for a document, which is named by the SHA-256 of its bytes."""
    file.seek(0)
    digest = hashlib.file_digest(cast("io.BufferedReader", file), "sha256").hexdigest()
    return cache_dir / f"{digest}-{kind}-{_VERSION}.txt"


def _run(file: BinaryIO, arguments: list[str], timeout: int) -> str:
    file.seek(0)
    os.lseek(file.fileno(), 0, os.SEEK_SET)
    command = [sys.executable, "-P", "-m", "ctxguard.content.worker", *arguments]
    try:
        done = subprocess.run(  # noqa: S603 - the command is fixed; the document is data on standard input
            command, stdin=file, capture_output=True, timeout=timeout, check=False
        )
    except subprocess.TimeoutExpired:
        raise RefusedError(f"takes longer than {timeout} seconds to convert") from None
    if done.returncode == 0:
        return done.stdout.decode()
    reason = done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
    if reason.startswith("missing:"):
        name = reason.removeprefix("missing:")
        raise ImportError(f"reading it needs the package {name}; {install_command('files')}", name=name)
    if done.returncode < 0 or not reason:
        reason = "needs more memory or CPU time than a document is allowed"
    raise RefusedError(reason[:300])


def _remember(place: Path, text: str) -> None:
    """Write a file that only its owner can read. Readers see either the whole text or no file, never a part of it."""
    with suppress(OSError):  # a missing cache costs only time
        place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.NamedTemporaryFile("w", dir=place.parent, delete=False, encoding="utf-8") as out:
            out.write(text)
        Path(out.name).replace(place)
