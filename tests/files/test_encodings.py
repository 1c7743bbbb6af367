"""The encoding of a text is found: by its mark, as UTF-8, or by a guess with a reason; Western texts are never guessed away."""

from __future__ import annotations

import pytest
from languages import ENCODINGS, OTHERS, WESTERN

from ctxguard.config import ContextConfig
from ctxguard.files import read_file
from ctxguard.files.encodings import decode, find_encoding

SIZES = (20, 60, 150, 500, 1_000, 5_000, 100_000)


def corpus(languages, sizes):
    """Yield texts of a language, an encoding and about a size in bytes, from several places of its sentences."""
    for language in languages:
        text = (WESTERN | OTHERS)[language] + "\n"
        for encoding in ENCODINGS[language]:
            written = text.encode(encoding, "ignore").decode(encoding)
            for size in sizes:
                width = len(written.encode(encoding)) / len(written)
                length = max(1, round(size / width))
                for start in (0, 61, 149):
                    repeated = written * (length // len(written) + 3)
                    yield language, encoding, repeated[start : start + length]


def right(text, encoding):
    """Return the share of the characters that come back."""
    data = text.encode(encoding)
    read = decode(data, find_encoding(data)).removeprefix("\ufeff")
    return sum(a == b for a, b in zip(read, text, strict=False)) / max(len(read), len(text))


@pytest.mark.parametrize("language", WESTERN)
def test_western_texts_come_back_whole_at_any_length(language):
    wrong = [(encoding, text[:60]) for _, encoding, text in corpus([language], SIZES) if right(text, encoding) < 1]
    assert not wrong


@pytest.mark.parametrize("language", OTHERS)
def test_texts_of_other_languages_come_back_from_500_bytes_on(language):
    sizes = [size for size in SIZES if size >= 500]
    wrong = [(encoding, len(text)) for _, encoding, text in corpus([language], sizes) if right(text, encoding) < 0.99]
    assert not wrong


def test_the_corpus_is_as_large_as_promised():
    assert len(ENCODINGS) >= 20
    assert all(len(set(encodings)) == 5 for encodings in ENCODINGS.values())


@pytest.mark.parametrize(
    "text", ["São Paulo não", "café\n", "naïve", "£5", "Ærø", "Müßig", "¿Qué?", "§ 12", "€ 5", "“so”", "l’été"]
)
@pytest.mark.parametrize("encoding", ["cp1252", "utf-8"])
def test_a_few_western_words_are_not_guessed_away(text, encoding):
    assert right(text, encoding) == 1


@pytest.mark.parametrize("text", ["cœur et œuvre", "12 € le kilo"])
def test_latin_9_is_known_by_the_letters_that_latin_1_lacks(text):
    assert right(text, "iso8859-15") == 1


def test_a_long_text_of_ascii_with_a_few_accents_is_western():
    code = "def total(rows):\n    return sum(row.amount for row in rows)\n" * 400
    assert right(f"{code}# José Núñez, Zürich\n{code}", "latin-1") == 1


@pytest.mark.parametrize("before", [20_000, 300_000, 3_000_000])
def test_accents_far_from_the_start_of_a_file_are_found(tmp_path, before):
    path = tmp_path / "notes.txt"
    path.write_bytes(b"plain words\n" * (before // 12) + "l'été à São Paulo\n".encode("latin-1"))
    result = read_file(path, ContextConfig(), lines=(before // 12 + 1, before // 12 + 1), counter="estimate")
    assert "l'été à São Paulo" in result.content
    assert result.metadata.encoding == "latin-1"


def test_bytes_that_windows_1252_has_not_are_kept():
    assert decode(b"a\x81b\xe9", find_encoding(b"a\x81b\xe9")) == "a\x81bé"
