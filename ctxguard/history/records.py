"""Records: messages in the user role that stages wrote, such as summaries, with a digest in their first line.

If records were recognized by their opening words, a user who quotes one could lose a message. A digest of the text
cannot match by accident.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from hashlib import blake2b
from importlib.resources import files
from itertools import islice
from typing import Any, Final, NamedTuple

from ctxguard.artifacts import Artifact, Kind

RECALLED: Final = (
    "Recalled from earlier in this conversation, oldest first, because it may matter for the next message. "
    "A record of what was said, not a new request."
)
"""Title of the record that quotes recalled messages."""
SUMMARY: Final = "Summary of the earlier conversation, which is no longer shown. A record, not a request."
"""Title of the summary that replaces compacted messages."""
TRAIL: Final = "Trail, not a request."
"""Title of the trail, the message that summarizes evicted messages line by line."""
CHECKPOINT: Final = "Checkpoint. A record of what was reached, not a request."
"""Title of the message that replaces the messages of completed phases."""
JOINT: Final = "\n\n"
"""The separator with which messages of one role are joined for providers that require alternating roles."""
_DIGEST_LETTERS: Final = 6
"""Length of a digest. With 6 letters, a text with a made-up digest passes for a record with a chance of 1 in 300
million; each letter costs half a token."""
_LETTERS: Final = "abcdefghijklmnopqrstuvwxyz"
_HEADER: Final = re.compile(
    rf"\[(?P<title>[^\[\]\n]{{1,200}}) Record "
    rf"(?P<digest>[a-z]{{{_DIGEST_LETTERS}}})(?P<length>[a-z]{{1,7}})\]\n"
)
_MOST_HEADERS: Final = 64
"""Maximum number of lines in one text that look like the first line of a record and whose digests are verified.

Real texts contain a handful of such lines."""


class Record(NamedTuple):
    """A record that was found in a message.

    Attributes:
        title: The title in the first line.
        body: The text below the first line.
        end: Offset in the message, in characters, at which the record ends.
    """

    title: str
    body: str
    end: int


def write_record(title: str, body: str) -> str:
    """Write a record: a first line with the title, a digest, and the length of the body, followed by the body.

    The digest consists of letters only, so that no PII rule matches it. Mask title and body before: a record that is
    changed afterwards is no longer recognized.

    Args:
        title: One or two sentences without brackets or line breaks.
        body: The text of the record.
    """
    return f"[{title} Record {_digest(title, body)}{_to_letters(len(body))}]\n{body}"


def _digest(title: str, body: str) -> str:
    data = f"{title}\n{body}".encode("utf-8", "surrogatepass")
    return _to_letters(int.from_bytes(blake2b(data, digest_size=8).digest(), "big"))[:_DIGEST_LETTERS]


def _to_letters(number: int) -> str:
    """Write a number in base 26 with the digits a to z, the least significant digit first."""
    spelled = ""
    while number or not spelled:
        number, digit = divmod(number, 26)
        spelled += _LETTERS[digit]
    return spelled


def _from_letters(spelled: str) -> int:
    return sum(_LETTERS.index(letter) * 26**place for place, letter in enumerate(spelled))


def _record_at(text: str, start: int) -> Record | None:
    header = _HEADER.match(text, start)
    if header is None:
        return None
    # a truncated body or a wrong length leads to another digest, so nothing else needs to be checked
    body = text[header.end() : header.end() + _from_letters(header["length"])]
    if _digest(header["title"], body) != header["digest"]:
        return None
    return Record(header["title"], body, header.end() + len(body))


def leading_records(text: str) -> list[Record]:
    """Return the records at the beginning of a text, up to the first words that are not part of a record.

    For providers that require alternating roles, records are joined with the user message that follows them.
    """
    records: list[Record] = []
    start = 0
    while text.startswith("[", start) and (record := _record_at(text, start)) is not None:
        records.append(record)
        start = len(text) - len(text[record.end :].lstrip())
    return records


def records_in(text: str) -> list[Record]:
    """Return the records anywhere in a text.

    Only the first 64 lines that look like the first line of a record are examined. The limit bounds the time: each
    digest takes time proportional to the text, and a hostile text may contain many such lines.
    """
    headers = islice(_HEADER.finditer(text), _MOST_HEADERS)
    found = (_record_at(text, header.start()) for header in headers)
    return [record for record in found if record is not None]


def headers_in(text: str) -> list[tuple[int, int]]:
    """Return the start and end offset of the first line of each record in a text, see `records_in`."""
    headers = islice(_HEADER.finditer(text), _MOST_HEADERS)
    return [header.span() for header in headers if _record_at(text, header.start()) is not None]


def pieces_of(text: str) -> list[str]:
    """Undo the joining of messages: split a text into the records in it and the texts around them.

    A text in which a record is not separated by blank lines, or in which something only looks like a record, is
    returned as a single piece.
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
    """Return whether a blank line separates the record from `start` to `end` from the text before and after it.

    The text before the record begins at `begin`. No blank line is needed where there is no text.
    """
    return (start == begin or text.endswith(JOINT, begin, start)) and (end == len(text) or text.startswith(JOINT, end))


def is_synthetic(artifact: Artifact) -> bool:
    """Return whether an artifact is a message in the user role that stages wrote, in this call or an earlier one."""
    return artifact.kind is Kind.USER and is_record(artifact.text)


def is_record(text: str) -> bool:
    """Return whether a text consists only of records."""
    records = leading_records(text)
    return bool(records) and not text[records[-1].end :].strip()


