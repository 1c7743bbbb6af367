"""Decode text files: byte-order mark, UTF-8, UTF-16 without a mark, then a guess if the evidence is strong.

Nearly any bytes are valid in nearly any old encoding, so a guess needs evidence. Another script is recognized by words
of its letters alone, and then identified by `chardet`. Another Latin alphabet is recognized by words with letters that
no language of Western Europe has. Words count once, however often they occur: a log repeats a few. Anything else is
Latin-1, or Windows-1252 if it uses the bytes by which the two differ.
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
_LOOK: Final = 16_384  # bytes that are examined
_OTHER_SCRIPT: Final = 0.7
"""Share of the letters above ASCII that must be in words without ASCII letters; in Western texts few are."""
_NOT_ASCII: Final = re.compile(rb"[\x80-\xff]")
_WORD: Final = re.compile(rb"[^\0-@[-`{-\x7f\x80\x82\x84\x85\x8b\x91-\x97\x99\x9b\xa0\xab\xbb]+")
"""Runs of letters and bytes above ASCII, without quotes and dashes, which are the same in all Windows encodings."""
_AROUND: Final = "¿¡¢£¤¥€§°©®ªº¹²³½¼¾±×µ·"
"""Signs that Western texts set before and behind words."""
_C1: Final = re.compile(rb"[\x80-\x9f]")
_EURO: Final = re.compile(rb"\d ?\xa4|\xa4 ?\d")
"""This byte next to a number means a euro sign only in ISO 8859-15: `5 €`."""
_KANA: Final = re.compile(r"[\u3041-\u30fe]")
_WESTERN: Final = (
    *("æøåéèêóòôäöü", "åäöéàüæø", "äöåéüšž", "äöüßéèàç", "ëïéèöüáóíêûôç", "àâæçèéêëîïôœùûüÿ", "àèéìòùîêï", "áéíóúüñç"),
    *("áâãàçéêíóôõúüè", "àáçèéíïòóúüñ", "áéíóúýþæöð", "äöõüšžé", "áéíóú"),
)
"""Letters of Danish and Norwegian, Swedish, Finnish, German, Dutch, French, Italian, Spanish, Portuguese, Catalan,
Icelandic, Estonian, Irish, as Windows-1252 writes them, with those of their foreign words."""
_CENTRAL: Final = ("ąćęłńóśźż", "áčďéěíňóřšťúůýž", "áäčďéíĺľňóôŕšťúýž", "áéíóöőúüű", "čćđšž", "ăâîşţ")
_LATIN: Final = {
    **dict.fromkeys(("cp1252", "iso8859-15"), _WESTERN),
    **dict.fromkeys(("cp1250", "iso8859-2"), _CENTRAL),
    **dict.fromkeys(("cp1254", "iso8859-9"), ("âçğıİîöşüû",)),
    **dict.fromkeys(("cp1257", "iso8859-13"), ("ąčęėįšųūž", "āčēģīķļņšūž", "äöõüšž")),
}
"""Letters of Polish, Czech, Slovak, Hungarian, Croatian, Romanian; Turkish; Lithuanian, Latvian, Estonian."""
_CANDIDATES: Final = (
    *_LATIN,
    *("iso8859-1", "cp1251", "koi8-r", "koi8-u", "iso8859-5", "cp1253", "iso8859-7", "cp1255", "iso8859-8", "cp1256"),
    *("iso8859-6", "cp874", "gb18030", "big5hkscs", "cp949", "euc_kr"),
)
"""The choices of chardet: encodings of DOS, Macintosh and mainframes fit short Western texts too easily."""


def find_encoding(data: bytes) -> str:
    """Return the name of the encoding of a text; a start of 16,384 bytes or more may end inside a character."""
    for mark, name in _MARKS:
        if data.startswith(mark):
            return name
    if (wide := _wide(data[:_LOOK])) is not None:
        return wide
    return "utf-8" if _is_utf8(data) else _guess(data)


def is_guessed(encoding: str) -> bool:
    """Return whether `find_encoding` finds this encoding only by the evidence of words, against the default."""
    return not encoding.startswith("utf-") and encoding not in ("latin-1", "cp1252", "iso8859-15")


def decode(data: bytes, encoding: str) -> str:
    """Decode bytes that may start or end inside a character; undecodable bytes become U+FFFD."""
    is_bare = encoding == "utf-16" and data[:2] not in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
    return data.decode("utf-16-le" if is_bare else encoding, "replace")


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
    """Return the encoding of another script or another Latin alphabet if there is evidence, else that of the West."""
    sample = _from_first_accent(data)
    opinion = _opinion(sample)
    found = _japanese(sample) or _other_script(sample, opinion) or _other_latin(sample, opinion)
    if found is not None:
        return found
    if _EURO.search(sample):
        return "iso8859-15"
    is_windows = _C1.search(data) and not re.search(rb"[\x81\x8d\x8f\x90\x9d]", data)
    return "cp1252" if is_windows else "latin-1"


def _from_first_accent(data: bytes) -> bytes:
    """Return 16,384 bytes from the line on that has the first byte above 127, which is where a character begins."""
    found = _NOT_ASCII.search(data)
    first = found.start() if found else 0
    return data[max(data.rfind(b"\n", 0, first) + 1, first - 400) :][:_LOOK]


def _opinion(sample: bytes) -> str | None:
    """Return the encoding that chardet detects; None if it detects none."""
    try:
        import chardet
    except ImportError:  # the extra `files` is not installed
        return None
    found = chardet.detect(sample, include_encodings=_CANDIDATES, compat_names=False)["encoding"]
    return codecs.lookup(found).name if found else None


def _japanese(sample: bytes) -> str | None:
    """Return the encoding in which most of the characters above ASCII are kana; no other text decodes so."""
    for name in ("cp932", "euc_jp"):
        text = sample.decode(name, "replace")
        if len(_KANA.findall(text)) > 0.4 * sum(not char.isascii() for char in text):
            return name
    return None


def _other_script(sample: bytes, opinion: str | None) -> str | None:
    """Return chardet's result if the letters above ASCII form words of another script; else None."""
    words = re.findall(r"[^\W\d_]+", sample.decode(opinion, "replace")) if opinion else []
    other = sum(len(word) for word in words if len(word) > 1 and all(_is_other(char) for char in word))
    above = sum(not char.isascii() for word in words for char in word)
    return opinion if above > 3 and other >= _OTHER_SCRIPT * above else None


