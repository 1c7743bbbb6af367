"""Open files safely inside a folder, find the encoding of a text file, and read its lines.

The encoding is found by a byte-order mark, by a test for UTF-8 or UTF-16, or else by a guess.

Nearly any bytes are valid in nearly any 8-bit encoding, so a guess needs evidence. A script other than Latin is
recognized by words that consist only of its letters, and its encoding is then detected by `chardet`. A Latin alphabet
from outside Western Europe is recognized by words with letters that no Western European language has. Repeated words
count once, because a log repeats a few words many times. Any other text is Latin-1, or Windows-1252 if it contains
bytes that are letters or signs only in Windows-1252.
"""

from __future__ import annotations

import codecs
import errno
import io
import mimetypes
import os
import re
import stat
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import BinaryIO, Final

from ctxguard.views.detection import detect
from ctxguard.views.views import FileType, Source

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


FACTS: Final[Mapping[str, Mapping[str, str]]] = tomllib.loads(
    files("ctxguard").joinpath("data/file_types.toml").read_text(encoding="utf-8")
)
"""The types of files by extension and by their first bytes."""
_MIME: Final = FACTS["mime"]
_PLAIN: Final = frozenset(FACTS["plain"]["extensions"].split())
_TABLE: Final = mimetypes.MimeTypes(filenames=())


class RefusedError(Exception):
    """Raised when a file is not read; the message is the reason, which `read_file` returns with `success=False`."""


@dataclass(frozen=True, slots=True)
class FileMetadata:
    """Facts about a file from the file system and from its content.

    Attributes:
        size: Size of the file in bytes.
        modified: Time of the last change, in UTC.
        mime_type: MIME type based on the file's name; `application/octet-stream` if unknown.
        encoding: Encoding of a text file; None for other files.
        details: Further facts, as pairs of a name and a value: `pixels` for an image; `encoding` with the value
            `guessed by its letters` for a text file whose encoding is neither Unicode nor a Western European one.
    """

    size: int
    modified: datetime
    mime_type: str
    encoding: str | None = None
    details: tuple[tuple[str, str], ...] = ()


class RegularFile(io.FileIO):
    """A file opened for reading that raises BlockingIOError where `io.FileIO` returns None.

    `io.FileIO` returns None if a file, such as some system files, has nothing to read for the moment. The modules that
    read documents expect bytes.
    """

    def readinto(self, buffer: bytearray, /) -> int:  # type: ignore[override]
        """Read bytes into a buffer."""
        size = super().readinto(buffer)
        if size is None:
            raise BlockingIOError(errno.EAGAIN, "nothing to be read without waiting for it")
        return size

    def readall(self) -> bytes:
        """Read up to the end of the file."""
        data = super().readall()
        if data is None:
            raise BlockingIOError(errno.EAGAIN, "nothing to be read without waiting for it")
        return data


