"""Show a spreadsheet sheet by sheet: header, head and tail rows of each, as CSV under its name."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, cast

from ctxguard.content.processors.tables import Record, Table, TableShape, write_row
from ctxguard.content.processors.trees import share_out
from ctxguard.content.views import Limits, TruncationInfo, View, note

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["SheetsShape", "read_sheets"]

_TITLE = 40


class SheetsShape:
    """Show sheets.

    Args:
        sheets: name and shape of each that holds anything.
        handle: name under which the whole can be recalled.
    """

    def __init__(self, sheets: Sequence[tuple[str, TableShape, int]], handle: str | None = None) -> None:
        self._sheets = sheets
        self._handle = handle

    def view(self, room: int) -> View:
        """Return every sheet with its share of the room; of very many the first."""
        shown = self._sheets[: max(1, room // 80)]
        sizes = [len(shape.view(room).text) for _, shape, _ in shown]
        shares = share_out(sizes, room - len(shown) * _TITLE)
        views = [shape.view(share) for (_, shape, _), share in zip(shown, shares, strict=True)]
        parts = [
            f"## Sheet {name}: {rows} rows\n{view.text}" for (name, _, rows), view in zip(shown, views, strict=True)
        ]
        missing = len(self._sheets) - len(shown)
        if missing:
            parts.append(f"[{note(f'{len(shown)} of {len(self._sheets)} sheets shown', self._handle)}]")
        return View("\n".join(parts), cut=bool(missing) or any(view.cut for view in views), info=self._info(views))

    def resorts(self) -> tuple[str, ...]:
        """Return the names of the sheets, then how many there are."""
        names = ", ".join(name for name, _, _ in self._sheets)
        return f"[sheets: {names}]", f"[{len(self._sheets)} sheets]", "…"

    def _info(self, views: Sequence[View]) -> TruncationInfo:
        infos = [view.info for view in views]
        return TruncationInfo(
            rows_shown=sum(info.rows_shown or 0 for info in infos),
            rows_total=sum(rows for _, _, rows in self._sheets),
            columns_shown=max((info.columns_shown or 0 for info in infos), default=0),
            columns_total=max((info.columns_total or 0 for info in infos), default=0),
            cells_truncated=sum(info.cells_truncated for info in infos),
        )


def read_sheets(converted: str, limits: Limits) -> SheetsShape:
    """Read the sheets that the worker wrote as JSON.

    Args:
        converted: a list of objects with `name`, `rows`, `head` and `tail`.
        limits: what a view may show of each sheet.
    """
    sheets = [_sheet(entry, limits) for entry in cast("list[Mapping[str, object]]", json.loads(converted))]
    return SheetsShape([sheet for sheet in sheets if sheet is not None])


def _sheet(entry: Mapping[str, object], limits: Limits) -> tuple[str, TableShape, int] | None:
    head = [_record(cells) for cells in cast("list[list[str]]", entry["head"])]
    tail = [_record(cells) for cells in cast("list[list[str]]", entry["tail"])]
    if not head:
        return None
    rows = cast("int", entry["rows"]) - 1
    if len(head) + len(tail) - 1 == rows:
        head, tail = head + tail, []
    table = Table(head[0], head[1:], tail, rows)
    whole = "\n".join(row.raw for row in head) + "\n"
    return cast("str", entry["name"]), TableShape(table, limits, text=whole), rows


def _record(cells: list[str]) -> Record:
    return Record(write_row(cells), cells)
