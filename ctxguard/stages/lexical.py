"""Rank texts by what they share with a query: BM25 by SQLite's full-text search, which every Python carries.

`bm25()` of FTS5 uses k1 = 1.2 and b = 0.75 (https://www.sqlite.org/fts5.html#the_bm25_function); by its Porter stemmer
English words match in any form. An index grows with its history, so that a call costs what is new and one look-up.
"""

from __future__ import annotations

import re
import sqlite3
import weakref
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate
from typing import Final, TypeAlias

from ctxguard.errors import ConfigError

Document: TypeAlias = tuple[str, ...]
"""The texts of one item that is ranked as a whole."""

_ALONE: Final = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\U00020000-\U0003ffff]"
)
"""A character of a script that writes no spaces: a word of its own."""
_RUN: Final = re.compile(r"[^\W_]+")
_BETWEEN: Final = {code: " " for code in range(128) if not chr(code).isalnum()}
"""What stands between words, in ASCII."""
_MOST_TERMS: Final = 64
"""Terms of a query that are looked up, the rarest; a pasted log would otherwise match half of the index."""
_MOST_FOUND: Final = 2_000
"""Most documents that the terms of a query may match in all, in an index that holds more."""


def words(text: str) -> list[str]:
    """Return the words of a text in any script, folded for comparison."""
    folded = text.casefold()
    if folded.isascii():
        return folded.translate(_BETWEEN).split()
    return _RUN.findall(_ALONE.sub(r" \g<0> ", folded))


class LexicalIndex:
    """Score documents against a query. It grows by one document at a time, each numbered from 0 on.

    Raises:
        ConfigError: this Python's SQLite has no full-text search.
    """

    def __init__(self) -> None:
        self.documents: list[Document] = []
        # a session may be used by one thread after another, which SQLite refuses by default
        self._connection = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
        weakref.finalize(self, self._connection.close)
        try:
            self._connection.execute("CREATE VIRTUAL TABLE texts USING fts5(words, content='', tokenize='porter')")
        except sqlite3.OperationalError as error:
            raise ConfigError(f"this Python's SQLite has no full-text search ({error}); use another build") from error
        self._frequency: Counter[str] = Counter()
        self._written = 0

    def add(self, document: Document) -> None:
        """Take in one more document."""
        self.documents.append(document)

    def matches(self, query: str) -> dict[int, float]:
        """Return the scores of the documents that share a word with the query, by their number; higher is better."""
        terms = list(dict.fromkeys(words(query)))
        if not terms or not self.documents:
            return {}
        self._write()
        return self._scores(terms)

    def _write(self) -> None:
        """Put the documents into the table that came since the last query, all at once."""
        rows = [(n, [w for text in self.documents[n] for w in words(text)]) for n in self._new()]
        if not rows:
            return
        for _, found in rows:
            self._frequency.update(set(found))
        # one transaction for all: one for each document would cost more than the search
        self._connection.execute("BEGIN")
        self._connection.executemany(
            "INSERT INTO texts(rowid, words) VALUES (?, ?)", ((n, " ".join(found)) for n, found in rows)
        )
        self._connection.execute("COMMIT")
        self._written = len(self.documents)

    def _new(self) -> range:
        return range(self._written, len(self.documents))

    def _scores(self, terms: Sequence[str]) -> dict[int, float]:
        wanted = self._rarest(terms)
        if not wanted:
            return {}
        query = " OR ".join(f'"{term}"' for term in wanted)
        found = self._connection.execute("SELECT rowid, bm25(texts) FROM texts WHERE texts MATCH ?", (query,))
        return {row: -score for row, score in found}

    def _rarest(self, terms: Sequence[str]) -> list[str]:
        """Return the rarest terms that are known, as many as may be looked up; the very rarest always."""
        if len(terms) <= _MOST_TERMS and len(self.documents) <= _MOST_FOUND:
            return list(terms)
        # frequent words match nearly every document, which costs much and tells little
        known = sorted((self._frequency[term], term) for term in terms if term in self._frequency)[:_MOST_TERMS]
        sums = accumulate(documents for documents, _ in known)
        return [
            term
            for number, ((_, term), total) in enumerate(zip(known, sums, strict=True))
            if not number or total <= _MOST_FOUND
        ]
