"""Find the distinctive strings of a text: the paths, ids, numbers and names that a later step would have to repeat."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

Labeled = tuple[str, str]
"""The label of a name (`user_id` in `user_id=kb42`; empty if there is none) and the name."""

_HEAD: Final = 49_152  # characters that are searched from the start of a text, and
_TAIL: Final = 16_384  # from its end, so that the cost of any text is bounded
_LONGEST: Final = 120  # characters: longer strings are data, not names
_CUT_END: Final = re.compile(r"\S+$")
_CUT_START: Final = re.compile(r"^\S+")
_RUN: Final = re.compile(r"[\w./@:#$-]{4,}")
_MARKED: Final = re.compile(r"\d|_|/|.[A-Z]|.\..")
_ENDS: Final = ".:-/"
_REDACTED: Final = "REDACTED_"
"""The beginning of a redaction, which identifies nothing."""
_PLACEHOLDER: Final = re.compile(r"[A-Z][A-Z_]*_\d{1,6}")
"""The inside of a pseudonym (`<EMAIL_1>`): only with its brackets can it be replaced by the value again."""
_OPENS: Final = ".-"
_ESCAPE: Final = re.compile(r"(?:[nrt](?=[A-Z/_$@])|u[0-9a-f]{4}|x[0-9a-f]{2}|033)")
"""The rest of a line break, or of another escape, that was spelled out (`\\n`)."""
_COLOR: Final = re.compile(r"\d{1,2}m")
_ESC: Final = ("\x1b", "\\u001b", "\\x1b", "\\033", "\\e")
"""The beginning of a code that colors a terminal, up to its bracket: `ESC[31m`."""
_GLUED: Final = re.compile(r"(?<=[a-z])[.:!?][A-Z][a-z']*$")
_ONE_LETTER: Final = re.compile(r"[a-z]+[.:!?][IA]")
"""The next sentence, without a space before it (`tests.Now`)."""
_GOES_ON: Final = re.compile(r"[^\S\n]+(?:[a-z]|I\b)")
"""The text after the first word of a sentence; the name of a class is followed by other code, or by nothing."""
_LINE_NUMBER: Final = re.compile(r"\d{1,6}:(?!\d)")
_WORD: Final = re.compile(r"[^\W_]")
_LABEL: Final = re.compile(r"(?:(\w(?:[\w .-]{0,28}\w)?)[*_\s]*:|(\w{1,30})\s*=)[*_\s\"'`(\[{$]*$")
"""A label before a name: `Flight number: `, `**Order:** `, `user_id=`."""
_LABEL_WORDS: Final = 3
"""Words that a label may have: with more it is a sentence, which says what to do rather than what the name is."""
_LABEL_BEFORE: Final = 44  # characters before a name that are searched for its label
_FIELD: Final = re.compile(r"[^\W\d]+\d?")
"""The name of a field, as opposed to a key that is an id or a path."""


def ends_of(text: str) -> str:
    """Return the first 48 K and the last 16 K characters of a text, or all of a shorter one."""
    if len(text) <= _HEAD + _TAIL:
        return text
    # Not within a name: the rest of one would be another.
    before, last = text[: _HEAD - _LONGEST], text[_HEAD - _LONGEST : _HEAD]
    first, behind = text[-_TAIL : _LONGEST - _TAIL], text[_LONGEST - _TAIL :]
    return f"{before}{_CUT_END.sub('', last)}\n{_CUT_START.sub('', first)}{behind}"


def names_in(text: str) -> tuple[str, ...]:
    """Return the distinctive strings of a text, each once, in the order in which they first appear.

    A distinctive string has 4 to 120 letters, digits and characters of `_./@:#$-`, and contains a digit, `_`, `/`, an
    inner capital (`PUNERT` may be an id) or an inner dot; a placeholder keeps its brackets (`<EMAIL_1>`). Of a text
    above 64 K characters, the first 48 K and the last 16 K are searched, so the cost of any text is bounded.
    """
    return tuple(dict.fromkeys(name for _, name in _runs(ends_of(text))))


def _runs(text: str) -> Iterator[tuple[int, str]]:
    """Yield the distinctive strings of a text with where they begin."""
    for match in _RUN.finditer(text):
        if not _MARKED.search(match[0]):  # most words; what is taken off below adds no mark
            continue
        run = _plain(match[0], text, match.start())
        # `23:def` in a listing is a line number and a word.
        if run[:1].isdigit() and text[match.start() - 1 : match.start()] in ("", "\n"):
            run = _LINE_NUMBER.sub("", run)
        run = run.rstrip(_ENDS)
        if _ONE_LETTER.fullmatch(run) or _GOES_ON.match(text, match.end()):
            run = _GLUED.sub("", run)
        run = run.lstrip(_OPENS)
        if text[match.start() - 1 : match.end() + 1] == f"<{run}>" and _PLACEHOLDER.fullmatch(run):
            run = f"<{run}>"
        if 4 <= len(run) <= _LONGEST and _is_distinctive(run):
            yield match.start(), run


def _plain(run: str, text: str, start: int) -> str:
    """Return a run without the rest of an escape that ends within it; nothing for a closing tag."""
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
    """Return whether a run is a name, not a word, punctuation or a placeholder. Capitals may be an id (`PUNERT`)."""
    return not run.startswith(_REDACTED) and bool(_MARKED.search(run) and _WORD.search(run))


def labeled_names(text: str, most: int | None = None) -> tuple[Labeled, ...]:
    """Return the distinctive strings of a text, or the rarest, each once, in order, with their labels.

    The label is the key in JSON, and the words before a colon or an equals sign on the same line. A key
    is a label and no name of its own, unless it looks like an id or a path (`{"src/app.py": "modified"}`).
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
    """Yield the distinctive strings of the values of a tree (see `walk`) with their keys, as often as they appear."""
    from ctxguard.content.processors.tree import MARK

    told: set[str] = set()
    for key, node in pairs:
        if key not in told and _FIELD.fullmatch(key) is None:
            yield from (("", name) for _, name in _runs(key))
        told.add(key)
        # Entries that say how much of a bounded view is shown are not values of it.
        if isinstance(node, str) and not node.startswith(MARK):
            names = tuple(name for _, name in _runs(ends_of(node)))
            # A sentence does not identify its key's value, a single name does.
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
    """Return the JSON object or array that a text is or begins with; None for any other text."""
    if text.lstrip()[:1] not in ("{", "["):
        return None
    from ctxguard.content.processors.json_tree import parse_json, parse_start

    try:
        tree = parse_json(text) if len(text) <= _HEAD else parse_start(text[:_HEAD])
    except ValueError:
        # Tools often truncate their output: its complete part still has its keys.
        try:
            tree = parse_start(text[:_HEAD])
        except ValueError:
            return None
    return tree if isinstance(tree, (dict, list)) else None


def walk(tree: object) -> Iterator[tuple[str, object]]:
    """Yield a tree of JSON: each value under a key, and each plain item of a list under the key of its list, in order.

    Without recursion: the nesting of text from models and tools is unlimited.
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
    """Return names as text, each label once before the names that follow it: `city Rome zip 00184 00185`."""
    told, last = [], ""
    for label, name in names:
        if label and label != last:
            told.append(label)
        told.append(name)
        last = label
    return " ".join(told)
