"""Ranking by words, by meanings, and by both."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxguard.draft import adrive, drive
from ctxguard.errors import ConfigError
from ctxguard.stages.embeddings import Embedding, SemanticIndex, find_embedder
from ctxguard.stages.lexical import by_ranks, per_token, with_neighbors
from ctxguard.stores import MemoryStore

SCORES = st.dictionaries(st.integers(0, 30), st.floats(-1, 10), max_size=12)


def letters(texts: list[str]) -> list[list[float]]:
    """Embed a text by how often it has each of three letters."""
    return [[text.count(letter) for letter in "abc"] for text in texts]


def test_a_document_gains_from_its_neighbors():
    assert with_neighbors({3: 8.0}, 0.5) == {0: 1.0, 1: 2.0, 2: 4.0, 3: 8.0, 4: 4.0, 5: 2.0, 6: 1.0}
    assert with_neighbors({0: 8.0, 1: 8.0}, 0.5) == {0: 12.0, 1: 12.0, 2: 6.0, 3: 3.0, 4: 1.0}


def test_what_both_rank_high_comes_first():
    fused = by_ranks({1: 9.0, 2: 8.0, 3: 1.0}, {2: 0.9, 4: 0.8, 1: 0.1})
    assert max(fused, key=fused.__getitem__) == 2
    assert set(fused) == {1, 2, 3, 4}


def test_equal_scores_rank_the_newest_first():
    fused = by_ranks({1: 1.0, 2: 1.0})
    assert fused[2] > fused[1]


def test_documents_without_a_score_are_not_ranked():
    assert by_ranks({1: 0.0, 2: -0.5}) == {}


def test_of_equal_scores_the_smaller_document_comes_first():
    scores = per_token({0: 1.0, 1: 1.0}, [400, 40])
    assert scores[1] > scores[0]
    assert per_token({0: 1.0}, [0]) == {0: 1.0}


@given(SCORES, SCORES)
def test_fusion_depends_on_order_alone(left, right):
    stretched = {number: score * 7 for number, score in left.items()}
    assert by_ranks(left, right) == by_ranks(stretched, right)


def index_of(embedding: Embedding, *texts: str) -> SemanticIndex:
    index = SemanticIndex()
    index.extend(drive(embedding.vectors(texts)))
    return index


def asked(index: SemanticIndex, embedding: Embedding, query: str) -> dict[int, float]:
    return index.matches(drive(embedding.vectors([query]))[0])


def test_documents_score_by_the_cosine_of_their_vectors():
    embedding = Embedding(letters)
    index = index_of(embedding, "aaaa", "bb", "ab", "")
    assert len(index) == 4
    assert asked(index, embedding, "aa") == pytest.approx({0: 1.0, 1: 0.0, 2: 0.5**0.5, 3: 0.0})


def test_an_index_grows():
    embedding = Embedding(letters)
    index = index_of(embedding, "a")
    index.extend(drive(embedding.vectors(["b", "c"])))
    assert asked(index, embedding, "c") == pytest.approx({0: 0.0, 1: 0.0, 2: 1.0})


def test_each_text_is_embedded_once():
    seen: list[str] = []
    embedding = Embedding(lambda texts: seen.extend(texts) or letters(texts))
    drive(embedding.vectors(["a", "b", "a"]))
    drive(embedding.vectors(["c", "b"]))
    assert seen == ["a", "b", "c"]


def test_vectors_of_a_named_embedding_are_kept_in_the_store():
    store, seen = MemoryStore(), []

    class Named:
        model = "letters-3"

        def embed_documents(self, texts):
            seen.extend(texts)
            return letters(texts)

    first = drive(Embedding(Named(), store).vectors(["abc", "b"]))
    assert drive(Embedding(Named(), store).vectors(["abc", "b"])) == first
    assert seen == ["abc", "b"]
    drive(Embedding(lambda texts: [*letters(texts)], store).vectors(["abc"]))  # has no name of its own: not kept
    assert len(list(store.keys("embedding:Named:letters-3"))) == 2


def test_async_embeddings_are_taken():
    async def embed(texts):
        return letters(texts)

    assert len(asyncio.run(adrive(Embedding(embed).vectors(["a"])))) == 1


def test_embeddings_of_langchain_are_taken():
    fake = pytest.importorskip("langchain_core.embeddings").DeterministicFakeEmbedding(size=8)
    assert len(list(find_embedder(fake)(["one", "two"]))) == 2


@pytest.mark.parametrize("embed", [lambda texts: [], lambda texts: [["x"] for _ in texts], lambda texts: [3]])
def test_wrong_vectors_are_refused(embed):
    with pytest.raises(ConfigError, match="embed returned"):
        drive(Embedding(embed).vectors(["a"]))


def test_vectors_of_different_sizes_are_refused():
    embedding = Embedding(lambda texts: [[1.0] * len(text) for text in texts])
    index = index_of(embedding, "a", "b")
    with pytest.raises(ConfigError, match="different sizes"):
        asked(index, embedding, "abc")


@pytest.mark.parametrize("embed", [3, "dynamic"])
def test_what_is_no_embedder_is_refused(embed):
    with pytest.raises(ConfigError, match="embed is a function"):
        find_embedder(embed)


def test_static_embeddings_know_meanings_without_the_network(monkeypatch):
    pytest.importorskip("wordllama")
    import socket

    monkeypatch.setattr(socket, "create_connection", None)
    embedding = Embedding("static")
    index = index_of(embedding, "My cat is called Momo and loves fish.", "The invoice is due on Friday.")
    scores = asked(index, embedding, "What is the name of my pet?")
    assert scores[0] > scores[1]
