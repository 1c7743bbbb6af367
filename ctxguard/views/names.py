"""Find the distinctive strings in a text: the paths, ids, numbers, and names that a later step would have to repeat."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Final

Labeled = tuple[str, str]
"""A label and a name: `("user_id", "kb42")` for `user_id=kb42`. The label is empty if the name has none."""

_HEAD: Final = 49_152  # characters that are searched from the start of a text, so that the cost is bounded
_TAIL: Final = 16_384  # characters that are searched from the end of a longer text
_LONGEST: Final = 120  # longer strings, in characters, are data rather than names
_CUT_END: Final = re.compile(r"\S+$")
_CUT_START: Final = re.compile(r"^\S+")
_RUN: Final = re.compile(r"[\w./@:#$-]{4,}")
_MARKED: Final = re.compile(r"\d|_|/|.[A-Z]|.\..")
_ENDS: Final = ".:-/"
_REDACTED: Final = "REDACTED_"
"""The beginning of a redacted value, which identifies nothing."""
_PLACEHOLDER: Final = re.compile(r"[A-Z][A-Z_]*_\d{1,6}")
"""The inside of a pseudonym (`<EMAIL_1>`), which can be replaced by its value only if it keeps its brackets."""
_OPENS: Final = ".-"
_ESCAPE: Final = re.compile(r"(?:[nrt](?=[A-Z/_$@])|u[0-9a-f]{4}|x[0-9a-f]{2}|033)")
"""What follows the backslash of a line break or another character that is written as an escape (`\\n`)."""
_COLOR: Final = re.compile(r"\d{1,2}m")
_ESC: Final = ("\x1b", "\\u001b", "\\x1b", "\\033", "\\e")
"""What precedes the bracket in a code that colors a terminal (`ESC[31m`)."""
_GLUED: Final = re.compile(r"(?<=[a-z])[.:!?][A-Z][a-z']*$")
"""The first word of a sentence without a space before it (`tests.Now`)."""
_ONE_LETTER: Final = re.compile(r"[a-z]+[.:!?][IA]")
"""The first word of a sentence without a space before it, if that word has one letter (`tests.I`)."""
_CONTINUES: Final = re.compile(r"[^\S\n]+(?:[a-z]|I\b)")
"""Text that continues a sentence. A class name (`json.Decoder`) is followed by other code, or by nothing."""
_LINE_NUMBER: Final = re.compile(r"\d{1,6}:(?!\d)")
_WORD: Final = re.compile(r"[^\W_]")
_LABEL: Final = re.compile(r"(?:(\w(?:[\w .-]{0,28}\w)?)[*_\s]*:|(\w{1,30})\s*=)[*_\s\"'`(\[{$]*$")
"""A label before a name: `Flight number: `, `**Order:** `, `user_id=`."""
_LABEL_WORDS: Final = 3
"""Maximum number of words in a label; more words are a sentence, which does not say what the name stands for."""
_LABEL_BEFORE: Final = 44  # characters before a name in which its label is searched
_FIELD: Final = re.compile(r"[^\W\d]+\d?")
"""A key that is the name of a field rather than an id or a path."""


def ends_of(text: str) -> str:
    """Return the first 49,152 and the last 16,384 characters of a text; all of it if it has no more characters."""
    if len(text) <= _HEAD + _TAIL:
        return text
    # A name at the cut is removed, because a part of it would look like another name.
    before, last = text[: _HEAD - _LONGEST], text[_HEAD - _LONGEST : _HEAD]
    first, behind = text[-_TAIL : _LONGEST - _TAIL], text[_LONGEST - _TAIL :]
    return f"{before}{_CUT_END.sub('', last)}\n{_CUT_START.sub('', first)}{behind}"


def names_in(text: str) -> tuple[str, ...]:
    """Return the distinctive strings in a text without duplicates, in order of first appearance.

    A distinctive string consists of 4 to 120 letters, digits, and characters from `_./@:#$-`. It contains a digit, `_`,
    `/`, a capital after its first character (`PUNERT` may be an id), or a dot inside. A placeholder keeps its brackets
    (`<EMAIL_1>`). In a text with over 65,536 characters, only the first 49,152 and the last 16,384 are searched.
    """
    return tuple(dict.fromkeys(name for _, name in _runs(ends_of(text))))


def _runs(text: str) -> Iterator[tuple[int, str]]:
    """Yield an offset and a string for each distinctive string in a text, including repeated ones."""
    for match in _RUN.finditer(text):
        if not _MARKED.search(match[0]):  # most words; what is removed below adds no mark
            continue
        run = _plain(match[0], text, match.start())
        # `23:def` in a listing is a line number and a word.
        if run[:1].isdigit() and text[match.start() - 1 : match.start()] in ("", "\n"):
            run = _LINE_NUMBER.sub("", run)
        run = run.rstrip(_ENDS)
        if _ONE_LETTER.fullmatch(run) or _CONTINUES.match(text, match.end()):
            run = _GLUED.sub("", run)
        run = run.lstrip(_OPENS)
        if text[match.start() - 1 : match.end() + 1] == f"<{run}>" and _PLACEHOLDER.fullmatch(run):
            run = f"<{run}>"
        if 4 <= len(run) <= _LONGEST and _is_distinctive(run):
            yield match.start(), run


def _plain(run: str, text: str, start: int) -> str:
    """Remove the rest of an escape sequence from the start of a match; return an empty string for a closing tag."""
    before = text[start - 1 : start]
    if before == "<" and run[0] == "/":  # a closing tag
        return ""
    if before == "\\":
        escape = _ESCAPE.match(run)
    elif before == "[" and text.endswith(_ESC, max(0, start - 8), start - 1):
        escape = _COLOR.match(run)
    else:
        return run
    return run if escape is None else run[escape.end() :]


def _is_distinctive(run: str) -> bool:
    """Return whether a match is a name, rather than a word, punctuation, or a redacted value."""
    return not run.startswith(_REDACTED) and bool(_MARKED.search(run) and _WORD.search(run))


def labeled_names(text: str, most: int | None = None) -> tuple[Labeled, ...]:
    """Return the distinctive strings in a text with their labels, without duplicates, in order of first appearance.

    A label is the key in JSON, and elsewhere the words before a colon or an equals sign on the same line. A key in JSON
    is also a name of its own if it looks like an id or a path (`{"src/app.py": "modified"}`).

    Args:
        text: The text to search.
        most: Maximum number of names to return. If there are more, the rarest are returned. None returns all.
    """
    labels: dict[str, str] = {}
    seen: Counter[str] = Counter()
    for label, name in _all_names(text):
        labels.setdefault(name, label)
        seen[name] += 1
    chosen = labels if most is None or len(labels) <= most else set(sorted(labels, key=seen.__getitem__)[:most])
    return tuple((label, name) for name, label in labels.items() if name in chosen)


def _all_names(text: str) -> Iterator[Labeled]:
    tree = tree_of(text)
    return _labeled_runs(text) if tree is None else names_under(walk(tree))


def names_under(pairs: Iterable[tuple[str, object]]) -> Iterator[Labeled]:
    """Yield the distinctive strings in values, including repeated ones, each with the key if it is the whole value.

    `pairs` are keys and values as `walk` yields them. A key that looks like an id or a path is also a string of its
    own.
    """
    from ctxguard.views.processors.tree import MARK

    seen: set[str] = set()
    for key, node in pairs:
        if key not in seen and _FIELD.fullmatch(key) is None:
            yield from (("", name) for _, name in _runs(key))
        seen.add(key)
        # A mark that says how much a bounded view shows is not a value.
        if isinstance(node, str) and not node.startswith(MARK):
            names = tuple(name for _, name in _runs(ends_of(node)))
            # A name is labeled with the key only if it is the whole value.
            yield from ((key if names == (node,) else "", name) for name in names)


def _labeled_runs(text: str) -> Iterator[Labeled]:
    text = ends_of(text)
    for start, name in _runs(text):
        line = text[max(0, start - _LABEL_BEFORE) : start].rpartition("\n")[2]
        found = _LABEL.search(line) if ":" in line or "=" in line else None
        label = (found[1] or found[2]) if found else ""
        if not (_FIELD.fullmatch(name) and text.startswith("=", start + len(name))):
            yield (label if len(label.split()) <= _LABEL_WORDS else ""), name


def tree_of(text: str) -> object:
    """Parse the JSON object or array at the start of a text; return None if the text does not start with one."""
    if text.lstrip()[:1] not in ("{", "["):
        return None
    from ctxguard.views.processors.tree import parse_json, parse_start

    # Tools often truncate their output; the complete part is still JSON with keys.
    for parse in (parse_json, parse_start) if len(text) <= _HEAD else (parse_start,):
        with suppress(ValueError):
            return parse(text[:_HEAD])
    return None


def walk(tree: object) -> Iterator[tuple[str, object]]:
    """Yield the values of a JSON tree in order, each with its key. An item of a list is yielded with the list's key.

    No recursion is used, because the nesting of text from models and tools is unlimited.
    """
    stack: list[tuple[str, object]] = [("", tree)]
    while stack:
        key, node = stack.pop()
        yield key, node
        if isinstance(node, dict):
            stack.extend(reversed(node.items()))
        elif isinstance(node, list):
            stack.extend((key, item) for item in reversed(node))


def labeled(names: Iterable[Labeled]) -> str:
    """Join names with their labels. Adjacent names with one label share it: `city Rome zip 00184 00185`."""
    words, last = [], ""
    for label, name in names:
        if label and label != last:
            words.append(label)
        words.append(name)
        last = label
    return " ".join(words)
