"""Shorten a text to a hard token limit, in the way that suits its type."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from typing import Final

from ctxguard.content.detection import detect
from ctxguard.content.fitting import MeasuredText, fit, measure
from ctxguard.content.views import (
    NO_LIMITS,
    Bounded,
    Count,
    FileType,
    Limits,
    Processor,
    Source,
    TruncationInfo,
    View,
)

_AMPLE: Final = 4
"""Length of a view without a token limit, as a multiple of the text: aliases in YAML may be expanded."""
_PROCESSORS: Final = {
    FileType.CODE: ("code", "CodeProcessor"),
    FileType.CONSOLE: ("log", "LogProcessor"),
    FileType.CSV: ("table", "read_table"),
    FileType.HTML: ("html_text", "HtmlProcessor"),
    FileType.JSON: ("json_tree", "JsonProcessor"),
    FileType.JSONL: ("json_lines", "JsonLinesProcessor"),
    FileType.LOG: ("log", "LogProcessor"),
    FileType.SNAPSHOT: ("snapshot", "SnapshotProcessor"),
    FileType.XML: ("xml_tree", "XmlProcessor"),
    FileType.YAML: ("yaml_tree", "YamlProcessor"),
}


def bound(
    text: str,
    max_tokens: int,
    *,
    count: Count,
    file_type: FileType | None = None,
    handle: str | None = None,
    limits: Limits = NO_LIMITS,
    by: str = "",
) -> Bounded:
    """Return a view of a text that has at most `max_tokens` tokens, or the text itself if it fits.

    The limit is hard: if not even the shortest marker fits, the content is empty. The same text and settings always
    give the same view, and bounding a view again changes nothing.

    Args:
        text: the text to show.
        max_tokens: tokens the view may have, at least 1.
        count: counts the tokens of a text.
        file_type: type of the text; None means that it is detected.
        handle: name under which the whole can be recalled; the marker names it.
        limits: further limits for a view of a text over the token limit.
        by: who shortens it, if not the reader of the view; the marker says so.
    """
    measured = measure(text, max_tokens, count)
    if not measured.over:
        info = TruncationInfo(tokens_shown=measured.tokens, tokens_total=measured.tokens)
        return Bounded(text, info, file_type or detect(text))
    source = Source(text, handle=handle, by=by)
    return show(source, file_type or detect(text), max_tokens, count, limits=limits, measured=measured)


def show(
    source: Source,
    file_type: FileType,
    max_tokens: int,
    count: Count,
    *,
    limits: Limits = NO_LIMITS,
    measured: MeasuredText | None = None,
) -> Bounded:
    """Return a view of a source within a token limit and the limits of its type.

    A source that cannot be read as `file_type` is shown as text, and `info.note` says so.
    """
    known = measure(source.text, max_tokens, count) if measured is None else measured
    processor, remark = _processor_for(source, file_type, limits)
    view = _view(processor, source, known, max_tokens, count)
    content = view.text if view.cut else source.text
    total = known.tokens if source.gap is None else round(source.total / known.ratio)
    info = replace(
        view.info,
        tokens_total=total,
        tokens_exact=known.exact and source.gap is None,
        tokens_shown=view.info.tokens_shown if view.cut else known.tokens,
        handle=source.handle,
        note=remark,
    )
    return Bounded(content, info, file_type)


def _view(processor: Processor, source: Source, known: MeasuredText, max_tokens: int, count: Count) -> View:
    """Return the view within the processor's own limits if that fits, else within the tokens as well."""
    if not known.over and source.gap is None:
        view = processor.view(_AMPLE * len(source.text) + 1000)
        tokens = count(view.text) if view.cut else known.tokens
        if tokens <= max_tokens:
            return replace(view, info=replace(view.info, truncated=view.cut, tokens_shown=tokens))
    return fit(processor, max_tokens, count, known.ratio)


def _processor_for(source: Source, file_type: FileType, limits: Limits) -> tuple[Processor, str]:
    """Return the processor that can read a source, or the text processor and the reason."""
    try:
        return _processor(file_type)(source, limits), ""
    except ImportError as error:
        return _processor(FileType.TEXT)(source, limits), f"shown as text: {error}"
    except ValueError as error:
        reason = str(error).splitlines()[0][:160] if str(error) else "unreadable"
        return _processor(FileType.TEXT)(source, limits), f"invalid {file_type.value}, shown as text: {reason}"


def _processor(file_type: FileType) -> Callable[[Source, Limits], Processor]:
    module, name = _PROCESSORS.get(file_type, ("text", "TextProcessor"))
    found: Callable[[Source, Limits], Processor] = getattr(import_module(f"ctxguard.content.processors.{module}"), name)
    return found
