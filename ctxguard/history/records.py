"""Who really wrote a message: stages write some in the user's role, and mark them with a digest.

If such texts were recognized by their opening words, a user who quotes them could lose a message; a digest over the
text itself cannot match by accident.
"""

from __future__ import annotations

import re
from hashlib import blake2b
from itertools import islice
from typing import Final, NamedTuple

from ctxguard.artifacts import Artifact, Kind

RECALLED: Final = (
    "Recalled from earlier in this conversation, oldest first, because it may matter for the next message. "
    "A record of what was said, not a new request."
)
"""Title of the block of recalled messages."""
SUMMARY: Final = "Summary of the earlier conversation, which is no longer shown. A record, not a request."
"""Title of the summary that replaces compacted messages."""
TRAIL: Final = "Trail, not a request."
"""Title of the message that lists evicted steps."""
CHECKPOINT: Final = "Checkpoint. A record of what was reached, not a request."
"""Title of the message that replaces completed phases."""
JOINT: Final = "\n\n"
"""The separator of joined texts, if roles must alternate."""
_DIGEST_LETTERS: Final = 6
"""One text in 300 million that looks like a record by accident would pass for one; each letter costs half a token."""
_LETTERS: Final = "abcdefghijklmnopqrstuvwxyz"
_HEADER: Final = re.compile(
    rf"\[(?P<title>[^\[\]\n]{{1,200}}) Record "
    rf"(?P<digest>[a-z]{{{_DIGEST_LETTERS}}})(?P<length>[a-z]{{1,7}})\]\n"
)
_MOST_HEADERS: Final = 64
"""Headings of records in one text whose digests are compared; results contain a handful."""
_GAP: Final = re.compile(r"\s*")


class Record(NamedTuple):
    """A text that a stage wrote in the user's role, as found in a message.

    Attributes:
        title: the text of its first line.
        body: the text below that line.
        end: where it ends in the message, in characters.
    """

    title: str
    body: str
    end: int


def write_record(title: str, body: str) -> str:
    """Return a text that is recognizable as written by a stage: a first line with a digest of the whole, and the body.

    The digest is made of letters only, so that no PII rule matches it, and covers the title, the body and its length.
    Mask title and body first: if its text changes, a record is no longer recognized.

    Args:
        title: its title, one or two sentences without brackets or line breaks.
        body: the text.
    """
    return f"[{title} Record {_digest(title, body)}{_spelled(len(body))}]\n{body}"


def _digest(title: str, body: str) -> str:
    data = f"{title}\n{body}".encode("utf-8", "surrogatepass")
    return _spelled(int.from_bytes(blake2b(data, digest_size=8).digest(), "big"))[:_DIGEST_LETTERS]


def _spelled(number: int) -> str:
    """Return a number in base 26, its last digit first."""
    spelled = ""
    while number or not spelled:
        number, digit = divmod(number, 26)
        spelled += _LETTERS[digit]
    return spelled


def _length(spelled: str) -> int:
    return sum(_LETTERS.index(letter) * 26**place for place, letter in enumerate(spelled))


def _record_at(text: str, start: int) -> Record | None:
    header = _HEADER.match(text, start)
    if header is None:
        return None
    # a text that was cut off, or a forged length, gives another digest: no further check is needed
    body = text[header.end() : header.end() + _length(header["length"])]
    if _digest(header["title"], body) != header["digest"]:
        return None
    return Record(header["title"], body, header.end() + len(body))


def leading_records(text: str) -> list[Record]:
    """Return the records at the beginning of a text: all of it, or the part before a user's own words."""
    records: list[Record] = []
    start = 0
    # several: if roles must alternate, records are joined with the user message that follows them
    while text.startswith("[", start) and (record := _record_at(text, start)) is not None:
        records.append(record)
        gap = _GAP.match(text, record.end)
        start = gap.end() if gap else record.end
    return records


def records_in(text: str) -> list[Record]:
    """Return the records anywhere in a text, also when joined to other words: the first ones only.

    Computing a digest takes time proportional to its text, so a text full of such headings would take forever.
    """
    headers = islice(_HEADER.finditer(text), _MOST_HEADERS)
    found = (_record_at(text, header.start()) for header in headers)
    return [record for record in found if record is not None]


def pieces_of(text: str) -> list[str]:
    """Return a text split at the records that blank lines join to it: the records, and the words around them.

    A text that contains anything else resembling a record is not split.
    """
    pieces: list[str] = []
    begin = 0
    for header in _HEADER.finditer(text):
        if header.start() < begin:  # inside the previous record
            continue
        record = _record_at(text, header.start())
        if record is None or not _is_joined(text, begin, header.start(), record.end):
            return [text]
        pieces += [text[begin : header.start() - len(JOINT)]] if header.start() > begin else []
        pieces.append(text[header.start() : record.end])
        begin = min(len(text), record.end + len(JOINT))
    return [*pieces, text[begin:]] if begin < len(text) or not pieces else pieces


def _is_joined(text: str, begin: int, start: int, end: int) -> bool:
    """Return whether only joints lie between a record and the words around it."""
    return (start == begin or text.endswith(JOINT, begin, start)) and (end == len(text) or text.startswith(JOINT, end))


def is_synthetic(artifact: Artifact) -> bool:
    """Return whether stages wrote a message in the user's role, even if it came back as part of a history."""
    return artifact.kind is Kind.USER and is_record(artifact.text)


def is_record(text: str) -> bool:
    """Return whether a text consists only of records of stages."""
    # most texts end here, without a digest being computed
    if not text.startswith("["):
        return False
    records = leading_records(text)
    return bool(records) and not text[records[-1].end :].strip()


def record_title(artifact: Artifact) -> str | None:
    """Return the title of a message that a stage wrote; None for all other artifacts."""
    return leading_records(artifact.text)[0].title if is_synthetic(artifact) else None


def is_asked(artifact: Artifact) -> bool:
    """Return whether a message has the user's role and a user wrote it, not a stage."""
    return artifact.kind is Kind.USER and not is_synthetic(artifact)
