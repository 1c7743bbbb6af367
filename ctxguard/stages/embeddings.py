"""Compare texts by meaning: static word embeddings, or any embedding the caller brings.

The extra `semantic` installs wordllama (MIT, 16 MB), whose weights are part of its wheel: nothing is downloaded, and no
torch is needed. An embedding is the mean over the tokens of a text, so it takes some microseconds a message.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from math import sqrt
from operator import mul
from pathlib import Path
from typing import Protocol, TypeAlias, runtime_checkable

from ctxguard.errors import ConfigError
from ctxguard.tokens.text_cache import TextCache

__all__ = ["Embed", "Embedder", "Embeddings", "SemanticIndex", "find_embedder", "static_embedder"]

Vector: TypeAlias = Sequence[float]
Embedder: TypeAlias = Callable[[list[str]], Iterable[Vector]]
"""Take texts and return one vector for each."""


@runtime_checkable
class Embeddings(Protocol):
    """What of `langchain_core.embeddings.Embeddings` is used."""

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Return one vector for each text."""
        ...


Embed: TypeAlias = "Embedder | Embeddings"


def find_embedder(embed: Embed | None = None) -> Embedder:
    """Return the function that embeds texts.

    Args:
        embed: any callable from a list of texts to their vectors, or an `Embeddings` of `langchain_core`; None means
            the static embeddings of the extra `semantic`.

    Raises:
        ConfigError: `embed` is neither.
        ImportError: none is given and the extra is not installed.
    """
    if embed is None:
        return static_embedder()
    if isinstance(embed, Embeddings):
        return embed.embed_documents
    if callable(embed):
        return embed
    raise ConfigError(
        f"embed is a function from texts to vectors or a langchain_core Embeddings, not {type(embed).__name__}",
        setting="embed",
    )


@cache
def static_embedder() -> Embedder:
    """Return the embedder of wordllama, read from the installed package alone.

    Raises:
        ImportError: the extra is not installed.
    """
    try:
        import wordllama
    except ImportError as error:
        raise ImportError("semantic recall needs an extra: pip install 'ctxguard-stabilizer[semantic]'") from error
    # Weights and tokenizer are files of the package; it looks for the tokenizer in its cache folder only.
    model = wordllama.WordLlama.load(cache_dir=Path(wordllama.__file__).parent, disable_download=True)
    return lambda texts: model.embed(texts, norm=True)


class SemanticIndex:
    """Score documents against a query by the cosine of their embeddings. Each text is embedded once.

    Args:
        embed: see `find_embedder`.
    """

    def __init__(self, embed: Embed | None = None) -> None:
        self._embed = find_embedder(embed)
        self._vectors: list[array[float]] = []
        self._waiting: list[str] = []
        self._queries: TextCache[array[float]] = TextCache(1_000_000)

    def __len__(self) -> int:
        return len(self._vectors) + len(self._waiting)

    def add(self, text: str) -> None:
        """Take in one more document."""
        self._waiting.append(text)

    def matches(self, query: str) -> dict[int, float]:
        """Return the scores of all documents by their number, from -1 to 1.

        Raises:
            ConfigError: the embedder does not return one vector for each text, all of the same size.
        """
        if self._waiting:
            self._vectors += self._embedded(self._waiting)
            self._waiting = []
        asked = self._queries.get(query)
        if asked is None:
            asked = self._embedded([query])[0]
            self._queries.put(query, asked)
        if any(len(vector) != len(asked) for vector in self._vectors):
            raise ConfigError("embed returned vectors of different sizes", setting="embed")
        return {number: sum(map(mul, vector, asked)) for number, vector in enumerate(self._vectors)}

    def _embedded(self, texts: list[str]) -> list[array[float]]:
        vectors = [_normalized(vector) for vector in self._embed([text or " " for text in texts])]
        if len(vectors) != len(texts):
            raise ConfigError(f"embed returned {len(vectors)} vectors for {len(texts)} texts", setting="embed")
        return vectors


def _normalized(vector: Vector) -> array[float]:
    values = array("f", map(float, vector))
    length = sqrt(sum(map(mul, values, values)))
    return array("f", (value / length for value in values)) if length else values
