"""Find names and addresses that the text itself announces: after a label, a phrase, or a title, and in a letter.

The phrases of `data/words` form a tree of words. A node at which a phrase ends has frames: a *frame* describes the text
between the phrase and the value, and the function that judges the value. One pass over the words of a text finds the
phrases of all languages, so the time does not depend on their number.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import product
from typing import Final

from ctxguard.pii.detect import people
from ctxguard.pii.detect.listed import lower
from ctxguard.pii.detect.people import Place
from ctxguard.pii.detect.tables import columns, grid_rows
from ctxguard.pii.rules.words import words

PERSON: Final = "PERSON"
ADDRESS: Final = "ADDRESS"
_WORD: Final = re.compile(r"[^\W\d_]+\d?(?![^\W_])")
# A faster expression for words in lower case, and a table that replaces all ASCII separators by spaces.
_SPACED: Final = bytes(code if chr(code).isalnum() and code < 128 else 32 for code in range(256))
_WORDS: Final = re.compile("[a-zß-öø-ÿĀ-ɏ]+\\d?")
# The separator between the words of a phrase, or between the words of a JSON key.
_GAP: Final = re.compile(r"[ _.’'/+-]{1,2}|")
# The text between a label and its value: `": "`, `:** `, `=`, `</b>`, `" value="`, ` is `.
_JOINT: Final = (
    r"[\"'”’*_`)\]\\]{0,5}(?:</\w{1,10}>)?[ \t]{0,4}(?:\"[ \t]value=|::?|[-=]?>|=|\t|(?<=[ \t])(?:is|ist|est"
    r"|es|è|é|to|jest)(?=[ \t]))"
    r"[ \t]{0,12}(?:\n[ \t]{0,4})?[\"'“‘*_`(\[\\]{0,5}[ \t]{0,4}"
)
_SPACE: Final = r"[ \t,:+]{1,3}[\"'“*]{0,3}"
_REST: Final = r"(?P<value>[^\W\d_][^\n\"<>{}\[\]|;]{1,60})"
_UP_TO_SIGN: Final = r"(?P<value>[^\W\d_][^\n\"<>{}\[\]|;:=,]{1,60})"
_LINES: Final = r"(?P<value>[^\W_][^\"<>{}\[\]|;\n]{2,100}(?:\n[ \t]{0,8}[^\W_,][^\"<>{}\[\]|;\n]{1,60}){0,5})"
_CODE: Final = (
    r"(?P<value>(?:[A-Za-z]{1,3}[- ])?(?=[A-Za-z]{0,3}\d)[A-Za-z0-9]{2,5}"
    r"(?:[ -](?=[A-Za-z0-9]{0,2}\d)[A-Za-z0-9]{2,4})?(?: [A-Z]{2})?)(?![^\W_])"
)
_CALLED: Final = r"[^\W\d_]\S{1,20}(?: [^\W\d_]\S{0,20}){0,3}?"
# The text after a label that is a column heading, and the key before an object: `"customer": {`.
_COLUMN: Final = re.compile(r"[\"'*_`)]{0,3}(?:[ \t]{0,20}(?:[|,;\t\n\r\]<)]|\Z)|  )")
_OWNER: Final = re.compile(r"\"[^\"\n]{1,30}\"\s{0,4}:\s{0,4}(?:\[\s{0,20})?\Z")
# A word before a label; after a semicolon, the label is a parameter of iCalendar: `ORGANIZER;CN=`.
_LAST_WORD: Final = re.compile(r"[^\W_][^\n;]\Z")
_BEGINS: Final = frozenset("\n\"'>*_#]|.!?,:(“")


@dataclass(frozen=True, slots=True)
class Frame:
    """Describes the text that may follow a phrase, and how the value in this text is judged.

    Attributes:
        label: The label of the value.
        behind: Expression for the text after the phrase; its group `value` is judged.
        judge: Takes a string and `how`, and returns the start and end offset of the value in the string; None if the
            string does not begin with a value.
        how: The form that the value must have, see `people.name` and `people.address`.
        begins: Whether the phrase must begin a line, a sentence, or a string.
        beside: Expression for labels, one of which must be nearby; None if none is required.
        is_capital: Whether the phrase must (True) or must not (False) begin with a capital; None allows both.
        is_label: Whether the phrase can also be the heading of a table column.
    """

    label: str
    behind: re.Pattern[str]
    judge: Callable[[str, str], Place | None]
    how: str
    begins: bool = False
    beside: re.Pattern[str] | None = None
    is_capital: bool | None = None
    is_label: bool = False

    def judged_alone(self, value: str) -> Place | None:
        """Return the result of `judge` for a value that is certainly complete: a whole string or table cell."""
        return self.judge(value, "full" if self.beside is not None and self.how == "words" else self.how)


@dataclass(slots=True)
class Node:
    """A word in the tree of phrases.

    Attributes:
        following: The words that may follow this word in a phrase.
        frames: A `Frame` for each phrase that ends with this word.
    """

    following: dict[str, Node] = field(default_factory=dict)
    frames: list[Frame] = field(default_factory=list)


def names(text: str) -> Sequence[Place]:
    """Return the start and end offset of each name that the text announces."""
    return _read(text)[0]


def addresses(text: str) -> Sequence[Place]:
    """Return the start and end offset of each address that the text announces."""
    return _read(text)[1]


@lru_cache(maxsize=8)  # the rules for names and for addresses read the same text one after the other
def _read(text: str) -> tuple[Sequence[Place], Sequence[Place]]:
    found: dict[str, list[Place]] = {PERSON: [], ADDRESS: []}
    tables: list[int] = [0]
    headings_end = 0
    for frame, start, end in _phrases(text):
        if frame.is_label and _COLUMN.match(text, end):
            seen = len(tables)
            for label, cell in columns(text, start, tables, _heading) if start >= tables[-1] else ():
                found[label].append(cell)
            headings_end = tables[-2] if len(tables) > seen + 1 else headings_end
            if start < headings_end:  # the heading of the next column is not a value
                continue
        if (place := _value_after(text, frame, start, end)) is not None:
            found[frame.label].append(place)
    for label, cell in _grid_values(text) if len(tables) > 1 else ():
        found[label].append(cell)
    return tuple(found[PERSON]), tuple(found[ADDRESS])


def _phrases(text: str) -> Iterator[tuple[Frame, int, int]]:
    """Yield each phrase in a text with its frame, start, and end, in text order.

    Of phrases that begin with the same word, the longest comes first.
    """
    tree = _tree().following
    lowered = lower(text)
    # few words of a text begin a phrase, and `str.find` searches for these very fast
    there = words_of(text)
    beginning = [one for one in tree.keys() & there if tree[one].frames or not there.isdisjoint(tree[one].following)]
    starts = sorted(place for word in beginning for place in _places(word, lowered))
    for start, end in starts:
        for frame, behind in _paths(lowered, tree[lowered[start:end]], end):
            yield frame, start, behind


@lru_cache(maxsize=8)
def words_of(text: str) -> set[str]:
    """Return the words of a text in lower case."""
    lowered = lower(text)
    # for ASCII, translating bytes takes a third of the time of an expression
    if not lowered.isascii():
        return set(_WORDS.findall(lowered))
    return set(lowered.encode().translate(_SPACED).decode().split())


def _places(word: str, lowered: str) -> Iterator[tuple[int, int]]:
    size = len(word)
    start = lowered.find(word)
    while start >= 0:
        end = start + size
        if not (lowered[end : end + 1].isalpha() or (start and lowered[start - 1].isalpha())):
            yield start, end
        start = lowered.find(word, end)


def _paths(lowered: str, node: Node, end: int) -> Sequence[tuple[Frame, int]]:
    ends: list[tuple[Frame, int]] = []
    while True:
        ends += ((frame, end) for frame in node.frames)
        if not node.following:
            break
        gap = _GAP.match(lowered, end)
        word = _WORD.match(lowered, gap.end() if gap else end)
        following = node.following.get(word[0]) if word else None
        if word is None or following is None:
            break
        node, end = following, word.end()
    return ends[::-1]


def _value_after(text: str, frame: Frame, start: int, end: int) -> Place | None:
    """Return the start and end offset of the value that follows a phrase; None if there is none."""
    if frame.is_capital is not None and frame.is_capital != text[start].isupper():
        return None
    # in `file_name` and `restaurant name`, the word before shows that it is not a person's name
    if frame.beside is not None and (
        (text[start - 1 : start] in "_-." and start) or _LAST_WORD.search(text, max(0, start - 2), start)
    ):
        return None
    if frame.begins and not _is_beginning(text, start):
        return None
    match = frame.behind.match(text, end)
    if match is None:
        return None
    # in a JSON object, the value of an ambiguous label must have several words if it is next to `gender`: one word may
    # be a product's name; next to `surname`, one word is enough (the frames differ in `how`)
    is_quoted = start > 0 and text[start - 1] in "\"'"
    place = frame.judged_alone(match["value"]) if is_quoted else frame.judge(match["value"], frame.how)
    if place is None:
        return None
    begin = match.start("value")
    value = begin + place[0], begin + place[1]
    return value if frame.beside is None or _is_label_nearby(text, start, value[1], frame.beside) else None


def _is_beginning(text: str, start: int) -> bool:
    before = text[max(0, start - 3) : start]
    bare = before.rstrip(" ")
    return not before or before.endswith("  ") or (bare[-1:] in _BEGINS if bare else start < 3)


_NEAR: Final = 200  # characters around a phrase that count as nearby
_FAR: Final = 600  # the same in a JSON object, before the objects in it are left out
_NESTED: Final = re.compile(r"\{[^{}]*\}")


def _is_label_nearby(text: str, start: int, end: int, beside: re.Pattern[str]) -> bool:
    """Return whether a label matched by `beside` is nearby: within 200 characters, in the same object or paragraph."""
    before = text[max(0, start - _NEAR) : start]
    behind = text[end : end + _NEAR]
    if text[start - 1 : start] == '"' or text[end : end + 1] == '"':
        before = _NESTED.sub("", text[max(0, start - _FAR) : start])[-_NEAR:]
        behind = _NESTED.sub("", text[end : end + _FAR])[:_NEAR]
        inside, owner = before.rfind("{") + 1, _OWNER.search(before, 0, max(0, before.rfind("{")))
        before, behind = before[owner.start() if owner else inside :], behind.partition("}")[0]
    before = before.rpartition("\n\n")[2]
    behind = behind.partition("\n\n")[0]
    return beside.search(before) is not None or beside.search(behind) is not None


def _heading(cell: str, line: str) -> tuple[str, Callable[[str], Place | None]] | None:
    """Return the label of a column's values and the function that judges them, as its heading announces.

    Return None if the heading does not announce names or addresses.

    Args:
        cell: The column heading.
        line: The line with all column headings.
    """
    lowered = lower(cell.strip(" \t\"'*_`"))
    if (match := _WORD.search(lowered)) is None or (node := _tree().following.get(match[0])) is None:
        return None
    for frame, end in _paths(lowered, node, match.end()):
        stands = frame.beside is None or (match.start() == 0 and frame.beside.search(line) is not None)
        if frame.is_label and end == len(lowered) and stands:
            return frame.label, frame.judged_alone
    return None


def _grid_values(text: str) -> Iterator[tuple[str, Place]]:
    """Yield the label and the offsets of each value in recognized columns of tables with rows in brackets or tags."""
    headings: list[Place] = []
    for row in grid_rows(text):
        if row.headings != headings:
            headings = row.headings
            line = text[headings[0][0] : headings[-1][1]]
            judges = [_heading(text[a:b], line) for a, b in headings]
        for (a, b), judge in zip(row.cells(text), judges, strict=False):
            if judge is not None and (place := judge[1](text[a:b])) is not None:
                yield judge[0], (a + place[0], a + place[1])


# The tree of phrases.


def _expand(listed: Sequence[str]) -> Iterator[str]:
    """Yield the phrases of a list, with each alternative expanded: `(first|last) name` gives two phrases."""
    for one in listed:
        pieces = (piece.split("|") if number % 2 else [piece] for number, piece in enumerate(re.split(r"[()]", one)))
        yield from (" ".join("".join(chosen).split()) for chosen in product(*pieces))


def _labels(*sections: str) -> re.Pattern[str]:
    labels = (label.replace(" ", "[ _.-]?") for section in sections for label in _expand(words(section)))
    return re.compile(rf"(?<![^\W\d_])(?i:{'|'.join(labels)})s?(?![^\W\d_])")


@lru_cache(maxsize=1)
def _tree() -> Node:
    """Return the root of the tree of all phrases that announce a name or an address."""
    root = Node()
    for listed, frame in (*_of_persons(), *_of_addresses()):
        for phrase in _expand(listed):
            _put(root, phrase.split(), frame)
            if frame.is_label and " " in phrase:
                _put(root, [phrase.replace(" ", "")], frame)
    return root


def _of_name_labels(joint: re.Pattern[str]) -> list[tuple[Sequence[str], Frame]]:
    labeled = partial(Frame, PERSON, joint, people.name, is_label=True)
    whole = partial(Frame, PERSON, joint, people.name, "whole", is_label=True)
    # after the parameters of vCard and iCalendar; in `CN=Jane Roe:mailto:…`, the name ends at the colon
    record = re.compile(rf"(?:;[A-Z-]{{1,20}}=[^:;\n]{{1,30}}){{0,4}}{_JOINT}{_UP_TO_SIGN}", re.IGNORECASE)
    key = re.compile(r'"\s{0,4}:\s{0,40}(?:\[\s{0,40})?"(?P<value>[^"\\\n]{1,60})"')
    numbered = re.compile(rf"\A\W{{0,9}}{_labels('customer_ids').pattern}")
    owned = re.compile(rf'\A"{_labels("customers", "clients").pattern}":')
    return [
        (words("customers"), whole()),
        (words("customers"), labeled("full", begins=True, beside=_labels("customer_ids"))),
        (words("clients"), whole(beside=_labels("beside_clients"))),
        (words("plain_name_labels"), whole(beside=numbered)),
        (words("plain_name_labels"), whole(beside=owned)),
        (words("name_labels"), labeled("field")),
        (words("plain_labels"), labeled("words", beside=_labels("beside_names"))),
        (words("plain_name_labels"), labeled("closed", beside=_labels("beside_parts"))),
        (
            words("record_names"),
            Frame(PERSON, record, people.name, "whole", beside=_labels("beside_records"), is_label=True),
        ),
        (words("given_labels"), Frame(PERSON, key, people.name, "closed", beside=_labels("family_labels"))),
        (words("family_labels"), Frame(PERSON, key, people.name, "closed", beside=_labels("given_labels"))),
        (("nom",), labeled("closed", beside=_labels("beside_parts", "beside_nom"))),
    ]


def _of_persons() -> list[tuple[Sequence[str], Frame]]:
    joint, space = re.compile(_JOINT + _REST, re.IGNORECASE), re.compile(_SPACE + _REST)
    calling = re.compile(rf" (?P<value>{_CALLED})(?=,? (?i:{'|'.join(words('behind_callers'))})(?![^\W_]))")
    closing = re.compile(
        r"[,.!]?[ \t]{0,3}(?:\n{1,3}|  |(?<=,) )[ \t*_–—-]{0,4}(?P<value>[^\W\d_](?:(?!  )[^\n\"<>{}\[\]|;\\]){1,60})"
    )
    acting = re.compile(rf" (?P<value>{_CALLED})(?= (?:{'|'.join(words('acting'))})(?![^\W_]))")
    channel = re.compile(r"\][ \t](?P<value>[^\W\d_][^\n]{1,40})")
    title = re.compile(r"\.?[ \t+]{1,2}(?P<value>(?:(?!  ).){2,60})")
    return [
        *_of_name_labels(joint),
        (words("patients"), Frame(PERSON, joint, people.name, "full")),
        (words("patients")[1:], Frame(PERSON, space, people.name, "full", is_capital=True)),
        (
            words("plain_labels"),
            Frame(PERSON, joint, people.name, "full", begins=True, beside=_labels("beside_contacts")),
        ),
        (words("introductions"), Frame(PERSON, space, people.name, "said")),
        (words("name_phrases"), Frame(PERSON, space, people.name, "words")),
        (words("selves"), Frame(PERSON, space, people.name, "full", begins=True)),
        (words("callers"), Frame(PERSON, calling, people.name, "words")),
        (words("relatives"), Frame(PERSON, space, people.name, "words")),
        (words("channels"), Frame(PERSON, channel, people.name, "closed")),
        (words("roles"), Frame(PERSON, space, people.name, "full", is_capital=False)),
        (words("roles"), Frame(PERSON, acting, people.name, "full", begins=True, is_capital=True)),
        (words("titles"), Frame(PERSON, title, people.name, "words", is_capital=True)),
        (words("greetings"), Frame(PERSON, space, people.name, "closed", begins=True)),
        (words("closings"), Frame(PERSON, closing, people.name, "line", begins=True)),
    ]


def _of_addresses() -> list[tuple[Sequence[str], Frame]]:
    joint = re.compile(_JOINT + _REST, re.IGNORECASE)
    lines, spaced = re.compile(_JOINT + _LINES, re.IGNORECASE), re.compile(r"[ \t:]{1,3}" + _LINES)
    part = re.compile(r"[\"'\\]{0,3}[ \t]?[:=>][ \t]{0,8}[\"'\\]{0,3}(?P<value>[^\W_][^\"<>{}\[\]|;\n,]{0,60})")
    code = re.compile(_JOINT + _CODE, re.IGNORECASE)
    return [
        (words("address_labels"), Frame(ADDRESS, lines, people.address, "field", is_label=True)),
        (words("address_parts"), Frame(ADDRESS, part, people.address, "part", is_label=True)),
        (words("address_phrases"), Frame(ADDRESS, spaced, people.address, "said")),
        (words("postal_codes"), Frame(ADDRESS, code, people.code, "field", is_label=True)),
        (
            words("cities"),
            Frame(ADDRESS, joint, people.city, "field", beside=_labels("beside_cities"), is_label=True),
        ),
    ]


def _put(root: Node, phrase: Sequence[str], frame: Frame) -> None:
    node = root
    for word in phrase:
        node = node.following.setdefault(word, Node())
    if frame not in node.frames:
        node.frames.append(frame)