def open_file(path: Path, root: Path | None) -> tuple[BinaryIO, FileMetadata]:
    """Open a regular file for reading.

    Args:
        path: The path of the file, relative to `root` if a root is given.
        root: Folder outside of which no file is opened, not even through links; None means no restriction.

    Raises:
        RefusedError: If the file is outside the root, is not a regular file, or cannot be opened.
    """
    try:
        real = _resolve(path, root)
        _require_regular(real.stat().st_mode)
        descriptor = os.open(real, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0))
    except (OSError, ValueError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise RefusedError(f"{reason[:1].lower()}{reason[1:]}") from None
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or not _is_inside(descriptor, path, root):
        os.close(descriptor)
        raise RefusedError("was replaced while it was opened; read it again")
    file = io.BufferedReader(RegularFile(descriptor))  # type: ignore[type-var]  # its readinto never returns None
    return file, FileMetadata(status.st_size, datetime.fromtimestamp(status.st_mtime, UTC), mime_type(path.name))


def mime_type(name: str) -> str:
    """Return the MIME type for a file name, independent of the settings of the machine."""
    suffix = Path(name).suffix.lower().removeprefix(".")
    plain = "text/plain" if suffix in _PLAIN else "application/octet-stream"
    return _MIME.get(suffix) or _TABLE.guess_type(name)[0] or plain


def one_line(path: Path) -> str:
    """Return a path for an error message: on one line, with at most 300 characters."""
    name = str(path).replace("\n", " ")
    return name if len(name) <= 300 else f"{name[:300]}…"


def _resolve(path: Path, root: Path | None) -> Path:
    """Resolve a path; raise an error if it is outside the root. Open the result, because links in `path` may change."""
    if root is None:
        return path.resolve()
    base = root.resolve(strict=True)
    real = (base / path).resolve()
    if not real.is_relative_to(base):
        raise RefusedError(f"is outside of {one_line(root)}, to which reading is confined")
    return real


def _is_inside(descriptor: int, path: Path, root: Path | None) -> bool:
    """Return whether an opened file is inside the root, by its descriptor if `/proc` exists, otherwise by its path."""
    if root is None:
        return True
    link = Path(f"/proc/self/fd/{descriptor}")
    if link.is_symlink():
        return link.readlink().is_relative_to(root.resolve(strict=True))
    return os.path.samestat(os.fstat(descriptor), _resolve(path, root).stat())


def _require_regular(mode: int) -> None:
    kinds = {"d": "a folder", "p": "a pipe (FIFO)", "c": "a device", "b": "a device", "s": "a socket"}
    kind = kinds.get(stat.filemode(mode)[0])
    if kind is not None:
        raise RefusedError(f"is {kind}, not a file that can be read")


_EXTENSIONS: Final = {
    f".{name}": FileType(kind) for kind, names in FACTS["extensions"].items() for name in names.split()
}
_MAGIC: Final = tuple((sign.encode("latin-1"), FileType(kind)) for sign, kind in FACTS["signatures"].items())
_OLE: Final = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
"""The first bytes of Office files before 2007, and of newer ones that are protected by a password."""
_PRINTABLE_SIGN: Final = re.compile(rb"%PDF-\d\.\d[ \t]*[\r\n]|BZh[1-9]1AY&SY")
"""Printable signatures with which no text begins. With other printable signatures a text may begin, such as `BMW` or
`ID3 is a tree`."""
_IN_ZIP: Final = {FileType.DOCX, FileType.PPTX, FileType.SPREADSHEET, FileType.ARCHIVE}
_OFFICE: Final = ((b"word/", FileType.DOCX), (b"ppt/", FileType.PPTX), (b"xl/", FileType.SPREADSHEET))
_SNIFFED: Final = {FileType.TEXT, FileType.LOG}
"""If the extension names one of these types, the type is detected from the content, because a `.txt` file may hold a
table."""
_NOT_TEXT: Final = {FileType.IMAGE, FileType.AUDIO, FileType.PDF, FileType.BINARY, *_IN_ZIP}


def detect_file(name: str, head: bytes) -> FileType:
    """Return the type of a file by its extension, unless its first bytes (up to 65,536) contradict the extension."""
    suffix = Path(name).suffix.lower()
    named = _EXTENSIONS.get(suffix)
    magic = _by_signature(head)
    if magic is FileType.ARCHIVE and head[:2] == b"PK":
        return named if named in _IN_ZIP else next((kind for part, kind in _OFFICE if part in head), FileType.ARCHIVE)
    if head.startswith(_OLE) and named in _NOT_TEXT:
        return named
    if magic is not None:
        return magic
    if named in _NOT_TEXT and head and named not in (FileType.IMAGE, FileType.AUDIO):
        named = None
    if named is None or named in _SNIFFED:
        return _by_content(named, head)
    if named is FileType.JSON and _by_content(None, head) is FileType.JSONL:
        return FileType.JSONL
    return named


def _by_signature(head: bytes) -> FileType | None:
    """Return the type whose signature the first bytes have; None if there is none, or if a text may begin like that."""
    if head[:4] == b"RIFF" and _is_binary(head):
        return FileType.IMAGE if head[8:12] == b"WEBP" else FileType.AUDIO
    for sign, kind in _MAGIC:
        if head.startswith(sign):
            printable = all(32 <= byte < 127 for byte in sign)
            return kind if not printable or _PRINTABLE_SIGN.match(head) or _is_binary(head) else None
    return None


def _by_content(named: FileType | None, head: bytes) -> FileType:
    if _is_binary(head):
        return FileType.BINARY
    looked = detect(decode(head, find_encoding(head)))
    return FileType.LOG if named is FileType.LOG and looked in (FileType.TEXT, FileType.CODE, FileType.YAML) else looked


def _is_binary(head: bytes) -> bool:
    """Return whether data is binary: it contains zero bytes but is not UTF-16 or UTF-32, or many control characters."""
    sample = head[:8192]
    if b"\0" in sample and find_encoding(head).startswith(("utf-16", "utf-32")):
        return False
    control = sum(map(sample.count, (bytes([code]) for code in range(32) if code not in (7, 8, 9, 10, 12, 13, 27))))
    return b"\0" in sample[:1024] or control > 0.1 * max(1, len(sample))


WHOLE: Final = 4_000_000
"""Maximum size in bytes of a text file that is read in full."""
_CHUNK: Final = 1 << 20  # bytes per read
_MAX_RANGE: Final = 8_000_000  # maximum bytes of a range of lines, so that memory is bounded


def read_source(file: BinaryIO, size: int, encoding: str, window: int, *, exact: bool = False) -> Source:
    """Read a text file in full, or only the first and last `window` bytes of one with over 4,000,000 bytes.

    With `exact`, a large file is also read in full once, to count its lines.
    """
    file.seek(0)
    if size <= max(WHOLE, 2 * window):
        # The reported size is not a limit: a file may grow, and files in /proc report a size of 0.
        return Source(decode(file.read(max(WHOLE, 2 * window)), encoding))
    head = _whole_lines(file.read(window), encoding, at_start=True)
    start = size - window
    start -= start % 4
    file.seek(start)
    tail = _whole_lines(file.read(window + 4), _tail_encoding(encoding), at_start=False)
    return Source(head + tail, gap=len(head), size=size, lines=count_lines(file) if exact else None)


def _tail_encoding(encoding: str) -> str:
    return {"utf-8-sig": "utf-8", "utf-16": "utf-16-le"}.get(encoding, encoding)


def _whole_lines(data: bytes, encoding: str, *, at_start: bool) -> str:
    """Decode the start or the end of a file, without the line that was cut off where the data ends or starts."""
    text = decode(data, encoding)
    if at_start:
        end = text.rfind("\n")
        return text[: end + 1] if end > 0 else text.rstrip("\ufffd")
    begin = text.find("\n")
    return text[begin + 1 :] if 0 <= begin < len(text) - 1 else text.lstrip("\ufffd")


def count_lines(file: BinaryIO) -> int:
    """Count the lines in a file by reading it in full, in constant memory."""
    file.seek(0)
    lines, last = 0, b""
    while chunk := file.read(_CHUNK):
        lines += chunk.count(b"\n")
        last = chunk[-1:]
    return lines + (last not in (b"", b"\n"))


def pick_lines(text: str, first: int, last: int) -> str:
    """Return lines `first` to `last` of a text, counted from 1.

    Raises:
        RefusedError: If the text has fewer than `first` lines and `first` is not 1.
    """
    lines = io.StringIO(text, newline="\n").readlines()
    _require_lines(len(lines), first, last)
    return "".join(lines[first - 1 : last])


def describe_range(first: int, last: int) -> str:
    """Return a range as text: `3-9`, or `from 3 on` if it has no end (`3:` on the command line)."""
    return f"from {first} on" if last == sys.maxsize else f"{first}-{last}"


def _require_lines(there_are: int, first: int, last: int) -> None:
    if first > max(1, there_are):
        raise RefusedError(f"has no lines {describe_range(first, last)}, only {there_are}")


def read_lines(file: BinaryIO, encoding: str, first: int, last: int) -> str:
    """Read lines `first` to `last` of a file, but at most 8,000,000 bytes. Errors are raised as by `pick_lines`."""
    file.seek(0)
    if encoding.startswith(("utf-16", "utf-32")):
        return pick_lines(decode(file.read(_MAX_RANGE * 4), encoding), first, last)
    seen, parts, size = 1, [], 0
    for line in iter(lambda: file.readline(_CHUNK), b""):
        if first <= seen <= last and size < _MAX_RANGE:
            parts.append(line)
            size += len(line)
        seen += line.endswith(b"\n")
        if seen > last:
            break
    if not parts:
        _require_lines(count_lines(file), first, last)
    return decode(b"".join(parts), encoding if first == 1 else _tail_encoding(encoding))
