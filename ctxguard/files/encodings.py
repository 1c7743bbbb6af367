"""Find the encoding of a text file: by a byte-order mark, by a test for UTF-8 or UTF-16, or else by a guess.

Nearly any bytes are valid in nearly any 8-bit encoding, so a guess needs evidence. A script other than Latin is
recognized by words that consist only of its letters, and its encoding is then detected by `chardet`. A Latin alphabet
from outside Western Europe is recognized by words with letters that no Western European language has. Repeated words
count once, because a log repeats a few words many times. Any other text is Latin-1, or Windows-1252 if it contains
bytes that are letters or signs only in Windows-1252.
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
_SAMPLE: Final = 16_384  # bytes that are examined for evidence
_OTHER_SCRIPT: Final = 0.7
"""If at least this share of the non-ASCII letters is in words without ASCII letters, the text is in another script. In
Western texts, the share is low."""
_NOT_ASCII: Final = re.compile(rb"[\x80-\xff]")
_WORD: Final = re.compile(rb"[^\0-@[-`{-\x7f\x80\x82\x84\x85\x8b\x91-\x97\x99\x9b\xa0\xab\xbb]+")
"""Letters and non-ASCII bytes, except for the quotes and dashes that all Windows encodings share."""
_AROUND: Final = "¿¡¢£¤¥€§°©®ªº¹²³½¼¾±×µ·"
"""Signs that precede or follow words in Western texts."""
_C1: Final = re.compile(rb"[\x80-\x9f]")
_EURO: Final = re.compile(rb"\d ?\xa4|\xa4 ?\d")
"""The byte 0xA4 next to a number (`5 €`): a euro sign in ISO 8859-15, but not in Latin-1."""
_KANA: Final = re.compile(r"[\u3041-\u30fe]")
_WESTERN: Final = (
    *("æøåéèêóòôäöü", "åäöéàüæø", "äöåéüšž", "äöüßéèàç", "ëïéèöüáóíêûôç", "àâæçèéêëîïôœùûüÿ", "àèéìòùîêï", "áéíóúüñç"),
    *("áâãàçéêíóôõúüè", "àáçèéíïòóúüñ", "áéíóúýþæöð", "äöõüšžé", "áéíóú"),
)
"""Non-ASCII letters in Danish and Norwegian, Swedish, Finnish, German, Dutch, French, Italian, Spanish, Portuguese,
Catalan, Icelandic, Estonian, and Irish texts, including their foreign words, as far as Windows-1252 has them."""
_CENTRAL: Final = ("ąćęłńóśźż", "áčďéěíňóřšťúůýž", "áäčďéíĺľňóôŕšťúýž", "áéíóöőúüű", "čćđšž", "ăâîşţ")
_LATIN: Final = {
    **dict.fromkeys(("cp1252", "iso8859-15"), _WESTERN),
    **dict.fromkeys(("cp1250", "iso8859-2"), _CENTRAL),
    **dict.fromkeys(("cp1254", "iso8859-9"), ("âçğıİîöşüû",)),
    **dict.fromkeys(("cp1257", "iso8859-13"), ("ąčęėįšųūž", "āčēģīķļņšūž", "äöõüšž")),
}
"""Letters by encoding: Western Europe; Polish to Romanian (`_CENTRAL`); Turkish; Lithuanian, Latvian, and Estonian."""
_CANDIDATES: Final = (
    *_LATIN,
    *("iso8859-1", "cp1251", "koi8-r", "koi8-u", "iso8859-5", "cp1253", "iso8859-7", "cp1255", "iso8859-8", "cp1256"),
    *("iso8859-6", "cp874", "gb18030", "big5hkscs", "cp949", "euc_kr"),
)
"""The encodings that chardet may choose. Those of DOS, Macintosh, and mainframes are not among them, because they fit
short Western texts too easily."""


def find_encoding(data: bytes) -> str:
    """Return the name of the encoding of a text from its bytes.

    The bytes may be only the start of the text. If there are at least 16,384, they may also end inside a character.
    """
    for mark, name in _MARKS:
        if data.startswith(mark):
            return name
    if (wide := _wide(data[:_SAMPLE])) is not None:
        return wide
    return "utf-8" if _is_utf8(data) else _guess(data)


def is_guessed(encoding: str) -> bool:
    """Return whether `find_encoding` returns this encoding only on the evidence of words."""
    return not encoding.startswith("utf-") and encoding not in ("latin-1", "cp1252", "iso8859-15")


def decode(data: bytes, encoding: str) -> str:
    """Decode bytes that may start or end inside a character; bytes that cannot be decoded become U+FFFD."""
    is_bare = encoding == "utf-16" and data[:2] not in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
    return data.decode("utf-16-le" if is_bare else encoding, "replace")


def _wide(sample: bytes) -> str | None:
    """Recognize UTF-16 without a byte-order mark, in which every second byte of Latin text is zero."""
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
        return error.start >= len(data) - 4 and len(data) >= _SAMPLE and error.reason == "unexpected end of data"
    return True


def _guess(data: bytes) -> str:
    """Return a Western European encoding, or one of another script or alphabet if the bytes are evidence for it."""
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
    """Return up to 16,384 bytes, beginning with the line that has the first non-ASCII byte."""
    found = _NOT_ASCII.search(data)
    first = found.start() if found else 0
    return data[max(data.rfind(b"\n", 0, first) + 1, first - 400) :][:_SAMPLE]


def _opinion(sample: bytes) -> str | None:
    """Return the encoding that chardet detects; None if it detects none or is not installed."""
    try:
        import chardet
    except ImportError:  # the extra `files` is not installed
        return None
    found = chardet.detect(sample, include_encodings=_CANDIDATES, compat_names=False)["encoding"]
    return codecs.lookup(found).name if found else None


def _japanese(sample: bytes) -> str | None:
    """Return the Japanese encoding in which over 40% of the non-ASCII characters are kana; None if there is none."""
    for name in ("cp932", "euc_jp"):
        text = sample.decode(name, "replace")
        if len(_KANA.findall(text)) > 0.4 * sum(not char.isascii() for char in text):
            return name
    return None


def _other_script(sample: bytes, opinion: str | None) -> str | None:
    """Return `opinion`, chardet's result, if with it the non-ASCII letters form words in another script; else None."""
    words = re.findall(r"[^\W\d_]+", sample.decode(opinion, "replace")) if opinion else []
    other = sum(len(word) for word in words if len(word) > 1 and all(_is_other(char) for char in word))
    above = sum(not char.isascii() for word in words for char in word)
    return opinion if above > 3 and other >= _OTHER_SCRIPT * above else None


