"""Mask texts that a model reads one after the other: a value may be split over several parts of one message."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, pairwise, product
from typing import Final, NamedTuple

from ctxguard.pii.detect.matcher import WINDOW
from ctxguard.pii.spans import Span

_REACH: Final = 256
"""Characters at each end of a text that are searched for the rest of a value: no e-mail address is longer."""
_BETWEEN: Final = "\n" * WINDOW
_SEPARATORS: Final = ("", " ")
"""What may have been between the two parts of a value."""
_MARK: Final = 0xE000
"""The first of the characters that Unicode leaves to private use, one of which marks the shares of a value."""


class _Piece(NamedTuple):
    """One end of a text: the number of the text, the offset in it, and the characters."""

    number: int
    start: int
    text: str


def mask_together(
    texts: Sequence[str],
    find: Callable[[str], Sequence[Span]],
    mask: Callable[[str], str],
    hidden: Callable[[str, str], str],
) -> list[str]:
    """Mask texts; each part of a split value is replaced by the replacement of the whole value.

    Args:
        texts: The texts in the order in which the model reads them.
        find: Returns the findings in a text.
        mask: Masks one text.
        hidden: Returns what replaces a value, given its label and the value.
    """
    cut: dict[str, tuple[str, str]] = {}
    marked = list(texts)
    # all texts together, for values in many pieces, and each pair: the end of a third text may hide the first piece
    groups = [*([tuple(range(len(texts)))] if len(texts) > 2 else []), *pairwise(range(len(texts)))]
    for numbers, separator in product(groups, _SEPARATORS):
        for span, value, shares in list(_cut_values([(n, marked[n]) for n in numbers], separator, find)):
            mark = next(char for char in map(chr, range(_MARK, 0x10FFFF)) if char not in "".join(marked))
            cut[mark] = span.label, value
            for number, start, share in shares:
                marked[number] = marked[number][:start] + mark + marked[number][start + len(share) :]
    masked = list(map(mask, marked))
    for mark, (label, value) in cut.items():
        replacement = hidden(label, value)
        masked = [text.replace(mark, replacement) for text in masked]
    return masked


def _cut_values(
    texts: Sequence[tuple[int, str]], separator: str, find: Callable[[str], Sequence[Span]]
) -> Iterator[tuple[Span, str, list[_Piece]]]:
    """Yield the split values, the last first, each with the places of its parts."""
    pieces = list(_pieces(texts))
    joints = [separator if was.number != now.number else _BETWEEN for was, now in pairwise(pieces)]
    starts = list(accumulate((len(p.text) + len(j) for p, j in zip(pieces, joints, strict=False)), initial=0))
    joined = "".join(text for piece, joint in zip(pieces, [*joints, ""], strict=True) for text in (piece.text, joint))
    for span in reversed(find(joined)):
        shares = []
        for piece, at in zip(pieces, starts, strict=True):
            start, end = max(span.start - at, 0), min(span.end - at, len(piece.text))
            if start < end:
                shares.append(_Piece(piece.number, piece.start + start, piece.text[start:end]))
        # a value that is found in one text alone does not continue in the next: `jane@mail.org` and `Then …`
        held = dict(texts)
        if len(shares) > 1 and not any(_is_found(find(held[share.number]), share) for share in shares):
            yield span, joined[span.start : span.end], shares


def _pieces(texts: Sequence[tuple[int, str]]) -> Iterator[_Piece]:
    for number, text in texts:
        if len(text) <= 2 * _REACH:
            yield _Piece(number, 0, text)
        else:
            yield _Piece(number, 0, text[:_REACH])
            yield _Piece(number, len(text) - _REACH, text[-_REACH:])


def _is_found(spans: Sequence[Span], share: _Piece) -> bool:
    return any(span.start < share.start + len(share.text) and share.start < span.end for span in spans)
