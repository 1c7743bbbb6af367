"""Detect the type of a file: by its extension, its first bytes, and its text."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from ctxguard.content.detection import detect
from ctxguard.content.views import FileType
from ctxguard.files.encodings import decode, find_encoding
from ctxguard.files.opening import FACTS

_EXTENSIONS: Final = {
    f".{name}": FileType(kind) for kind, names in FACTS["extensions"].items() for name in names.split()
}
_MAGIC: Final = tuple((sign.encode("latin-1"), FileType(kind)) for sign, kind in FACTS["signatures"].items())
_OLE: Final = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
"""First bytes of Office files before 2007, and of newer ones that are protected by a password."""
_PRINTABLE_SIGN: Final = re.compile(rb"%PDF-\d\.\d[ \t]*[\r\n]|BZh[1-9]1AY&SY")
"""Printable signatures that no text begins with. A text may begin with the others: `BMW`, `ID3 is a tree`."""
_IN_ZIP: Final = {FileType.DOCX, FileType.PPTX, FileType.SPREADSHEET, FileType.ARCHIVE}
_OFFICE: Final = ((b"word/", FileType.DOCX), (b"ppt/", FileType.PPTX), (b"xl/", FileType.SPREADSHEET))
_SNIFFED: Final = {FileType.TEXT, FileType.LOG}
_PRINTED: Final = {FileType.IMAGE, FileType.AUDIO, FileType.PDF, FileType.BINARY, *_IN_ZIP}


def detect_file(name: str, head: bytes) -> FileType:
    """Return the type of a file: that of its extension, unless its first bytes (up to 65,536) contradict it."""
    suffix = Path(name).suffix.lower()
    named = _EXTENSIONS.get(suffix)
    magic = _signed(head)
    if magic is FileType.ARCHIVE and head[:2] == b"PK":
        return named if named in _IN_ZIP else next((kind for part, kind in _OFFICE if part in head), FileType.ARCHIVE)
    if head.startswith(_OLE) and named in _PRINTED:
        return named
    if magic is not None:
        return magic
    if named in _PRINTED and head and not (named is FileType.IMAGE or named is FileType.AUDIO):
        named = None
    if named is None or named in _SNIFFED:
        return _by_content(named, head)
    if named is FileType.JSON and _by_content(None, head) is FileType.JSONL:
        return FileType.JSONL
    return named


def _signed(head: bytes) -> FileType | None:
    """Return the type of a signature, unless it may also be the beginning of a text."""
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
    """Return whether data is binary: zero bytes outside of UTF-16, or many control characters."""
    sample = head[:8192]
    if b"\0" in sample and find_encoding(head).startswith(("utf-16", "utf-32")):
        return False
    control = sum(map(sample.count, (bytes([code]) for code in range(32) if code not in (7, 8, 9, 10, 12, 13, 27))))
    return b"\0" in sample[:1024] or control > 0.1 * max(1, len(sample))
