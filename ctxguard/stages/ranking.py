"""Combine and adjust the scores of exchanges that may be recalled. In this module, a document is an exchange.

Scores are mappings from the number of a document to its score. Higher scores are better, and a missing document has
the score 0. The constants were measured on recorded conversations with questions about them (`benchmarks/memory.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

FUSION: Final = 20
"""The constant k of reciprocal rank fusion. A lower k gives the first ranks more weight (Cormack et al., 2009: 60)."""
REACH: Final = 3
"""Number of documents before and after a document to which a part of its score is added. With 1, an answer that is
spread over several documents in a row is missed."""
SIZE: Final = 0.3
"""The score of a document is divided by its number of tokens to this power, because small documents leave tokens for
others."""


def with_neighbors(scores: Mapping[int, float], weight: float) -> dict[int, float]:
    """Return the scores of documents, each with a part of the scores of neighboring documents added.

    The answer to a question is often near the document that matches the question.

    Args:
        scores: The scores; documents are numbered in the order of the conversation.
        weight: The part of the score of the documents directly before and after that is added. At a distance of two,
            half of this part is added, and at a distance of three a quarter.
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
    """Combine several rankings by reciprocal rank fusion: a document scores the sum of `1 / (k + rank)` over all.

    Only the order of the documents within a ranking counts, so scores of different kinds do not need to be comparable.
    Of documents with equal scores, the newest ranks first. Documents with a score of 0 or less are not ranked.
    """
    fused: dict[int, float] = {}
    for scores in rankings:
        ranked = sorted((n for n, score in scores.items() if score > 0), key=lambda n: (-scores[n], -n))
        for rank, number in enumerate(ranked, 1):
            fused[number] = fused.get(number, 0.0) + 1 / (k + rank)
    return fused


def per_token(scores: Mapping[int, float], tokens: Mapping[int, int], power: float = SIZE) -> dict[int, float]:
    """Return the scores divided by a power of the number of tokens in each document.

    Args:
        scores: The scores.
        tokens: Number of tokens in each document.
        power: 0 ignores the sizes; 1 returns the score per token.
    """
    return {number: score / max(tokens[number], 1) ** power for number, score in scores.items()}
