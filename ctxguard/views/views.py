"""The data that processors work with: a `Source`, the `Limits` of its view, and the `View` that a processor returns.

A view is an excerpt of a text that keeps the structure of its type. Its marker, a line or an entry of that format, says
how much of the text is shown. `TruncationInfo` says the same as data.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final, Protocol

Count = Callable[[str], int]
"""A function that returns the number of tokens in a string."""


class FileType(StrEnum):
    """The type of a text or file, which determines the processor that shortens it."""

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
        """Accept names in any case, and `xlsx` and `xls` for a spreadsheet."""
        name = str(value).lower()
        return cls.SPREADSHEET if name in ("xlsx", "xls") else next((known for known in cls if known == name), None)


@dataclass(frozen=True, slots=True)
class Limits:
    """The maximum sizes of a view's parts. None means no limit of that kind.

    Attributes:
        lines: Maximum number of lines, including the line of the marker.
        lines_head: Maximum number of lines from the start of a text; None means half of `lines`.
        lines_tail: Maximum number of lines from the end of a text; None means as many as `lines` leaves.
        line_length: Maximum number of characters in a line.
        depth: Maximum number of nested levels.
        items: Maximum number of items in an array.
        items_head: Maximum number of items from the start of an array. If `items_head` and `items_tail` are both given,
            they replace `items`.
        items_tail: Maximum number of items from the end of an array.
        keys: Maximum number of keys in an object.
        string: Maximum number of characters in a string value.
        columns: Maximum number of columns in a table.
        cell: Maximum number of characters in a cell.
        rows_head: Maximum number of rows from the start of a table.
        rows_tail: Maximum number of rows from the end of a table.
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
    """The text to show: a whole text, or the head and tail of a text that is too large to be read in full.

    Attributes:
        text: The text. If a part of the original was not read, this is its head followed by its tail.
        gap: Offset in `text` at which the tail begins; None if the original was read in full.
        size: Length of the original: in characters, or in bytes if only parts of a file were read. A negative number
            means the length of `text`.
        lines: Number of lines in the original. None means that they are counted when needed; if there is a gap, their
            number is estimated.
        handle: Name under which the original can be recalled; None if it was not saved.
        first_row: If the text consists of rows from a larger table, the number of the first one in that table, where
            row 1 follows the header; else None.
        by: Name of the program that shortens the text; empty if the reader asked for a part of it. Markers name the
            program and say how to get the rest.
    """

    text: str
    gap: int | None = None
    size: int = -1
    lines: int | None = None
    handle: str | None = None
    first_row: int | None = None
    by: str = ""

    def note(self, shown: str) -> str:
        """Return the text of a marker: who shortened the text, what is shown, and how to get the rest.

        The text that is added to `shown` has no character that any of the formats reserves.
        """
        text = f"shortened by {self.by}: {shown}" if self.by else shown
        if self.handle:
            return f"{text}; full text: handle {self.handle}"
        return f"{text}; read it again for the rest" if self.by else text

    @property
    def total(self) -> int:
        """Length of the original, in characters, or in bytes if only parts of a file were read."""
        return len(self.text) if self.size < 0 else self.size

    @property
    def head_end(self) -> int:
        """Offset in `text` at which the head ends."""
        return len(self.text) if self.gap is None else self.gap

    @property
    def tail_start(self) -> int:
        """Offset in `text` at which the tail starts; 0 if the original was read in full."""
        return 0 if self.gap is None else self.gap

    @property
    def exact(self) -> bool:
        """Whether the number of lines is exact rather than estimated."""
        return self.gap is None or self.lines is not None

    def sampled(self, size: int) -> Source:
        """Return a source with only whole lines from both ends of the text, about `size` characters together.

        A source of up to `size` characters, or one that already has a gap, is returned unchanged.
        """
        text = self.text
        if self.gap is not None or len(text) <= size:
            return self
        head = text[: text.rfind("\n", 0, size // 2) + 1]
        tail = text[text.find("\n", len(text) - size // 2) + 1 :]
        if len(tail) > size:  # no line break in the second half
            tail = ""
        return replace(self, text=head + tail, gap=len(head), size=len(text), lines=self.line_count())

    def line_count(self) -> int:
        """Return the number of lines in the original. If there is a gap, it may be an estimate."""
        if self.lines is not None:
            return self.lines
        seen = count_lines(self.text)
        if self.gap is None:
            return seen
        return max(seen, round(seen * self.total / max(1, len(self.text))))


@dataclass(frozen=True, slots=True)
class TruncationInfo:
    """How much of a text a view shows.

    The numbers of lines, rows, columns, and items are None for types that do not have them.

    Attributes:
        truncated: False if the text is shown unchanged.
        tokens_shown: Number of tokens in the view.
        tokens_total: Number of tokens in the whole text; extrapolated from its start if `tokens_exact` is False.
        tokens_exact: Whether `tokens_total` was counted.
        lines_shown: Number of lines in the view, without the marker.
        lines_total: Number of lines in the text.
        rows_shown: Number of table rows in the view, without the header.
        rows_total: Number of rows in the table, without the header.
        columns_shown: Number of columns in the view.
        columns_total: Number of columns in the table.
        cells_truncated: Number of cells or string values that were shortened.
        items_shown: Number of items or keys shown from the outermost array or object.
        items_total: Number of items or keys in the outermost array or object; None if the text was not read in full.
        totals_exact: False if totals are estimates because the text was not read in full.
        total_output_limit_reached: Whether `max_total_output`, not the limit for the file, determined the view's size.
        handle: Name under which the whole text can be recalled; None if it was not saved.
        note: Further information for the reader, such as `invalid json, shown as text: …`.
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
    """A processor's view of a source.

    Attributes:
        text: The text of the view, including the marker.
        cut: False if nothing is missing. The text may even then be spelled differently than in the source.
        info: How much is shown. The processor does not set the fields on tokens; its caller does.
    """

    text: str
    cut: bool = field(kw_only=True)
    info: TruncationInfo = field(default_factory=TruncationInfo, kw_only=True)


class Processor(Protocol):
    """Shows a source in any size. It parses the source once; each type of text has a processor of its own."""

    def view(self, available: int) -> View:
        """Return a view of about `available` characters, including the marker, within the source's `Limits`."""
        ...

    def fallbacks(self) -> tuple[str, ...]:
        """Return ever shorter texts that are valid for this type. They serve if even the smallest view does not fit."""
        ...


@dataclass(frozen=True, slots=True)
class Bounded:
    """A text within its token limit.

    Attributes:
        content: The view, or the text itself if nothing is missing.
        info: How much of the text is shown.
        file_type: The type of the text.
    """

    content: str
    info: TruncationInfo
    file_type: FileType


def count_lines(text: str) -> int:
    """Return the number of lines in a string. A line break at its end does not start another line."""
    return text.count("\n") + (not text.endswith("\n") and text != "")
