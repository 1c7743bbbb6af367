"""Find the sentences in people's messages that stand for later: rules, habits, and what opens or closes a message.

A rule that a person states once must outlive the message in which it stands. No model is involved: a sentence is ranked
by its place in the message and by words of the languages in `data/phrases.toml`. What the words miss is still found by
its place, so a rule that is phrased otherwise is listed if it opens or closes its message.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from ctxguard.history.phrases import Phrase, phrases_in
from ctxguard.stages.sentences import quoted_spans, sentence_spans, sentences
from ctxguard.tokens.text_cache import cached_by_text

_FENCED: Final = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
_LEADING: Final = re.compile(r"^[\s>*#•\-–\d.)]+(?=\w)")
_SENTENCE_ENDS: Final = ".!?…。！？"
_FEWEST: Final = 3
"""Fewest words of a listed sentence. In scripts without spaces, two characters count as a word."""
_FEWEST_SIGNS, _MOST_SIGNS = 6, 240
"""Fewest and most characters of a listed sentence."""
_EACH: Final = 6
"""Maximum number of sentences of one message."""
_PASTED: Final = 1_200
"""A message of more characters is mostly pasted text. Only its first and last sentence count, and rules in it."""
_EDGE: Final = 600
"""Number of characters at each end of such a message in which its first and its last sentence are searched."""


class Said(NamedTuple):
    """A sentence from a person's message.

    Attributes:
        text: The sentence, on one line.
        score: How likely it stands for later; at least 1.
    """

    text: str
    score: int


@cached_by_text  # a cut asks for the tokens and then for the sentences, with all evicted messages in between
def said_sentences(text: str) -> tuple[Said, ...]:
    """Return the sentences of a message that may stand for later, in order, at most 6."""
    is_pasted = len(text) > _PASTED
    sentences = list(_rules_in(text) if is_pasted else _sentences(text))
    found: list[tuple[int, int, str]] = []
    for place, sentence in enumerate(sentences):
        if _FEWEST_SIGNS <= len(sentence) <= _MOST_SIGNS and _words(sentence) >= _FEWEST:
            at_edge = place in (0, len(sentences) - 1)
            score = _score(sentence) + at_edge
            if score > 0 and 2 * _letters(sentence) > len(sentence):
                found.append((score, place, " ".join(sentence.split())))
    best = sorted(found, key=lambda each: (-each[0], -each[1]))[:_EACH]
    return tuple(Said(sentence, score) for score, _, sentence in sorted(best, key=lambda each: each[1]))


def _sentences(text: str) -> Iterator[str]:
    for sentence in sentences(_FENCED.sub("\n", text) if "```" in text else text):
        if cleaned := _LEADING.sub("", sentence).strip():
            yield cleaned


def _rules_in(text: str) -> Iterator[str]:
    """Yield the first sentence of a long text, its sentences that are phrased as rules, and its last sentence."""
    yield next(_sentences(text[:_EDGE]), "")
    spans, end = sentence_spans(text), 0
    for phrase in phrases_in(text, "standing"):
        if phrase.start >= end:
            start, end = next(span for span in spans if span[1] > phrase.start)
            yield _LEADING.sub("", text[start:end]).strip()
    *_, last = ["", *_sentences(text[-_EDGE:])]
    yield last


def _score(sentence: str) -> int:
    """Return how likely a sentence stands for later, by its words."""
    found = sorted(_own_phrases(sentence))
    tables = {phrase.table for phrase in found}
    begin = 0
    for phrase in found:  # an order opens the sentence, or follows words of politeness
        if phrase.table == "politeness" and phrase.start == begin:
            begin = len(sentence) - len(sentence[phrase.end :].lstrip(" ,"))
    is_order = any(phrase.table == "orders" and phrase.start == begin for phrase in found)
    is_rule = "standing" in tables and not any(p.table == "tellers" and p.start in (0, begin) for p in found)
    score = 2 * is_rule + ("habits" in tables) + 2 * is_order - ("moment" in tables)
    return score - 2 * sentence.endswith(("?", "？"))


def _own_phrases(sentence: str) -> Iterator[Phrase]:
    """Yield the phrases in a sentence that do not stand in a quoted name or title; a quoted sentence is none."""
    titles = [(a, b) for a, b in quoted_spans(sentence) if sentence[b - 2] not in _SENTENCE_ENDS]
    for phrase in phrases_in(sentence):
        if not any(start < phrase.start < end for start, end in titles):
            yield phrase


def _words(sentence: str) -> int:
    spaced = len(sentence.split())
    return spaced if sentence.isascii() or spaced > 1 else max(spaced, len(sentence) // 2)


def _letters(sentence: str) -> int:
    return sum(map(str.isalpha, sentence)) + sentence.count(" ")
