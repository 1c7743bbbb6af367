"""Compare texts by meaning, with static word embeddings or with any embedding model of the caller.

The extra `semantic` installs wordllama (MIT license, 16 MB). Its weights are part of the wheel, so nothing is
downloaded, and torch is not needed. Its embedding of a text is the mean over all tokens, which takes a few microseconds
for a message.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Generator, Iterable, Sequence
from functools import cache
from math import sqrt
from operator import mul
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias, cast, runtime_checkable

from ctxguard.draft import Ask
from ctxguard.errors import ConfigError, StoreError
from ctxguard.settings import extra, opened
from ctxguard.stages.bound_tool_output import handle_of
from ctxguard.tokens.caches import TextCache

if TYPE_CHECKING:
    from ctxguard.stores import Store

Vector: TypeAlias = Sequence[float]
Embedder: TypeAlias = Callable[[list[str]], Iterable[Vector]]
"""A function that returns one vector for each of a list of texts."""
_MOST_CHARS: Final = 4_000
"""Number of characters at the start of a text that are embedded. The mean of the words of a longer text is less
distinctive."""
_REMEMBERED: Final = 16_000_000
"""Maximum size in bytes of one generation of remembered vectors: those of some 10,000 texts with 256 numbers each."""
_AT_ONCE: Final = 256
"""Maximum number of texts in one call of an embedder."""


@runtime_checkable
class Embeddings(Protocol):
    """The part of `langchain_core.embeddings.Embeddings` that is used."""

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Return one vector for each text."""
        ...


Embed: TypeAlias = 'Embedder | Embeddings | Literal["static"]'


def find_embedder(embed: Embed) -> Embedder:
    """Return the function that embeds texts.

    Args:
        embed: A sync or async callable that returns one vector for each of a list of texts; an `Embeddings` object of
            `langchain_core`; or `"static"` for the static embeddings of the extra `semantic`.

    Raises:
        ConfigError: If `embed` is none of these.
        ImportError: If `embed` is `"static"` and the extra is not installed.
    """
    if embed == "static":
        return static_embedder()
    if isinstance(embed, Embeddings):
        return embed.embed_documents
    if callable(embed):
        return embed
    raise ConfigError(
        "embed is a function from texts to vectors, a langchain_core Embeddings, or 'static', "
        f"not {embed if isinstance(embed, str) else type(embed).__name__!r}",
        setting="embed",
    )


@cache
def static_embedder() -> Embedder:
    """Return the embedder of wordllama, loaded from the installed package without network access.

    Raises:
        ImportError: If the extra is not installed.
    """
    with extra("semantic", "semantic recall needs an extra"):
        import wordllama
    # wordllama looks for its tokenizer only in the cache folder, so that is set to the package, which contains it.
    model = wordllama.WordLlama.load(cache_dir=Path(wordllama.__file__).parent, disable_download=True)
    return lambda texts: model.embed(texts, norm=True)


