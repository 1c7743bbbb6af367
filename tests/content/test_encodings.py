"""The encoding of a text is found: by its mark, as UTF-8, or by a guess with a reason; Western texts are never guessed away."""

from __future__ import annotations

import random
import sys

import pytest
from languages import ENCODINGS, OTHERS, WESTERN

from ctxguard.config import ContextConfig
from ctxguard.content.opening import decode, find_encoding
from ctxguard.content.reader import read_file

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
                # a large text repeats its sentences, so that wherever it begins, it holds all of them
                for start in (0, 61, 149) if size < 5_000 else (61,):
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


def test_without_chardet_what_is_not_utf_8_is_read_as_western_european(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "chardet", None)
    (tmp_path / "a.txt").write_bytes("Größe: 12 Meter, für alle".encode("latin-1"))
    assert "Größe" in read_file(tmp_path / "a.txt").content


ITALIAN = ["Attività completata", "Il file non è accessibile", "Quantità aggiornata", "Così è più facile"]
FRENCH = ["Élément supprimé", "À vérifier", "Déjà réglé", "Opération terminée"]
GERMAN = ["Übertragung läuft", "Größe geändert", "Gerät verfügbar"]
CATALAN = ["Activació correcta", "Fitxer no vàlid", "Següent pàgina", "Adreça llegida"]


@pytest.mark.parametrize("lines", [ITALIAN, FRENCH, GERMAN, CATALAN])
@pytest.mark.parametrize("encoding", ["latin-1", "cp1252"])
@pytest.mark.parametrize("rows", [5, 40, 900])
def test_western_logs_and_tables_that_repeat_a_few_words_are_western(lines, encoding, rows):
    log = "\n".join(f"2026-01-{n % 28 + 1:02d} INFO {lines[n % len(lines)]}" for n in range(rows))
    table = "id;state\n" + "\n".join(f"{n};{lines[n % len(lines)]}" for n in range(rows))
    records = "\n".join(f'{{"id": {n}, "state": "{lines[n % len(lines)]}"}}' for n in range(rows))
    assert [right(text, encoding) for text in (log, table, records)] == [1, 1, 1]


def words_in(language):
    return sorted({word.strip(".,;:?!'’“”«»") for word in (WESTERN | OTHERS)[language].split()} - {""})


@pytest.mark.parametrize(
    "shape", ["{n};{word};{other}", "2026-01-01 INFO {word} {other}", '{{"id": {n}, "name": "{word}"}}']
)
@pytest.mark.parametrize("language", WESTERN)
def test_western_records_come_back_whole(language, shape):
    words = words_in(language)
    r = random.Random(language)
    for size in (256, 1_000, 4_000):
        few = r.sample(words, 12)
        text = "\n".join(shape.format(n=n, word=r.choice(few), other=r.choice(few)) for n in range(size // 16))
        assert right(text, "cp1252") == 1


def test_signs_beside_words_are_no_letters_of_another_alphabet():
    assert right("25 m³, 3 cm³, 10 µm, 5°C, nº 4, 1ª, ½ kg, ±3, 7×8 mm²\n" * 9, "cp1252") == 1


def test_metadata_say_when_an_encoding_was_guessed(tmp_path):
    (tmp_path / "a.txt").write_bytes(OTHERS["Polish"].encode("cp1250"))
    (tmp_path / "b.txt").write_bytes(WESTERN["German"].encode("cp1252"))
    guessed, plain = (read_file(tmp_path / name).metadata for name in ("a.txt", "b.txt"))
    assert (guessed.encoding, guessed.details) == ("cp1250", (("encoding", "guessed by its letters"),))
    assert (plain.encoding, plain.details) == ("latin-1", ())


def test_signs_of_latin_1_inside_words_are_letters_of_latin_9():
    assert right("Tilaus; šillinki\nItävalta; Tadžikistan\n", "iso8859-15") == 1


def test_one_foreign_name_is_no_evidence_of_another_alphabet():
    assert right("id;giorno;valuta\n1;giovedì;bolívar\n2;lunedì;bolívar\n" * 40, "latin-1") == 1


@pytest.mark.parametrize("encoding", ["shift_jis", "cp932", "euc-jp"])
def test_japanese_tables_are_known_by_their_kana(encoding):
    names = ["イエメン", "ブルガリア", "レバノン", "クウェート"]
    table = "id;name\n" + "".join(f"{n};{names[n % 4]}\n" for n in range(60))
    assert right(table, encoding) == 1
    assert right(table.replace(";", " \\ "), encoding) == 1  # a backslash stays one


@pytest.mark.parametrize(
    "shape", ["{n};{word};{other}", "2026-01-01 INFO {word} {other}", '{{"id": {n}, "name": "{word}"}}']
)
@pytest.mark.parametrize("language", OTHERS)
def test_records_of_other_languages_come_back_where_they_have_many_words(language, shape):
    words = words_in(language)
    r = random.Random(language)
    for encoding in ENCODINGS[language][3:]:
        text = "\n".join(shape.format(n=n, word=r.choice(words), other=r.choice(words)) for n in range(120))
        text = text.encode(encoding, "ignore").decode(encoding)
        assert right(text, encoding) == 1
