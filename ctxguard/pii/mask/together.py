"""Mask texts that a model reads one after the other: a value may be split over several parts of one message."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, pairwise, product
from typing import Final, NamedTuple

from ctxguard.pii.detect.matcher import WINDOW
from ctxguard.pii.spans import Span

_REACH: Final = 256
"""Number of characters at each end of a text that are searched for a part of a value: e-mail addresses are shorter."""
_BETWEEN: Final = "\n" * WINDOW
_SEPARATORS: Final = ("", " ")
"""The separators with which the parts of a value are joined before searching."""
_MARK: Final = 0xE000
"""The first private-use character of Unicode. The parts of each split value are temporarily replaced by such a mark."""


class _Piece(NamedTuple):
    """A part of a text: its beginning, its end, or all of it.

    Attributes:
        number: Index of the text.
        start: Offset of the part in the text.
        text: The characters of the part.
    """

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
        hidden: Takes a label and a value, and returns the replacement for the value.
    """
    cut: dict[str, tuple[str, str]] = {}
    marked = list(texts)
    # Search all texts together, for values in more than two parts, and then each pair of neighbors, because a third
    # text can prevent a match.
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
    """Yield the values that are split over several texts, last value first.

    Args:
        texts: Pairs of a text's index and the text.
        separator: The string to put between the texts, which are then searched as one.
        find: Returns the findings in a text.

    Yields:
        The finding, the value, and the parts of the texts that contain it.
    """
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
        # a value that is found in one text alone does not continue in the next text: `jane@mail.org` and `Then …`
        held = dict(texts)
        if len(shares) > 1 and not any(_overlaps_any(find(held[share.number]), share) for share in shares):
            yield span, joined[span.start : span.end], shares


def _pieces(texts: Sequence[tuple[int, str]]) -> Iterator[_Piece]:
    for number, text in texts:
        if len(text) <= 2 * _REACH:
            yield _Piece(number, 0, text)
        else:
            yield _Piece(number, 0, text[:_REACH])
            yield _Piece(number, len(text) - _REACH, text[-_REACH:])


def _overlaps_any(spans: Sequence[Span], share: _Piece) -> bool:
    return any(span.start < share.start + len(share.text) and share.start < span.end for span in spans)
