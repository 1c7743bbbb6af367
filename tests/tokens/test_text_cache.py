"""A cache of texts is bounded by their characters, so that many short texts have room."""

from __future__ import annotations

from ctxguard.stages.short_views import is_observation
from ctxguard.stages.trail import said_sentences
from ctxguard.tokens.caches import TextCache, cached_by_text


def test_a_function_is_called_once_for_each_of_many_short_texts():
    called: list[str] = []

    @cached_by_text
    def length(text: str) -> int:
        called.append(text)
        return len(text)

    texts = [f"message {number}" for number in range(20_000)]
    assert [length(text) for text in texts + texts] == [len(text) for text in texts + texts]
    assert called == texts


def test_sentences_of_many_messages_are_found_once():
    texts = [f"Always write to room {number} first." for number in range(12_000)]
    first = [said_sentences(text) for text in texts]
    assert all(first)
    assert all(one is other for one, other in zip(first, map(said_sentences, texts), strict=True))


def test_false_is_a_result():
    assert not is_observation("Hello there.")
    assert not is_observation("Hello there.")


def test_a_cache_forgets_what_is_oldest():
    cache: TextCache[int] = TextCache(max_chars=1_000)
    for number in range(100):
        cache.put(f"text {number}", number)
    assert cache.get("text 0") is None
    assert cache.get("text 99") == 99
