"""Rank texts by what they share with a query: BM25 by SQLite's full-text search, which every Python carries.

`bm25()` of FTS5 uses k1 = 1.2 and b = 0.75 (https://www.sqlite.org/fts5.html#the_bm25_function); by its Porter stemmer
English words match in any form. An index grows with its history, so that a call costs what is new and one look-up.
"""

from __future__ import annotations

import re
import sqlite3
import weakref
from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import accumulate
from threading import Lock
from typing import Final, TypeAlias

from ctxguard.errors import ConfigError

__all__ = ["Document", "LexicalIndex", "words"]

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
"""Terms of a query that are looked up, the rarest; a pasted log would otherwise ask for half of the index."""
_MOST_FOUND: Final = 2_000
"""Documents that the terms of a query may stand in, added up, where there are more of them than that."""


def words(text: str) -> list[str]:
    """Return the words of a text in any script, folded for comparison."""
    folded = text.casefold()
    if folded.isascii():
        return folded.translate(_BETWEEN).split()
    return _RUN.findall(_ALONE.sub(r" \g<0> ", folded))


class LexicalIndex:
    """Score documents against a query. Safe to share between threads and sessions; a copy or pickle starts empty.

    The documents of one history are indexed once and added to as it grows; scores depend on documents and query alone.

    Args:
        sessions: histories that are remembered at most; the one not asked for longest goes first.
    """

    def __init__(self, *, sessions: int = 16) -> None:
        if sessions < 1:
            raise ConfigError(f"sessions must be 1 or more, not {sessions}", setting="sessions")
        self.sessions = sessions
        self._tables: OrderedDict[int, _Table] = OrderedDict()
        self._lock = Lock()

    def __reduce__(self) -> tuple[partial[LexicalIndex], tuple[()]]:
        return partial(LexicalIndex, sessions=self.sessions), ()

    def scores(self, documents: Sequence[Document], query: str) -> list[float]:
        """Return one score a document, 0.0 where they share no word; higher is better."""
        found = self.matches(documents, query)
        return [found.get(number, 0.0) for number in range(len(documents))]

    def matches(self, documents: Sequence[Document], query: str) -> dict[int, float]:
        """Return the scores of the documents that share a word with the query, by their number, in no order."""
        terms = list(dict.fromkeys(words(query)))
        if not terms or not documents:
            return {}
        with self._lock:
            return self._table(documents).scores(terms)

    def _table(self, documents: Sequence[Document]) -> _Table:
        """Return the table of these documents: the longest one that they extend, else a new one."""
        known = [t for t in self._tables.values() if len(t.documents) <= len(documents)]
        for table in sorted(known, key=lambda t: len(t.documents), reverse=True):
            if table.documents and table.documents == list(documents[: len(table.documents)]):
                break
        else:
            table = _Table()
            self._tables[id(table)] = table
        self._tables.move_to_end(id(table))
        while len(self._tables) > self.sessions:
            self._tables.popitem(last=False)
        table.extend(documents[len(table.documents) :])
        return table


class _Table:
    """Hold the index of one history."""

    def __init__(self) -> None:
        self.documents: list[Document] = []
        self._connection = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
        weakref.finalize(self, self._connection.close)
        try:
            self._connection.execute("CREATE VIRTUAL TABLE texts USING fts5(words, content='', tokenize='porter')")
        except sqlite3.OperationalError as error:
            raise ConfigError(f"this Python's SQLite has no full-text search ({error}); use another build") from error
        self._frequency: Counter[str] = Counter()

    def extend(self, documents: Iterable[Document]) -> None:
        begin = len(self.documents)
        self.documents.extend(documents)
        new = self.documents[begin:]
        if not new:
            return
        rows = [(begin + n, [w for text in d for w in words(text)]) for n, d in enumerate(new)]
        for _, found in rows:
            self._frequency.update(set(found))
        self._connection.execute("BEGIN")
        self._connection.executemany(
            "INSERT INTO texts(rowid, words) VALUES (?, ?)", ((n, " ".join(found)) for n, found in rows)
        )
        self._connection.execute("COMMIT")

    def scores(self, terms: Sequence[str]) -> dict[int, float]:
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
        known = sorted((self._frequency[term], term) for term in terms if term in self._frequency)[:_MOST_TERMS]
        sums = accumulate(documents for documents, _ in known)
        return [
            term
            for number, ((_, term), total) in enumerate(zip(known, sums, strict=True))
            if not number or total <= _MOST_FOUND
        ]