class Embedding:
    """Embeds each text once: vectors are cached in memory, and in a store if one is given.

    The store is not used for functions without a name, such as lambdas, because their vectors could be confused with
    those of others. Nor is it used for static embeddings, which are faster to compute than to read.
    """

    def __init__(self, embed: Embed, store: Store | None = None) -> None:
        self._embed = find_embedder(embed)
        name = "" if embed == "static" else _name_of(embed)
        self._namespace = f"embedding:{name}"
        self._store = opened(store) if name else None
        self._known: TextCache[array[float]] = TextCache(_REMEMBERED)

    def vectors(self, texts: Sequence[str], *, dry: bool = False) -> Generator[Ask, object, list[array[float]]]:
        """Return a vector of length 1 for the first 4,000 characters of each text, from a cache or from the embedder.

        Args:
            texts: The texts.
            dry: Whether this is a dry run, in which nothing is written to the store.

        Raises:
            ConfigError: If the embedder does not return one vector for each text.
        """
        clipped = [text[:_MOST_CHARS] or " " for text in texts]
        found: dict[str, array[float]] = {}
        for text in dict.fromkeys(clipped):
            known = self._known.get(text)
            if known is None and self._store is not None:
                known = yield from self._load(text, self._store)
            if known is not None:
                found[text] = known
        missing = [text for text in dict.fromkeys(clipped) if text not in found]
        # Embedding services limit the number of texts in a request.
        for begin in range(0, len(missing), _AT_ONCE):
            found.update((yield from self._embed_batch(missing[begin : begin + _AT_ONCE], dry=dry)))
        for text, vector in found.items():
            self._known.put(text, vector)
        return [found[text] for text in clipped]

    def _load(self, text: str, store: Store) -> Generator[Ask, object, array[float] | None]:
        try:
            value = yield Ask(store.get, (self._namespace, handle_of(text)), is_read=True)
        except StoreError:
            return None  # the vector is computed again, so that the call succeeds even if the store is unavailable
        vector = array("f")
        if isinstance(value, bytes) and value and len(value) % vector.itemsize == 0:
            vector.frombytes(value)
            return vector
        return None

    def _embed_batch(self, texts: list[str], *, dry: bool) -> Generator[Ask, object, dict[str, array[float]]]:
        given = yield Ask(self._embed, (texts,), is_read=True)
        vectors = [_normalize(vector) for vector in cast("Iterable[Vector]", given)]
        if len(vectors) != len(texts):
            raise ConfigError(f"embed returned {len(vectors)} vectors for {len(texts)} texts", setting="embed")
        if self._store is not None and not dry:
            for text, vector in zip(texts, vectors, strict=True):
                yield Ask(self._store.put_new, (self._namespace, handle_of(text), vector.tobytes()))
        return dict(zip(texts, vectors, strict=True))


class SemanticIndex:
    """Scores documents by the cosine similarity of their vectors to the vector of a query. All vectors have length 1.

    Documents are numbered from 0 in the order in which they are added.

    Raises:
        ImportError: If numpy is not installed; it is part of the extra `semantic`.
    """

    def __init__(self) -> None:
        with extra("semantic", "semantic recall needs an extra"):
            import numpy as np
        self._numpy = np
        self._rows: Any = np.zeros((0, 0), dtype=np.float32)
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def extend(self, vectors: Sequence[array[float]]) -> None:
        """Add documents by their vectors.

        Raises:
            ConfigError: If the vectors are not all of the same size.
        """
        if not vectors:
            return
        width = len(vectors[0])
        if any(len(vector) != width for vector in vectors) or (self._size and width != self._rows.shape[1]):
            raise ConfigError("embed returned vectors of different sizes", setting="embed")
        end = self._size + len(vectors)
        # The capacity is doubled, so that the total time for growing is linear in the number of documents.
        if end > len(self._rows):
            rows: Any = self._numpy.zeros((max(2 * len(self._rows), end), width), dtype=self._numpy.float32)
            if self._size:
                rows[: self._size] = self._rows[: self._size]
            self._rows = rows
        self._rows[self._size : end] = self._numpy.asarray(vectors, dtype=self._numpy.float32)
        self._size = end

    def matches(self, query: array[float]) -> dict[int, float]:
        """Return the score of each document, from -1 to 1, by the number of the document.

        Raises:
            ConfigError: If the size of the query's vector differs from that of the documents' vectors.
        """
        if not self._size:
            return {}
        if len(query) != self._rows.shape[1]:
            raise ConfigError("embed returned vectors of different sizes", setting="embed")
        asked = self._numpy.asarray(query, dtype=self._numpy.float32)
        return dict(enumerate((self._rows[: self._size] @ asked).tolist()))


def _name_of(embed: object) -> str:
    """Return a name under which vectors of an embedding model or function can be stored; empty if none can be found."""
    model = getattr(embed, "model", None) or getattr(embed, "model_name", None)
    if isinstance(model, str):
        return f"{type(embed).__name__}:{model}"
    name = f"{getattr(embed, '__module__', '')}.{getattr(embed, '__qualname__', '<')}"
    return "" if "<" in name else name


def _normalize(vector: Vector) -> array[float]:
    try:
        values = array("f", map(float, vector))
    except (TypeError, ValueError) as error:
        raise ConfigError("embed returned something other than vectors of numbers", setting="embed") from error
    length = sqrt(sum(map(mul, values, values)))
    return array("f", (value / length for value in values)) if length else values
