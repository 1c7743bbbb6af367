"""Rank the candidates for recall: by words, by meaning, and by both together.

Everything here is a pure function of scores; higher is better, and a document that is not in a mapping scores 0.
Measured on recorded conversations with questions about them (`benchmarks/memory.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

FUSION: Final = 20
"""The constant of reciprocal rank fusion: the lower, the more the first places count (Cormack et al., 2009, use 60)."""
REACH: Final = 3
"""Documents before and after one that share its score. With 1, evidence in several documents in a row is missed."""
SIZE: Final = 0.3
"""How much a document's size counts against it: small documents leave tokens for others."""


def with_neighbors(scores: Mapping[int, float], weight: float) -> dict[int, float]:
    """Return the scores, each with a share of its neighbors': the answer to a question is often near a match.

    Args:
        scores: Scores by the number of the document; documents are numbered in the order of the conversation.
        weight: Share of the scores of the documents right before and after; half of it at a distance of two, a quarter
            at three.
    """
    summed = dict(scores)
    for step in range(1, REACH + 1):
        for number, score in scores.items():
            for near in (number - step, number + step):
                if near >= 0:
                    summed[near] = summed.get(near, 0.0) + weight * score
        weight /= 2
    return summed


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


def per_token(scores: Mapping[int, float], tokens: Mapping[int, int], power: float = SIZE) -> dict[int, float]:
    """Return the scores divided by a power of the tokens: 0 ignores sizes, 1 gives the score per token."""
    return {number: score / max(tokens[number], 1) ** power for number, score in scores.items()}
