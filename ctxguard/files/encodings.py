"""Turn bytes into text: byte-order marks, UTF-8, UTF-16 without a mark, then a guess, then Latin-1."""

from __future__ import annotations

import codecs

__all__ = ["decode", "find_encoding"]

_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_LOOK = 16_384
_GUESSED = 4_096


def find_encoding(data: bytes) -> str:
    """Return the name of the encoding of a text by its first bytes.

    Args:
        data: the start of the file; 16,384 bytes are looked at.
    """
    for mark, name in _MARKS:
        if data.startswith(mark):
            return name
    sample = data[:_LOOK]
    if (wide := _wide(sample)) is not None:
        return wide
    if _is_utf8(sample):
        return "utf-8"
    return _guess(sample)


def decode(data: bytes, encoding: str) -> str:
    """Decode bytes that may start or end inside a character; what cannot be decoded becomes U+FFFD."""
    name = {"utf-16": _by_mark(data), "utf-8-sig": "utf-8-sig"}.get(encoding, encoding)
    return data.decode(name, "replace")


def _by_mark(data: bytes) -> str:
    return "utf-16" if data[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) else "utf-16-le"


def _wide(sample: bytes) -> str | None:
    """Recognise UTF-16 without a mark: every second byte of Latin text is zero."""
    if len(sample) < 4 or b"\0" not in sample:
        return None
    even, odd = sample[::2].count(0), sample[1::2].count(0)
    half = len(sample) / 2
    if odd > 0.6 * half and even < 0.1 * half:
        return "utf-16-le"
    return "utf-16-be" if even > 0.6 * half and odd < 0.1 * half else None


def _is_utf8(sample: bytes) -> bool:
    try:
        sample.decode()
    except UnicodeDecodeError as error:
        return error.start >= len(sample) - 4 and len(sample) >= _LOOK and error.reason == "unexpected end of data"
    return True


def _guess(sample: bytes) -> str:
    """Guess a single-byte or East Asian encoding; Latin-1, which decodes anything, where no guess is to be had."""
    try:
        from charset_normalizer import from_bytes
    except ImportError:
        return "latin-1"
    start = sample[:_GUESSED]
    if len(sample) > _GUESSED:  # half of a character at the end would rule out the encoding it is in
        start = start[: start.rfind(b"\n") + 1 or _GUESSED]
    best = from_bytes(start, steps=3, chunk_size=512, threshold=0.2).best()
    return "latin-1" if best is None or best.encoding == "ascii" else best.encoding