def _is_other(char: str) -> bool:
    return char > "\u02ff" and not "\u1e00" <= char <= "\u1eff"


def _other_latin(sample: bytes, opinion: str | None) -> str | None:
    """Return the encoding of another Latin alphabet if the words do not fit those of Western Europe; otherwise None."""
    words = {word for word in _WORD.findall(sample) if not word.isascii()}
    unwritten = {name: min(_count_unwritten(words, name, letters) for letters in _LATIN[name]) for name in _LATIN}
    windows = _C1.search(sample) is not None

    def order(name: str) -> tuple[int, bool, bool]:
        return unwritten[name], _LATIN[name] is not _LATIN.get(opinion or ""), name.startswith("iso") == windows

    name = min(_LATIN, key=order)
    left, strange = unwritten[name], unwritten["cp1252"]
    if name == "iso8859-15":  # it has letters where Latin-1 has signs, which words do not contain
        return name if left < strange else None
    # One word may be foreign. Without chardet's agreement, the encoding must explain most of the strange words.
    agreed = _LATIN[name] is _LATIN.get(opinion or "")
    return name if left <= (strange - 2 if agreed else (strange - 2) / 3) else None


def _count_unwritten(words: set[bytes], encoding: str, letters: str) -> int:
    """Return how many words, decoded with `encoding`, contain a letter that is not in `letters`."""
    texts = (word.decode(encoding, "replace").strip(_AROUND) for word in words)
    return sum(any(not (c.isascii() or c in letters or c.lower() in letters) for c in text) for text in texts)
