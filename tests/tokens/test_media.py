"""Media cost what the providers publish, read from their first bytes and never decoded."""

from __future__ import annotations

import base64
import struct
import zlib

import pytest

from ctxguard.artifacts import Media, Part
from ctxguard.tokens import ArtifactCounter, find_counter
from ctxguard.tokens.families import family_of
from ctxguard.tokens.media import audio_media, document_part, image_media, media_tokens


def png(width, height):
    header = b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", width, height) + b"\x08\x02\0\0\0"
    return "data:image/png;base64," + base64.b64encode(header + b"\0" * 60).decode()


def pdf(pages, text):
    stream = zlib.compress(b"BT (" + text + b") Tj ET")
    body = b"%PDF-1.4\n" + b"<< /Type /Page >>\n" * pages + b"<< /Type /Pages >>\nstream\n" + stream + b"\nendstream"
    return "data:application/pdf;base64," + base64.b64encode(body).decode()


@pytest.mark.parametrize(
    ("model", "size", "tokens"),
    [
        ("gpt-4o", (1024, 1024), 85 + 4 * 170),
        ("gpt-4o-mini", (1024, 1024), 2_833 + 4 * 5_667),
        ("gpt-5", (512, 512), 70 + 140),
        ("o4-mini", (1024, 1024), 1_659),
        ("gpt-4.1-nano", (4_000, 4_000), 3_779),
        ("claude-sonnet-4-5", (1_000, 750), 1_000),
        ("claude-sonnet-4-5", (8_000, 8_000), 1_600),
        ("gemini-2.5-flash", (300, 300), 258),
        ("gemini-2.5-flash", (1_536, 768), 2 * 258),
    ],
)
def test_an_image_costs_what_its_provider_publishes(model, size, tokens):
    assert media_tokens(image_media(png(*size)), family_of(model).costs) == tokens


def test_low_detail_is_flat_where_the_rule_is_tiles():
    assert media_tokens(image_media(png(2_000, 2_000), detail="low"), family_of("gpt-4o").costs) == 85


def test_a_pdf_costs_its_pages_and_their_text():
    empty, full = document_part(pdf(2, b"")), document_part(pdf(2, b"word " * 400))
    assert (full.media.pages, full.media.characters) == (2, 2_000)
    for model, adds in (("gpt-4o", 400), ("claude-sonnet-4-5", 500), ("gemini-2.5-pro", 0)):
        costs = family_of(model).costs
        assert media_tokens(full.media, costs) - media_tokens(empty.media, costs) == adds
        assert media_tokens(empty.media, costs) == 2 * costs.pages.each


def test_a_text_document_is_counted_as_its_text():
    url = "data:text/plain;base64," + base64.b64encode(b"word " * 100).decode()
    assert document_part(url) == Part("text", "word " * 100)


@pytest.mark.parametrize("text", ["hello", "document", "two words", "größer\n", "\x1b[31mred\x1b[0m", "{}"])
def test_a_text_is_recognized_without_a_media_type_and_without_base64(text):
    encoded = base64.b64encode(text.encode()).decode()
    for data in (encoded, encoded.rstrip("="), f"data:application/octet-stream;base64,{encoded}", text):
        assert document_part(data) == Part("text", text)


def test_control_characters_are_of_no_text():
    part = document_part(base64.b64encode(b"PK\x03\x04" + b"word " * 40).decode())
    assert part.text is None
    assert part.media.kind == "file"


@pytest.mark.parametrize("data", ["", "!!!", "data:application/pdf;base64,JVBERi0", "data:;base64,===", "x" * 1_000])
def test_damaged_data_costs_something_and_raises_nothing(data):
    for model in ("gpt-4o", "claude-sonnet-4-5", "gemini-2.5-pro", "mistral-large"):
        costs = family_of(model).costs
        assert media_tokens(image_media(data), costs) > 0
        assert media_tokens(audio_media(data), costs) >= 0
        part = document_part(data)
        assert part.text is not None or media_tokens(part.media, costs) > 0


def test_wav_tells_its_own_length():
    header = b"RIFF\0\0\0\0WAVEfmt " + struct.pack("<IHHII", 16, 1, 1, 16_000, 32_000) + b"\2\0\x10\0data"
    data = base64.b64encode(header + b"\0" * 64_000).decode()
    assert media_tokens(audio_media(data), family_of("gemini-2.5-flash").costs) == pytest.approx(64, abs=2)


def test_a_part_keeps_its_general_price_until_a_model_is_named():
    part = Part("image", tokens=765, media=Media("image", size=(1_000, 750)))
    assert ArtifactCounter(find_counter()).part(part) == 765
    assert ArtifactCounter(find_counter(model="claude-sonnet-4-5")).part(part) == 1_000
