"""Show a spreadsheet sheet by sheet: header, head and tail rows of each, as CSV under its name."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from ctxguard.content.processors.table import Table, TableProcessor, TableRecord, write_row
from ctxguard.content.processors.tree import share_out
from ctxguard.content.views import Limits, TruncationInfo, View
from ctxguard.files.opening import RefusedError
from ctxguard.files.text_files import describe_range

_TITLE = 40  # characters of a sheet's name in its heading


@dataclass(frozen=True, slots=True)
class Sheet:
    """One sheet: its rows without the header, and a description of the shown ones (`extent`)."""

    name: str
    processor: TableProcessor
    rows: int
    extent: str


class SheetsProcessor:
    """Show the sheets that are not empty."""

    def __init__(self, sheets: Sequence[Sheet]) -> None:
        self._sheets = sheets

    def view(self, available: int) -> View:
        """Return every sheet with its share of the available characters; if there are very many, the first ones."""
        shown = self._sheets[: max(1, available // 80)]
        sizes = [len(sheet.processor.view(available).text) for sheet in shown]
        shares = share_out(sizes, available - len(shown) * _TITLE)
        views = [sheet.processor.view(share) for sheet, share in zip(shown, shares, strict=True)]
        parts = [
            f"## Sheet {sheet.name}: {sheet.extent}\n{view.text}" for sheet, view in zip(shown, views, strict=True)
        ]
        missing = len(self._sheets) - len(shown)
        if missing:
            parts.append(f"[{len(shown)} of {len(self._sheets)} sheets shown]")
        return View("\n".join(parts), cut=bool(missing) or any(view.cut for view in views), info=self._info(views))

    def fallbacks(self) -> tuple[str, ...]:
        """Return the names of the sheets, then only their number."""
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
    """Read the sheets that the worker wrote as JSON: objects with `name`, `rows`, `head` and `tail`.

    Args:
        converted: the JSON.
        limits: the limits of a view of each sheet.
        rows: first and last row that were requested, counted from 1 after the header; None means all.

    Raises:
        RefusedError: the first requested row is beyond the end of every sheet, unless it is row 1.
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
    if requested is None:
        return Sheet(
            name, TableProcessor(Table(head[0], head[1:], tail, rows), limits, text=whole), rows, f"{rows} rows"
        )
    first, last = requested[0], min(requested[1], rows)
    table = Table(head[0], head[1:], [], max(0, last - first + 1), first=first)
    extent = f"rows {first}-{last} of {rows}" if first <= last else f"{rows} rows, none of {first}-{requested[1]}"
    return Sheet(name, TableProcessor(table, limits, text=whole), rows, extent)


def _record(cells: list[str]) -> TableRecord:
    return TableRecord(write_row(cells), cells)
