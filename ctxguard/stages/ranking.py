"""Rank what could be recalled: by words, by meanings, and by what both say together.

Everything here is a pure function of scores; higher is better, and a document that is not in a mapping scores 0.
Measured on recorded conversations with questions about them (`benchmarks/memory.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

__all__ = ["by_ranks", "per_token", "with_neighbours"]

FUSION: Final = 20
"""The constant of reciprocal rank fusion: the lower, the more the first places count (Cormack et al., 2009, use 60)."""
SIZE: Final = 0.3
"""How much a document's size counts against it: what is small leaves room for more."""


def with_neighbours(scores: Mapping[int, float], weight: float) -> dict[int, float]:
    """Return the scores, each with a share (`weight`) of those of the documents before and after it."""
    near = {number + step for number in scores for step in (-1, 0, 1)}
    return {n: scores.get(n, 0.0) + weight * (scores.get(n - 1, 0.0) + scores.get(n + 1, 0.0)) for n in near if n >= 0}


def by_ranks(*rankings: Mapping[int, float], k: int = FUSION) -> dict[int, float]:
    """Return one score from several by reciprocal rank fusion: the sum of `1 / (k + rank)` over the rankings.

    Only the order within a ranking counts, so scores of different kinds need not be comparable. Equal scores rank the
    newest document first; documents with a score of 0 or less are not ranked.
    """
    fused: dict[int, float] = {}
    for scores in rankings:
        ranked = sorted((n for n, score in scores.items() if score > 0), key=lambda n: (-scores[n], -n))
        for rank, number in enumerate(ranked, 1):
            fused[number] = fused.get(number, 0.0) + 1 / (k + rank)
    return fused


def per_token(scores: Mapping[int, float], tokens: Sequence[int], power: float = SIZE) -> dict[int, float]:
    """Return the scores divided by a power of the tokens: 0 ignores sizes, 1 gives the score of each token."""
    return {number: score / max(tokens[number], 1) ** power for number, score in scores.items()}
