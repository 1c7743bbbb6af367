"""Shorten a text to a hard token limit in the way that suits its type, counting long texts as rarely as possible."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pkgutil import resolve_name
from typing import Final

from ctxguard.views.detection import detect
from ctxguard.views.views import (
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

_STEPS = 7  # attempts to fit a view; three usually suffice
_FULL_ENOUGH = 0.93  # a view that uses this share of the limit is accepted without trying a fuller one


@dataclass(frozen=True, slots=True)
class MeasuredText:
    """How many tokens a text has.

    Attributes:
        tokens: Number of tokens in the text. If `exact` is False, it is extrapolated from the start of the text.
        ratio: Average number of characters per token.
        exact: Whether the whole text was counted.
    """

    tokens: int
    ratio: float
    exact: bool


def measure(text: str, max_tokens: int, count: Count) -> MeasuredText:
    """Count the tokens in a text. If the text is far above the limit, only its start is counted, to save time.

    A start of the text is counted first. The start never has noticeably more tokens than the whole, so if the start is
    well over the limit, the text is as well. Otherwise, a start of four times the length is counted, and so on. In
    total, less than twice the length of the text is counted.
    """
    length = max(2048, 12 * max_tokens)
    while length < len(text) // 2:
        tokens = count(text[:length])
        if tokens > max_tokens * 1.25 + 32:
            return MeasuredText(round(tokens * len(text) / length), length / tokens, exact=False)
        length *= 4
    tokens = count(text)
    return MeasuredText(tokens, len(text) / max(1, tokens), exact=True)


def fit(processor: Processor, max_tokens: int, count: Count, ratio: float) -> View:
    """Return the longest view that was found with at most `max_tokens` tokens.

    A view of a length in characters is made and its tokens are counted, and the next length is guessed in proportion.
    The first guess assumes `ratio` characters per token. Views of one processor have about the same number of
    characters per token, so two or three guesses are usually enough. If no view fits, the processor's fallbacks are
    tried, and finally the empty text.
    """
    best, low, high = None, 0, None
    available = int(max_tokens * ratio)
    for step in range(_STEPS):
        view = processor.view(available)
        tokens = count(view.text)
        if tokens <= max_tokens:
            if best is not None and view.text == best.text:
                break
            if best is None or len(view.text) > len(best.text):
                best = _with_tokens(view, tokens)
            if not view.cut or tokens >= max_tokens * _FULL_ENOUGH or step >= _STEPS // 2 + 1:
                break
            low = available
        else:
            high = available
        available = _next(available, low, high, max_tokens / max(1, tokens))
        if available == low or (high is not None and high - low < 8):
            break
    return best or _smallest(processor, max_tokens, count)


def _next(available: int, low: int, high: int | None, share: float) -> int:
    guess = int(available * share * (0.98 if share < 1 else 0.99))
    if high is None:
        return max(available + 16, guess)
    return guess if low < guess < high else (low + high) // 2


def _smallest(processor: Processor, max_tokens: int, count: Count) -> View:
    smallest = processor.view(0)
    texts = (smallest.text, *processor.fallbacks())
    text = next((text for text in texts if count(text) <= max_tokens), "")
    return _with_tokens(replace(smallest, text=text, cut=True), count(text))


def _with_tokens(view: View, tokens: int) -> View:
    return replace(view, info=replace(view.info, truncated=view.cut, tokens_shown=tokens))


_AMPLE: Final = 4
"""Maximum length of a view without a token limit, as a multiple of the text's length. A view may be longer than the
text because aliases in YAML are expanded."""
_PROCESSORS: Final = {
    FileType.CODE: "text:CodeProcessor",
    FileType.CONSOLE: "log:LogProcessor",
    FileType.CSV: "table:read_table",
    FileType.HTML: "html_text:HtmlProcessor",
    FileType.JSON: "tree:JsonProcessor",
    FileType.JSONL: "tree:JsonLinesProcessor",
    FileType.LOG: "log:LogProcessor",
    FileType.SNAPSHOT: "html_text:SnapshotProcessor",
    FileType.XML: "tree:XmlProcessor",
    FileType.YAML: "tree:YamlProcessor",
}
"""The processor of each type. It is imported when it is first needed. Other types are shown as text."""


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

    The limit is hard: if not even the shortest marker (a note on what is shown) fits, the content is empty. The same
    text and settings always give the same view, and bounding a view again changes nothing.

    Args:
        text: The text to show.
        max_tokens: Maximum number of tokens in the view, at least 1.
        count: Function that returns the number of tokens in a string.
        file_type: Type of the text; None means that it is detected.
        handle: Name under which the whole text can be recalled; the marker names it.
        limits: Further limits on the parts of the view. They do not apply to a text that is within `max_tokens`.
        by: Name of the program that shortens the text, for the marker; empty if the reader of the view asked for it.
    """
    measured = measure(text, max_tokens, count)
    if measured.tokens <= max_tokens:
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
    """Return a view of a source within a token limit and within `limits`.

    A source that cannot be read as `file_type` is shown as text, and `info.note` says why. `measured` is the result of
    `measure` for the source's text; None means that it is measured here.
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
    """Return a view shortened only by the processor's `Limits` if it fits; otherwise a view that fits `max_tokens`."""
    if known.tokens <= max_tokens and source.gap is None:
        view = processor.view(_AMPLE * len(source.text) + 1000)
        tokens = count(view.text) if view.cut else known.tokens
        if tokens <= max_tokens:
            return _with_tokens(view, tokens)
    return fit(processor, max_tokens, count, known.ratio)


def _processor_for(source: Source, file_type: FileType, limits: Limits) -> tuple[Processor, str]:
    """Return the processor for a type and an empty string; if it cannot be used, the text processor and the reason."""
    try:
        return _processor(file_type)(source, limits), ""
    except ImportError as error:
        return _processor(FileType.TEXT)(source, limits), f"shown as text: {error}"
    except ValueError as error:
        reason = str(error).splitlines()[0][:160] if str(error) else "unreadable"
        return _processor(FileType.TEXT)(source, limits), f"invalid {file_type.value}, shown as text: {reason}"


def _processor(file_type: FileType) -> Callable[[Source, Limits], Processor]:
    name = _PROCESSORS.get(file_type, "text:TextProcessor")
    processor: Callable[[Source, Limits], Processor] = resolve_name(f"ctxguard.views.processors.{name}")
    return processor
