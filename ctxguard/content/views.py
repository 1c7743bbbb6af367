"""Processors show a source as a view within limits; `TruncationInfo` states the omissions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final, Protocol

Count = Callable[[str], int]
"""Count the tokens of a text."""


class FileType(StrEnum):
    """The type of a content, which determines the processor that shows it."""

    ARCHIVE = "archive"
    AUDIO = "audio"
    BINARY = "binary"
    CODE = "code"
    CONSOLE = "console"
    CSV = "csv"
    DOCX = "docx"
    HTML = "html"
    IMAGE = "image"
    JSON = "json"
    JSONL = "jsonl"
    LOG = "log"
    MARKDOWN = "markdown"
    PDF = "pdf"
    PPTX = "pptx"
    SNAPSHOT = "snapshot"
    SPREADSHEET = "spreadsheet"
    TEXT = "text"
    XML = "xml"
    YAML = "yaml"

    @classmethod
    def _missing_(cls, value: object) -> FileType | None:
        """Accept names in any case, and `xlsx` for a spreadsheet, as the documents call it."""
        name = str(value).lower()
        return cls.SPREADSHEET if name in ("xlsx", "xls") else next((known for known in cls if known == name), None)


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a view; None means no limit of that kind.

    Attributes:
        lines: lines, the marker's line included.
        lines_head: lines from the start of a text, and
        lines_tail: lines from its end; None means half of `lines`, or what is left of them.
        line_length: characters of a line.
        depth: levels of nesting.
        items: items of an array.
        items_head: items from the start of an array, and
        items_tail: items from its end, which count in place of `items` if both are given.
        keys: keys of an object.
        string: characters of a string value.
        columns: columns of a table.
        cell: characters of a cell.
        rows_head: rows from the start of a table.
        rows_tail: rows from its end.
    """

    lines: int | None = None
    lines_head: int | None = None
    lines_tail: int | None = None
    line_length: int | None = None
    depth: int | None = None
    items: int | None = None
    items_head: int | None = None
    items_tail: int | None = None
    keys: int | None = None
    string: int | None = None
    columns: int | None = None
    cell: int | None = None
    rows_head: int | None = None
    rows_tail: int | None = None


NO_LIMITS: Final = Limits()


@dataclass(frozen=True, slots=True)
class Source:
    """A text to show: complete, or head and tail of one too large to be read.

    Attributes:
        text: the text; if a part was not read, head and tail joined.
        gap: offset in `text` at which a part was not read; None if all of it was.
        size: characters (bytes, for a sampled file) of the whole.
        lines: lines of the whole; None means that they are counted when needed, or estimated if there is a gap.
        handle: name under which the whole can be recalled.
        first_row: number of the first row after the header, if the text is some rows of a larger table; else None.
        by: who shows a part of it, if the reader did not ask for a part; markers say so, and how to get the rest.
    """

    text: str
    gap: int | None = None
    size: int = -1
    lines: int | None = None
    handle: str | None = None
    first_row: int | None = None
    by: str = ""

    def note(self, shown: str) -> str:
        """Return the text of a marker: who shortened the text, what is shown, and how to get the rest."""
        told = f"shortened by {self.by}: {shown}" if self.by else shown
        return f"{told}; read it again for the rest" if self.by and not self.handle else note(told, self.handle)

    @property
    def total(self) -> int:
        """Characters (bytes, for a sampled file) of the whole."""
        return len(self.text) if self.size < 0 else self.size

    @property
    def head_end(self) -> int:
        """Offset at which the part that was read from the start ends."""
        return len(self.text) if self.gap is None else self.gap

    @property
    def tail_start(self) -> int:
        """Offset at which the part that was read from the end starts."""
        return 0 if self.gap is None else self.gap

    @property
    def exact(self) -> bool:
        """Whether totals are counted, not estimated."""
        return self.gap is None or self.lines is not None

    def sampled(self, size: int) -> Source:
        """Return head and tail of a text above `size` characters, split at line breaks, with its lines counted."""
        text = self.text
        if self.gap is not None or len(text) <= size:
            return self
        head = text[: text.rfind("\n", 0, size // 2) + 1]
        tail = text[text.find("\n", len(text) - size // 2) + 1 :]
        if len(tail) > size:  # no line break in the second half
            tail = ""
        return replace(self, text=head + tail, gap=len(head), size=len(text), lines=self.line_count())

    def line_count(self) -> int:
        """Return the lines of the whole, estimated by density if it was not completely read."""
        if self.lines is not None:
            return self.lines
        seen = self.text.count("\n") + (not self.text.endswith("\n") and self.text != "")
        if self.gap is None:
            return seen
        return max(seen, round(seen * self.total / max(1, len(self.text))))


@dataclass(frozen=True, slots=True)
class TruncationInfo:
    """What was omitted, and how much.

    Attributes:
        truncated: False if the content is shown unchanged.
        tokens_shown: tokens of the view.
        tokens_total: tokens of the whole; extrapolated from its start if `tokens_exact` is False.
        tokens_exact: whether `tokens_total` was counted.
        lines_shown: lines of the content that are shown; None for a type without lines.
        lines_total: lines of the content.
        rows_shown: rows of a table that are shown, the header not counted.
        rows_total: rows of the table, the header not counted.
        columns_shown: columns that are shown.
        columns_total: columns of the table.
        cells_truncated: cells and string values that were shortened.
        items_shown: items or keys of the outermost array or object that are shown.
        items_total: its number of items or keys.
        totals_exact: False if totals were estimated because not all of a large file was read.
        total_output_limit_reached: whether the limit on the whole output, not on the file, was reached.
        handle: name under which the whole can be recalled.
        note: further information for the reader (`invalid JSON, shown as text`).
    """

    truncated: bool = False
    tokens_shown: int = 0
    tokens_total: int = 0
    tokens_exact: bool = True
    lines_shown: int | None = None
    lines_total: int | None = None
    rows_shown: int | None = None
    rows_total: int | None = None
    columns_shown: int | None = None
    columns_total: int | None = None
    cells_truncated: int = 0
    items_shown: int | None = None
    items_total: int | None = None
    totals_exact: bool = True
    total_output_limit_reached: bool = False
    handle: str | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class View:
    """A view of a source.

    Attributes:
        text: the shown text, including the marker.
        cut: False if nothing was left out; the text may then still be written differently.
        info: the omissions; the caller that counts fills in the token fields.
    """

    text: str
    cut: bool = field(kw_only=True)
    info: TruncationInfo = field(default_factory=TruncationInfo, kw_only=True)


class Processor(Protocol):
    """Show one source, which is parsed once, in any size; each type of content has its own processor."""

    def view(self, available: int) -> View:
        """Return a view of about `available` characters, marker included; never more than the limits allow."""
        ...

    def fallbacks(self) -> tuple[str, ...]:
        """Return ever shorter texts of this type, for a limit that even the smallest view exceeds."""
        ...


@dataclass(frozen=True, slots=True)
class Bounded:
    """A content that is within its limit.

    Attributes:
        content: the view, or the text itself if nothing was omitted.
        info: what was omitted, and how much.
        file_type: the detected type.
    """

    content: str
    info: TruncationInfo
    file_type: FileType


def note(shown: str, handle: str | None) -> str:
    """Return one phrase that says what is shown and where the rest is, without characters reserved in any format."""
    return f"{shown}; full text: handle {handle}" if handle else shown
