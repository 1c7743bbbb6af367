"""Rank documents in any script by the words that they share with a query (BM25)."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain, pairwise
from math import log
from typing import Final, TypeAlias

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


Document: TypeAlias = tuple[str, ...]
"""The strings that belong to one document, such as the messages of an exchange."""

_SPACELESS: Final = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\U00020000-\U0003ffff"
)
"""Scripts without spaces between words: Thai, Lao, Burmese, Khmer, Japanese, and Chinese."""
_MARKS: Final = "\u0300-\u036f\u0591-\u05c7\u0610-\u061a\u064b-\u0670\u0900-\u0963\u0970-\u0dff"
"""Accents, points, and vowel signs of Latin, Hebrew, Arabic, and Indic scripts. They occur inside words but are not
letters."""
_RUN: Final = re.compile(rf"([{_SPACELESS}]+)|(?:(?![{_SPACELESS}])[^\W_]|[{_MARKS}])+")
_BETWEEN: Final = bytes(code if code > 127 or chr(code).isalnum() else 32 for code in range(256))
"""A translation table that replaces all ASCII characters except letters and digits with spaces."""
_TYPOGRAPHY: Final = re.compile("[’‘“”„«»–—…•·→×°€£]")
"""Signs that make an otherwise plain text lose its fast path."""
_MOST_TERMS: Final = 64
"""Number of a query's rarest terms that are looked up. With all terms, a pasted log would match half of the index."""
_MOST_FOUND: Final = 2_000
"""Approximate number of term occurrences that are scored for a query. It limits the time for a turn."""
_LEAST: Final = 0.01
"""Weight of a word that half of the documents or more contain. The weight is so low that such a word only decides
between equal scores."""
PASSAGE: Final = 400
"""Approximate number of characters in a passage of a long text."""
_ENDINGS: Final = re.compile(r"(?<=[a-z]{3})(?:ies|ing|ed|es|s|y|e)$")


def words(text: str) -> list[str]:
    """Return the words of a text in any script, normalized for comparison.

    Text in scripts without spaces between words is split into characters and overlapping pairs of characters, as search
    engines do: some words are a single character, and a pair is about as rare as a word of other scripts.
    """
    folded = text.casefold()
    if folded.isascii() or (folded := _TYPOGRAPHY.sub(" ", folded)).isascii():
        return folded.encode().translate(_BETWEEN).decode().split()
    found: list[str] = []
    for run in _RUN.finditer(folded):
        word = run[0]
        found += (word,) if run[1] is None else (*word, *map("".join, pairwise(word)))
    return found


class LexicalIndex:
    """Scores documents against a query by BM25. Documents are numbered from 0 in the order in which they are added.

    The BM25 score is multiplied by 1 - r², where r is the share of a document's words that occur in the query. So an
    earlier copy of a question does not rank above the answer.

    The constants have the usual values, k1 = 1.2 and b = 0.75 (https://en.wikipedia.org/wiki/Okapi_BM25). English
    endings are removed, so that most forms of a word match. Words that half of the documents or more contain have
    almost no weight.
    """

    def __init__(self) -> None:
        self.documents: list[Document] = []
        self._postings: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
        self._by_word: dict[str, list[tuple[int, int]]] = {}
        self._sizes: list[int] = []
        self._total = 0

    def add(self, document: Document) -> None:
        """Add one document. Its words are indexed at the next query."""
        self.documents.append(document)

    def shorten(self, count: int) -> None:
        """Forget all but the first `count` documents."""
        for number in range(count, len(self._sizes)):
            for term in set(chain.from_iterable(map(_terms, self.documents[number]))):
                found = self._postings[term]
                del found[bisect_left(found, (count,)) :]
                if not found:
                    del self._postings[term]
                    self._by_word.clear()
        self._total -= sum(self._sizes[count:])
        del self.documents[count:], self._sizes[count:]

    def matches(self, query: str) -> dict[int, float]:
        """Return the score of each document that shares a word with the query, by number. Higher scores are better."""
        self._index_new()
        found = {term: self._postings[term] for term in set(_terms(query)) if term in self._postings}
        sizes, looked_at = self._sizes, 0
        # This loop runs thousands of times in each turn; lists take half the time of dictionaries.
        scores, repeated = [0.0] * len(sizes), [0] * len(sizes)
        per_word = 1.2 * 0.75 * max(1, len(sizes)) / max(1, self._total)  # k1 · b, by the mean size
        for term in sorted(found, key=lambda term: (len(found[term]), term))[:_MOST_TERMS]:
            # The remaining words match so many documents that they are expensive and tell little.
            looked_at += len(found[term])
            if looked_at > max(_MOST_FOUND, len(found[term])):
                break
            worth = 2.2 * self._rarity(term)
            for number, times in found[term][-_MOST_FOUND:]:
                scores[number] += worth * times / (times + 0.3 + per_word * sizes[number])
                repeated[number] += times
        matched = ((n, score, repeated[n] / sizes[n]) for n, score in enumerate(scores) if score)
        return {n: score * (1 - share * share) for n, score, share in matched}

    def worth(self, query: str) -> float:
        """Return the highest score that a query can reach: that of a long document which repeats only the query.

        The factor 1 - r² of `matches` is left out. Callers compare the result with the score of the best match.
        """
        return 2.2 * sum(map(self._rarity, set(_terms(query))))

    def _rarity(self, term: str) -> float:
        found = len(self._postings.get(term, ()))
        return max(_LEAST, log((len(self._sizes) - found + 0.5) / (found + 0.5)))

    def _index_new(self) -> None:
        """Index the words of all documents that were added since the last query."""
        for number in range(len(self._sizes), len(self.documents)):
            found = Counter(chain.from_iterable(map(words, self.documents[number])))
            for word, times in found.items():
                postings = self._by_word.get(word)
                if postings is None:
                    postings = self._by_word[word] = self._postings[_stem(word)]
                if postings and postings[-1][0] == number:  # another form of the same word
                    postings[-1] = (number, postings[-1][1] + times)
                else:
                    postings.append((number, times))
            self._sizes.append(found.total())
            self._total += self._sizes[-1]


def _terms(text: str) -> Iterator[str]:
    return map(_stem, words(text))


@lru_cache(1 << 16)
def _stem(word: str) -> str:
    return _ENDINGS.sub("", word) if word[-1] in "sgdye" else word


def passages_of(text: str, size: int) -> list[str]:
    """Split a text into passages of whole lines, each with at most about `size` characters. Longer lines are split."""
    passages = [""]
    for line in text.splitlines():
        for begin in range(0, max(len(line), 1), size):
            part = line[begin : begin + size]
            if passages[-1] and len(passages[-1]) + len(part) > size:
                passages.append("")
            passages[-1] += f"\n{part}" if passages[-1] else part
    return passages


def passages_for(texts: Sequence[str], query: str, *, most: int = 5) -> list[tuple[int, str]]:
    """Return the passages that match a query best, the best first.

    Args:
        texts: The texts, each of which is split into passages.
        query: The query.
        most: Maximum number of passages.

    Returns:
        Pairs of the index of the text and the passage.
    """
    placed = [(number, passage) for number, text in enumerate(texts) for passage in passages_of(text, PASSAGE)]
    index = LexicalIndex()
    for _, passage in placed:
        index.add((passage,))
    found = index.matches(query)
    return [placed[place] for place in sorted(found, key=lambda place: (-found[place], -place))[:most]]
