"""Fit a view into a token limit, with as few counts of long texts as possible."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from ctxguard.content.views import Count, Processor, View

_STEPS = 7  # attempts to fit a view; three usually suffice
_FULL_ENOUGH = 0.93  # share of the limit from which on no fuller view is searched


@dataclass(frozen=True, slots=True)
class MeasuredText:
    """The known facts about a text's tokens.

    Attributes:
        tokens: tokens of the text, or an extrapolation from its start.
        exact: whether the whole text was counted.
        over: whether the text has more tokens than the limit.
        ratio: characters a token.
    """

    tokens: int
    ratio: float
    exact: bool = field(kw_only=True)
    over: bool = field(kw_only=True)


def measure(text: str, max_tokens: int | None, count: Count) -> MeasuredText:
    """Compare a text with a limit; a text far above it is counted only in part.

    The start of a text never has noticeably more tokens than the whole (cutting splits one token), so if the start is
    well over the limit, so is the whole. The starts grow fourfold, so less than twice the text is counted in total.
    """
    length = 0 if max_tokens is None else max(2048, 12 * max_tokens)
    while max_tokens is not None and length < len(text) // 2:
        tokens = count(text[:length])
        if tokens > max_tokens * 1.25 + 32:
            return MeasuredText(round(tokens * len(text) / length), length / tokens, exact=False, over=True)
        length *= 4
    tokens = count(text)
    over = max_tokens is not None and tokens > max_tokens
    return MeasuredText(tokens, len(text) / max(1, tokens), exact=True, over=over)


def fit(processor: Processor, max_tokens: int, count: Count, ratio: float) -> View:
    """Return the fullest view found that has at most `max_tokens` tokens.

    Views of one processor cost about the same per character, so proportional guesses from `ratio` characters a token
    converge in two or three steps; if they do not, the interval is halved. If no view fits, the processor's fallbacks
    are tried, and finally the empty text.
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
                best = _counted(view, tokens)
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
    return _counted(replace(smallest, text=text, cut=True), count(text))


def _counted(view: View, tokens: int) -> View:
    return replace(view, info=replace(view.info, truncated=view.cut, tokens_shown=tokens))