def record_title(artifact: Artifact) -> str | None:
    """Return the title of a message that a stage wrote, or None for other artifacts."""
    return leading_records(artifact.text)[0].title if is_synthetic(artifact) else None


def is_asked(artifact: Artifact) -> bool:
    """Return whether an artifact is a message in the user role that was written by a user, not by a stage."""
    return artifact.kind is Kind.USER and not is_synthetic(artifact)


_UNSPACED: Final = "unspaced_"
"""Prefix of the tables with phrases of languages that are written without spaces. They match anywhere."""
_RANKING: Final = ("standing", "habits", "tellers", "politeness", "orders", "moment")


class Phrase(NamedTuple):
    """A phrase in a text.

    Attributes:
        start: Offset of its first character.
        end: Offset after its last character.
        table: The table that lists it, without the prefix `unspaced_`.
    """

    start: int
    end: int
    table: str


@cache
def _tables() -> dict[str, dict[str, Any]]:
    return tomllib.loads(files("ctxguard").joinpath("data/phrases.toml").read_text(encoding="utf-8"))


def listed(table: str) -> list[str]:
    """Return the phrases in a table, of all languages."""
    by_language = _tables().get(table, {}).values()
    return [each for one in by_language for each in (one.split() if isinstance(one, str) else one)]


@cache
def _automaton(tables: tuple[str, ...]) -> Any:  # noqa: ANN401 - pyahocorasick has no types
    from ahocorasick import Automaton

    found: dict[str, list[tuple[int, str, bool]]] = {}
    for table in tables:
        for name in (table, f"{_UNSPACED}{table}"):
            for phrase in listed(name):
                found.setdefault(phrase, []).append((len(phrase), table, name == table))
    automaton = Automaton()
    for phrase, uses in found.items():
        automaton.add_word(phrase, tuple(uses))
    automaton.make_automaton()
    return automaton


def phrases_in(text: str, *tables: str) -> Iterator[Phrase]:
    """Yield the phrases in a text, by their ends. Case and the form of apostrophes do not matter.

    Args:
        text: The text.
        tables: The tables to search for; none means all that rank sentences.
    """
    folded = text.replace("İ", "i").lower().replace("’", "'")  # "İ" alone takes more characters in lower case
    for last, uses in _automaton(tables or _RANKING).iter(folded):
        for length, table, is_spaced in uses:
            start, end = last + 1 - length, last + 1
            if not is_spaced or not (_in_word(folded, start - 1) or _in_word(folded, end)):
                yield Phrase(start, end, table)


def _in_word(text: str, place: int) -> bool:
    return 0 <= place < len(text) and (text[place].isalnum() or text[place] == "_")


@lru_cache(maxsize=4_096)
def is_standing(text: str) -> bool:
    """Return whether a text is phrased as a standing instruction ("never", "must", "from now on")."""
    return any(True for _ in phrases_in(text, "standing"))


_ENDS: Final = re.compile(r"(?<=[.!?…])([\"'”’»)\]]*)\s+|(?<=[。！？])([”’」』）]*)|\n+")
_QUOTED: Final = re.compile(
    r"“[^”\n]{1,200}”|„[^“”\n]{1,200}[“”]|«[^»\n]{1,200}»|\"[^\"\n]{1,200}\"|‘[^’\n]{1,200}’(?!\w)|(?<!\w)'[^\n]{1,200}?'(?!\w)"
)
"""Words in quotation marks, on one line and short, so that a mark that is never closed quotes nothing."""
_LAST_WORD: Final = re.compile(r"(?<![\w.])(\w+(?:\.\w+)*)\.")
_LONGEST_WORD: Final = 8
"""Number of characters before a period in which an abbreviation is searched."""


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a text, in order, without the spaces between them; some may be empty."""
    return (text[start:end] for start, end in sentence_spans(text))


def sentence_spans(text: str) -> Iterator[tuple[int, int]]:
    """Yield where each sentence starts and ends.

    A sentence ends at a line break, and at a mark such as a period, with the quotation marks and brackets that close
    there. A period after an abbreviation or an initial ends none, nor does a mark inside a quotation, or at its end if
    the next letter is a small one.
    """
    quoted, place, start = quoted_spans(text), 0, 0
    for match in _ENDS.finditer(text):
        end = match.end(match.lastindex) if match.lastindex else match.start()
        if match.lastindex:
            while place < len(quoted) and quoted[place][1] < end:
                place += 1
            is_quoted = place < len(quoted) and quoted[place][0] < end
            goes_on = is_quoted and (end < quoted[place][1] or text[match.end() : match.end() + 1].islower())
            if goes_on or _is_abbreviated(text, end):
                continue
        yield start, end
        start = match.end()
    yield start, len(text)


def quoted_spans(text: str) -> Sequence[tuple[int, int]]:
    """Return where the quotations of a text start and end, with their marks, in order."""
    return [match.span() for match in _QUOTED.finditer(text)]


def _is_abbreviated(text: str, end: int) -> bool:
    """Return whether a text has an abbreviation or an initial, such as the `J.` of a name, right before `end`."""
    begin = max(0, end - _LONGEST_WORD - 1)
    last = None if text[end - 1] != "." else _LAST_WORD.fullmatch(text[begin:end].rsplit(maxsplit=1)[-1])
    if last is None:
        return False
    is_initial = len(last[1]) == 1 and last[1].isupper() and last[1] != "I"
    return is_initial or last[1].lower() in _abbreviations()


@cache
def _abbreviations() -> frozenset[str]:
    return frozenset(listed("abbreviations"))
