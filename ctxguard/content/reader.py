"""Read any file as a bounded view: `read_file` and `read_file_as_string`."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

from ctxguard.config import ContextConfig
from ctxguard.config.loading import chosen_config
from ctxguard.content.documents import DEFAULT_CACHE, convert, read_sheets
from ctxguard.content.images import BinaryContent, fit_image
from ctxguard.content.opening import (
    WHOLE,
    FileMetadata,
    RefusedError,
    describe_range,
    detect_file,
    find_encoding,
    is_guessed,
    one_line,
    open_file,
    pick_lines,
    read_lines,
    read_source,
)
from ctxguard.errors import ConfigError, reason_of
from ctxguard.settings import whole_number
from ctxguard.tokens import find_counter
from ctxguard.views.bounding import fit, show
from ctxguard.views.processors.table import find_delimiter, write_row
from ctxguard.views.views import NO_LIMITS, Bounded, Count, FileType, Source, TruncationInfo

if TYPE_CHECKING:
    from ctxguard.tokens import TokenCounter

_HEAD: Final = 65_536  # bytes that are read to detect the type
_WINDOW: Final = 262_144  # bytes that are read from each end of a large text
_MAX_ROWS: Final = 100_000  # maximum rows that are read from a requested range
_DOCUMENTS: Final = (FileType.PDF, FileType.DOCX, FileType.PPTX)
_WITHOUT_LINES: Final = (FileType.AUDIO, FileType.BINARY, FileType.IMAGE, FileType.SPREADSHEET)


@dataclass(frozen=True, slots=True)
class FileExtractionResult:
    """The result of reading a file.

    Attributes:
        content: The view as text, or `BinaryContent` for an image; None if reading failed.
        success: Whether the file was read.
        file_type: The detected type; None if the file could not be opened.
        truncation_info: How much of the content is shown; None if reading failed.
        metadata: Size, time, MIME type, and encoding; None if the file could not be opened.
        error: One line that says why reading failed; None if it did not.
    """

    content: str | BinaryContent | None
    success: bool
    file_type: FileType | None = None
    truncation_info: TruncationInfo | None = None
    metadata: FileMetadata | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class _Request:
    """The validated arguments of `read_file`."""

    config: ContextConfig
    count: Count
    max_tokens: int
    lines: tuple[int, int] | None
    rows: tuple[int, int] | None
    exact_totals: bool
    cache_dir: str | os.PathLike[str] | None


def read_file(
    path: str | os.PathLike[str],
    config: ContextConfig | None = None,
    *,
    root: str | os.PathLike[str] | None = None,
    lines: tuple[int, int] | None = None,
    rows: tuple[int, int] | None = None,
    max_tokens: int | None = None,
    counter: str | TokenCounter | Callable[[str], int] = "auto",
    exact_totals: bool = False,
    cache_dir: str | os.PathLike[str] | None = DEFAULT_CACHE,
) -> FileExtractionResult:
    """Read a file as a view within the limits of the configuration.

    A file that cannot be read raises no error; the result says why.

    Args:
        path: The path of the file, relative to `root` if a root is given.
        config: The limits; None means `load_context_config()`.
        root: Folder outside of which nothing is read, not even through links; None means no restriction.
        lines: The first and the last line to show, counted from 1; the file is then shown as text.
        rows: The first and the last row of a table to show. Row 1 follows the header.
        max_tokens: Maximum number of tokens in the view. None means `max_tokens_per_file` of the configuration. In any
            case, `max_total_output` of the configuration also limits the view.
        counter: The token counter, as for `ctxguard.tokens.find_counter`.
        exact_totals: Whether to count the lines of files above 4 MB by reading them in full. If False, their number is
            estimated.
        cache_dir: Folder in which converted documents are cached; None means no cache. The default is a folder in the
            user's cache folder.

    Raises:
        ConfigError: If `max_tokens` is below 1, `lines` or `rows` is not a range, both are given, the counter is
            unknown, or the configuration cannot be read.
    """
    _validate(path, lines, rows, max_tokens)
    settings = chosen_config(config)
    requested = max_tokens or settings.max_tokens_per_file
    request = _Request(
        settings,
        find_counter(counter).count,
        min(requested, settings.max_total_output),
        lines,
        rows,
        exact_totals,
        cache_dir,
    )
    result = _read_file(Path(path), None if root is None else Path(root), request)
    info = result.truncation_info
    if requested > request.max_tokens and info is not None and info.truncated:
        return replace(result, truncation_info=replace(info, total_output_limit_reached=True))
    return result


def read_file_as_string(path: str | os.PathLike[str], config: ContextConfig | None = None, **settings: object) -> str:
    """Return the view of a file as text, or one line that says why the file cannot be read.

    Args:
        path: The path of the file.
        config: The limits; None means `load_context_config()`.
        settings: The other arguments of `read_file`.
    """
    result = read_file(path, config, **settings)  # type: ignore[arg-type]
    if isinstance(result.content, str):
        return result.content
    return f"[error: {result.error}]" if result.content is None else f"[{result.content}]"


def _validate(path: object, lines: object, rows: object, max_tokens: object) -> None:
    """Raise `ConfigError` for arguments with which no file could be read."""
    if not isinstance(path, str | os.PathLike):
        raise ConfigError(f"path is the path of a file, not {path!r}", setting="path")
    if max_tokens is not None:
        whole_number(max_tokens, "max_tokens", unit="tokens", least=1)
    for name, span in (("lines", lines), ("rows", rows)):
        if span is not None and not _is_range(span):
            raise ConfigError(f"{name}={span!r} must be (first, last) with 1 <= first <= last", setting=name)
    if lines is not None and rows is not None:
        raise ConfigError("lines and rows cannot both be given; name the one to read", setting="lines")


def _is_range(span: object) -> bool:
    if not isinstance(span, tuple | list) or len(span) != 2 or not all(type(number) is int for number in span):
        return False
    return bool(1 <= span[0] <= span[1])


def _read_file(path: Path, root: Path | None, request: _Request) -> FileExtractionResult:
    file_type: FileType | None = None
    metadata: FileMetadata | None = None
    try:
        file, metadata = open_file(path, root)
        with file:
            file_type = detect_file(path.name, file.read(_HEAD))
            _require_range(file_type, request)
            return _READERS.get(file_type, _read_text)(file, file_type, metadata, request)
    except (RefusedError, ImportError) as error:
        reason = str(error)
    except (OSError, MemoryError, RecursionError) as error:
        reason = f"cannot be read ({reason_of(error)})"
    message = f"{one_line(path)}: {reason}"
    return FileExtractionResult(None, success=False, file_type=file_type, metadata=metadata, error=message)


def _require_range(file_type: FileType, request: _Request) -> None:
    """Refuse rows for files that are not tables, and lines for files that are not shown as text."""
    if request.rows is not None and file_type not in (FileType.CSV, FileType.SPREADSHEET):
        raise RefusedError(f"is {file_type.value}, which has no rows; ask for lines, or for all of it")
    if request.lines is not None and file_type in _WITHOUT_LINES:
        raise RefusedError(f"is {file_type.value}, which has no lines; ask for rows of a table, or for all of it")


def _read_text(file: BinaryIO, file_type: FileType, metadata: FileMetadata, request: _Request) -> FileExtractionResult:
    file.seek(0)
    encoding = find_encoding(file.read(WHOLE))
    guess = (("encoding", "guessed by its letters"),) if is_guessed(encoding) else ()
    known = replace(metadata, encoding=encoding, details=(*metadata.details, *guess))
    if request.lines is not None:
        text = read_lines(file, encoding, *request.lines)
        bounded = show(Source(text), FileType.TEXT, request.max_tokens, request.count)
        return _result(replace(bounded, file_type=file_type), known)
    if request.rows is not None:
        text = _selected_rows(file, encoding, *request.rows)
        source = Source(text, first_row=request.rows[0])
        return _result(show(source, FileType.CSV, request.max_tokens, request.count), known)
    window = max(_WINDOW, 16 * request.max_tokens)
    source = read_source(file, metadata.size, encoding, window, exact=request.exact_totals)
    limits = request.config.limits()
    if file_type is FileType.SNAPSHOT:
        limits = replace(limits, depth=None)
    return _result(show(source, file_type, request.max_tokens, request.count, limits=limits), known)


def _selected_rows(file: BinaryIO, encoding: str, first: int, last: int) -> str:
    """Return the header and the requested rows of a table as CSV.

    Raises:
        RefusedError: If the table has no such rows.
    """
    file.seek(0)
    start = io.TextIOWrapper(io.BytesIO(file.read(_HEAD)), encoding, "replace", newline="").read()
    delimiter = find_delimiter(start)
    file.seek(0)
    wrapper = io.TextIOWrapper(file, encoding, "replace", newline="")
    try:
        records = (record for record in csv.reader(wrapper, delimiter=delimiter) if record)
        header = next(records, [])
        before = sum(1 for _ in islice(records, first - 1))
        chosen = list(islice(records, min(last - first + 1, _MAX_ROWS)))
    except csv.Error as error:
        raise RefusedError(f"has no rows that can be read ({error})") from None
    finally:
        wrapper.detach()
    if before < first - 1 or (before and not chosen):
        raise RefusedError(f"has no rows {describe_range(first, last)}, only {before}")
    return "\n".join(write_row(record, delimiter) for record in (header, *chosen)) + "\n"


def _read_document(file: BinaryIO, kind: FileType, metadata: FileMetadata, request: _Request) -> FileExtractionResult:
    text = convert(file, kind.value, cache_dir=request.cache_dir)
    if not text.strip():
        text = "[contains no text; pages that are images need text recognition]\n"
    return _show_text(text, kind, metadata, request)


def _show_text(text: str, file_type: FileType, metadata: FileMetadata, request: _Request) -> FileExtractionResult:
    limits = request.config.limits()
    if request.lines is not None:
        text = pick_lines(text, *request.lines)
    bounded = show(Source(text), FileType.TEXT, request.max_tokens, request.count, limits=limits)
    return _result(replace(bounded, file_type=file_type), metadata)


def _read_spreadsheet(
    file: BinaryIO, file_type: FileType, metadata: FileMetadata, request: _Request
) -> FileExtractionResult:
    limits = request.config.limits() if request.rows is None else NO_LIMITS
    text = convert(file, "spreadsheet", cache_dir=request.cache_dir, rows=request.rows)
    processor = read_sheets(text, limits, rows=request.rows)
    whole = processor.view(1 << 40)
    if not whole.text:
        return _result(Bounded("[contains no filled cells]\n", TruncationInfo(rows_total=0), file_type), metadata)
    tokens = request.count(whole.text)
    view = whole if tokens <= request.max_tokens else fit(processor, request.max_tokens, request.count, 2.5)
    shown = tokens if view is whole else request.count(view.text)
    total, is_exact = processor.measured(request.count) if view.cut else (shown, True)
    info = replace(view.info, truncated=view.cut, tokens_shown=shown, tokens_total=total, tokens_exact=is_exact)
    return _result(Bounded(view.text, info, file_type), metadata)


def _read_image(file: BinaryIO, file_type: FileType, metadata: FileMetadata, request: _Request) -> FileExtractionResult:
    config = request.config
    image, (width, height) = fit_image(file, max_side=config.max_image_side, max_bytes=config.max_image_bytes)
    scaled = (image.width, image.height) != (width, height)
    remark = f"scaled from {width}x{height} to {image.width}x{image.height} pixels" if scaled else ""
    return FileExtractionResult(
        image,
        success=True,
        file_type=file_type,
        truncation_info=TruncationInfo(truncated=scaled, note=remark),
        metadata=replace(metadata, details=(("pixels", f"{width}x{height}"),)),
    )


def _read_archive(file: BinaryIO, kind: FileType, metadata: FileMetadata, request: _Request) -> FileExtractionResult:
    return _show_text(convert(file, "archive", cache_dir=None, timeout=20), kind, metadata, request)


def _read_metadata(file: BinaryIO, kind: FileType, metadata: FileMetadata, request: _Request) -> FileExtractionResult:
    file.seek(0)
    start = file.read(16).hex(" ")
    text = (
        f"{kind.value} file, {metadata.mime_type}, {metadata.size} bytes, "
        f"changed {metadata.modified:%Y-%m-%d %H:%M} UTC, starts with bytes {start}\n"
    )
    return _show_text(text, kind, metadata, request)


def _result(bounded: Bounded, metadata: FileMetadata) -> FileExtractionResult:
    return FileExtractionResult(
        bounded.content,
        success=True,
        file_type=bounded.file_type,
        truncation_info=bounded.info,
        metadata=metadata,
    )


_READERS: Final[dict[FileType, Callable[[BinaryIO, FileType, FileMetadata, _Request], FileExtractionResult]]] = {
    **dict.fromkeys(_DOCUMENTS, _read_document),
    FileType.ARCHIVE: _read_archive,
    FileType.AUDIO: _read_metadata,
    FileType.BINARY: _read_metadata,
    FileType.IMAGE: _read_image,
    FileType.SPREADSHEET: _read_spreadsheet,
}