def _is_other(char: str) -> bool:
    return char > "\u02ff" and not "\u1e00" <= char <= "\u1eff"


def _other_latin(sample: bytes, opinion: str | None) -> str | None:
    """Return the encoding of another Latin alphabet if it can write what Western Europe cannot; else None."""
    words = {word for word in _WORD.findall(sample) if not word.isascii()}
    unwritten = {name: min(_unwritten(words, name, letters) for letters in _LATIN[name]) for name in _LATIN}
    windows = _C1.search(sample) is not None

    def order(name: str) -> tuple[int, bool, bool]:
        return unwritten[name], _LATIN[name] is not _LATIN.get(opinion or ""), name.startswith("iso") == windows

    name = min(_LATIN, key=order)
    left, strange = unwritten[name], unwritten["cp1252"]
    if name == "iso8859-15":  # it differs from Latin-1 by letters instead of signs, which words do not contain
        return name if left < strange else None
    # One word may be foreign; without chardet's agreement, most of the strange words must be explained.
    agreed = _LATIN[name] is _LATIN.get(opinion or "")
    return name if left <= (strange - 2 if agreed else (strange - 2) / 3) else None


def _unwritten(words: set[bytes], encoding: str, letters: str) -> int:
    """Count the words with a letter that an alphabet does not have."""
    texts = (word.decode(encoding, "replace").strip(_AROUND) for word in words)
    return sum(any(not (c.isascii() or c in letters or c.lower() in letters) for c in text) for text in texts)
