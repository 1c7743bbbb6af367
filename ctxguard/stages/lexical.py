"""Rank texts by the words that they share with a query (BM25), in any script."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import chain, pairwise
from math import log
from typing import Final, TypeAlias

Document: TypeAlias = tuple[str, ...]
"""The texts of one item that is ranked as a whole."""

_SPACELESS: Final = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\U00020000-\U0003ffff"
)
"""The scripts that write no spaces between words: Thai, Lao, Burmese, Khmer, Japanese, Chinese."""
_MARKS: Final = "\u0300-\u036f\u0591-\u05c7\u0610-\u061a\u064b-\u0670\u0900-\u0963\u0970-\u0dff"
"""Accents, points and vowel signs, which occur inside words but are not letters: Latin, Hebrew, Arabic, Indic."""
_RUN: Final = re.compile(rf"([{_SPACELESS}]+)|(?:(?![{_SPACELESS}])[^\W_]|[{_MARKS}])+")
_BETWEEN: Final = {code: " " for code in range(128) if not chr(code).isalnum()}
"""The separators between words, in ASCII."""
_MOST_TERMS: Final = 64
"""Terms of a query that are looked up, the rarest; a pasted log would otherwise match half of the index."""
_MOST_FOUND: Final = 2_000
"""Most documents that are scored for a query, those with its rarest terms: the limit of the work of a turn."""
_LEAST: Final = 0.01
"""Weight of a word that half of the documents contain: it decides only where no other word does."""
PASSAGE: Final = 400
"""Characters of a passage of a long text, about."""
_ENDINGS: Final = re.compile(r"(?<=[a-z]{3})(?:ies|ing|ed|es|s|y|e)$")


def words(text: str) -> list[str]:
    """Return the words of a text in any script, normalized for comparison.

    Scripts without spaces between words are split into characters and overlapping pairs, as search engines do: a pair
    is about as rare as a word, and some words are a single character.
    """
    folded = text.casefold()
    if folded.isascii():
        return folded.translate(_BETWEEN).split()
    found: list[str] = []
    for run in _RUN.finditer(folded):
        word = run[0]
        found += (word,) if run[1] is None else (*word, *map("".join, pairwise(word)))
    return found


class LexicalIndex:
    """Score documents against a query by BM25, times 1 - r² if a share r of a document are words of the query.

    So an earlier copy of a question does not rank above its answer. Documents are added one at a time, numbered from 0.

    k1 = 1.2 and b = 0.75, the usual values (https://en.wikipedia.org/wiki/Okapi_BM25); English endings are removed, so
    that most forms of a word match. A word in half of the documents or more hardly counts: every question has it.
    """

    def __init__(self) -> None:
        self.documents: list[Document] = []
        self._found: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
        self._sizes: list[int] = []
        self._total = 0

    def add(self, document: Document) -> None:
        """Add one document."""
        self.documents.append(document)

    def rewind(self, count: int) -> None:
        """Forget all but the first `count` documents."""
        for number in range(count, len(self._sizes)):
            for term in set(chain.from_iterable(map(_terms, self.documents[number]))):
                found = self._found[term]
                del found[bisect_left(found, (count,)) :]
                if not found:
                    del self._found[term]
        self._total -= sum(self._sizes[count:])
        del self.documents[count:], self._sizes[count:]

    def matches(self, query: str) -> dict[int, float]:
        """Return the scores of the documents that share a word with the query, by their number; higher is better."""
        self._read()
        found = {term: self._found[term] for term in set(_terms(query)) if term in self._found}
        sizes, looked_at = self._sizes, 0
        # Every turn of a conversation passes here thousands of times: lists take half the time of dictionaries.
        scores, repeated = [0.0] * len(sizes), [0] * len(sizes)
        per_word = 1.2 * 0.75 * max(1, len(sizes)) / max(1, self._total)  # k1 · b, by the mean size
        for term in sorted(found, key=lambda term: (len(found[term]), term))[:_MOST_TERMS]:
            # Frequent words match nearly every document: expensive, and of little information.
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
        """Return what a document with nothing but the words of a query would score, once it is long."""
        return 2.2 * sum(map(self._rarity, set(_terms(query))))

    def _rarity(self, term: str) -> float:
        found = len(self._found.get(term, ()))
        return max(_LEAST, log((len(self._sizes) - found + 0.5) / (found + 0.5)))

    def _read(self) -> None:
        """Index the words of the documents that were added since the last query."""
        for number in range(len(self._sizes), len(self.documents)):
            terms = Counter(chain.from_iterable(map(_terms, self.documents[number])))
            for term, times in terms.items():
                self._found[term].append((number, times))
            self._sizes.append(terms.total())
            self._total += self._sizes[-1]


def _terms(text: str) -> Iterator[str]:
    return map(_stem, words(text))


@lru_cache(1 << 16)
def _stem(word: str) -> str:
    return _ENDINGS.sub("", word)


def passages_of(text: str, size: int) -> list[str]:
    """Return a text in passages of whole lines, of at most about `size` characters; longer lines are divided."""
    passages = [""]
    for line in text.splitlines():
        for begin in range(0, max(len(line), 1), size):
            part = line[begin : begin + size]
            if passages[-1] and len(passages[-1]) + len(part) > size:
                passages.append("")
            passages[-1] += f"\n{part}" if passages[-1] else part
    return passages


def passages_for(texts: Sequence[str], query: str, *, most: int = 5) -> list[tuple[int, str]]:
    """Return the passages of some texts that match a query best, the best first, each with the number of its text."""
    placed = [(number, passage) for number, text in enumerate(texts) for passage in passages_of(text, PASSAGE)]
    index = LexicalIndex()
    for _, passage in placed:
        index.add((passage,))
    found = index.matches(query)
    return [placed[place] for place in sorted(found, key=lambda place: (-found[place], -place))[:most]]
