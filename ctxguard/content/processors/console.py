"""Group the messages of a browser console by type: errors in full, the first messages and a count of other types."""

from __future__ import annotations

import re

from ctxguard.content.processors.text import shorten

_LEVEL = re.compile(
    r"^\s*(?:- )?(?:\S{0,40}\d\d:\d\d:\d\d\S{0,20}\s+)?"
    r"(?:\[(?P<boxed>[A-Za-z]+)\]|console\.(?P<call>[a-z]+)\b|(?P<plain>LOG|ERROR|WARN|WARNING"
    r"|INFO|DEBUG)\b)\s*:?\s*(?P<text>.*)",
    re.IGNORECASE,
)
_NAMES = {
    **dict.fromkeys(("assert", "pageerror", "severe"), "error"),
    **dict.fromkeys(("trace", "verbose"), "debug"),
    "warn": "warning",
}
_ORDER = {"error": 0, "warning": 1, "log": 2, "info": 3, "debug": 4}
_NUMBERS = re.compile(r"\d+")


def compress_console(text: str, *, max_line: int = 200, max_messages: int = 5) -> str:
    """Return console messages grouped by type, or the text itself if that is not shorter.

    All distinct errors are quoted in full. Of every other type, the first `max_messages` distinct messages are shown,
    each shortened to `max_line` characters. Messages of these types that differ only in numbers count as the same.
    """
    out: list[str] = []
    for kind, messages in sorted(_by_kind(text).items(), key=lambda item: (_ORDER.get(item[0], 9), item[0])):
        is_error = kind == "error"
        distinct: dict[str, list[str]] = {}
        for message in messages:
            distinct.setdefault(message if is_error else _NUMBERS.sub("0", message), []).append(message)
        out.append(f"{kind} ({len(messages)}):")
        for same in list(distinct.values())[: None if is_error else max_messages]:
            line = same[0] if is_error else shorten(same[0], max_line)
            out.append(f"  {line}" + (f" (×{len(same)})" if len(same) > 1 else ""))
        if not is_error and len(distinct) > max_messages:
            out.append(f"  [… {len(distinct) - max_messages} more]")
    compressed = "\n".join(out)
    return compressed if len(compressed) < len(text) else text


def _by_kind(text: str) -> dict[str, list[str]]:
    """Return the messages of each type; a line without a type continues the message above it."""
    kinds: dict[str, list[str]] = {}
    above: list[str] | None = None
    for line in text.splitlines():
        if match := _LEVEL.match(line):
            name = (match["boxed"] or match["call"] or match["plain"]).lower()
            above = kinds.setdefault(_NAMES.get(name, name), [])
            above.append(match["text"])
        elif line.strip() and above:
            above[-1] += "\n" + line
        elif line.strip():
            above = kinds.setdefault("log", [])
            above.append(line)
    return kinds
