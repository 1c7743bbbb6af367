"""Decode text files: byte-order mark, UTF-8, UTF-16 without a mark, then a guess if the evidence is strong.

A short Latin-1 text is valid in almost any other encoding, so a guess must have a reason: either the text is in
a script that Latin-1 cannot write, or it is long and full of letters that are not ASCII. Anything else is Latin-1,
or Windows-1252 if it uses the bytes by which the two differ.
"""

from __future__ import annotations

import codecs
import re
from typing import Final

_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_LOOK: Final = 16_384
_OTHER_SCRIPT: Final = 0.6
"""Share of the letters that must be in another script: in Western texts at most a fifth are not ASCII."""
_LONG: Final = 150
"""Bytes from which on a guess among the Latin alphabets can be right."""
_ACCENTED: Final = 0.03
"""Share of bytes above 127 that such a guess needs: Turkish has 8%, Polish 6%, English with curly quotes 1%."""
_HIGH: Final = bytes(range(128, 256))
_NOT_ASCII: Final = re.compile(rb"[\x80-\xff]")
_LATIN_9: Final = re.compile(rb"[A-Za-z]\xbd[A-Za-z]|\d ?\xa4|\xa4 ?\d")
"""What ISO 8859-15 means by the bytes where it differs from Latin-1: `cœur`, `5 €`."""


def find_encoding(data: bytes) -> str:
    """Return the name of the encoding of a text; a start of 16,384 bytes or more may end inside a character."""
    for mark, name in _MARKS:
        if data.startswith(mark):
            return name
    if (wide := _wide(data[:_LOOK])) is not None:
        return wide
    return "utf-8" if _is_utf8(data) else _guess(data)


def decode(data: bytes, encoding: str) -> str:
    """Decode bytes that may start or end inside a character; undecodable bytes become U+FFFD."""
    name = {"utf-16": _by_mark(data)}.get(encoding, encoding)
    return data.decode(name, "replace")


def _by_mark(data: bytes) -> str:
    return "utf-16" if data[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) else "utf-16-le"


def _wide(sample: bytes) -> str | None:
    """Recognize UTF-16 without a mark: every second byte of Latin text is zero."""
    if len(sample) < 4 or b"\0" not in sample:
        return None
    even, odd = sample[::2].count(0), sample[1::2].count(0)
    half = len(sample) / 2
    if odd > 0.6 * half and even < 0.1 * half:
        return "utf-16-le"
    return "utf-16-be" if even > 0.6 * half and odd < 0.1 * half else None


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return error.start >= len(data) - 4 and len(data) >= _LOOK and error.reason == "unexpected end of data"
    return True


def _guess(data: bytes) -> str:
    """Return the encoding that chardet finds if there is a reason to believe it, else that of Western Europe."""
    import chardet

    sample = _from_first_accent(data)
    found = chardet.detect(sample)["encoding"]
    if found and not found.lower().startswith("utf") and (_is_other_script(sample, found) or _is_accented(sample)):
        return codecs.lookup(found).name
    if _LATIN_9.search(sample):
        return "iso8859-15"
    is_windows = re.search(rb"[\x80-\x9f]", data) and not re.search(rb"[\x81\x8d\x8f\x90\x9d]", data)
    return "cp1252" if is_windows else "latin-1"


def _from_first_accent(data: bytes) -> bytes:
    """Return 16,384 bytes from the line on that has the first byte above 127, which is where a character begins."""
    found = _NOT_ASCII.search(data)
    first = found.start() if found else 0
    return data[max(data.rfind(b"\n", 0, first) + 1, first - 400) :][:_LOOK]


def _is_other_script(sample: bytes, encoding: str) -> bool:
    """Return whether most letters of the decoded text are neither ASCII nor of a Latin alphabet."""
    letters = [char for char in sample.decode(encoding, "replace") if char.isalpha()]
    other = sum(char > "\u02ff" and not "\u1e00" <= char <= "\u1eff" for char in letters)
    return len(letters) > 3 and other > _OTHER_SCRIPT * len(letters)


def _is_accented(sample: bytes) -> bool:
    high = len(sample) - len(sample.translate(None, _HIGH))
    return len(sample) >= _LONG and high >= _ACCENTED * len(sample)
