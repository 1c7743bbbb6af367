"""Show console messages: errors word for word, everything else grouped by type with counts."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ctxguard.content.processors.text import shorten
from ctxguard.content.views import Limits, Source, TruncationInfo, View, note

if TYPE_CHECKING:
    from collections.abc import Iterable

_LEVEL = re.compile(
    r"^\s*(?:- )?(?:\S{0,40}\d\d:\d\d:\d\d\S{0,20}\s+)?"
    r"(?:\[(?P<boxed>[A-Za-z]+)\]|console\.(?P<call>[a-z]+)\b|(?P<plain>LOG|ERROR|WARN|WARNING"
    r"|INFO|DEBUG)\b)\s*:?\s*(?P<text>.*)",
    re.IGNORECASE,
)
_NAMES = {
    "assert": "error",
    "pageerror": "error",
    "severe": "error",
    "trace": "debug",
    "verbose": "debug",
    "warn": "warning",
}
_SAMPLE = 400_000
_ORDER = ("error", "warning", "log", "info", "debug")
_LEAST = 40
_NUMBERS = re.compile(r"\d+")


@dataclass(slots=True)
class _Message:
    kind: str
    text: str


class ConsoleProcessor:
    """Show console messages; of the limits, `line_length` counts."""

    def __init__(self, source: Source, limits: Limits) -> None:
        self._whole = source
        self._source = source.sampled(_SAMPLE)
        self._length = limits.line_length or 1000
        self._messages = _read(self._source.text)
        self._groups = [(kind, len(group), _folded(group)) for kind, group in _groups(self._messages)]

    def view(self, room: int) -> View:
        """Return the groups, errors first, each message once with how often it came."""
        text = self._whole.text
        total = len(self._messages)
        if len(text) <= room and self._whole.gap is None:
            return View(text, cut=False, info=TruncationInfo(lines_shown=total, lines_total=total))
        marker = f"[{note(self._total(), self._source.handle)}]"
        body = _grouped(self._groups, max(0, room - len(marker) - 1), self._length)
        return View("\n".join([*body, marker]), cut=True, info=TruncationInfo(lines_total=total))

    def _total(self) -> str:
        total = len(self._messages)
        if self._source.gap is None:
            return f"{total} console messages in all"
        return f"{total} console messages read at start and end of {self._source.line_count()} lines"

    def fallbacks(self) -> tuple[str, ...]:
        """Return counts by type, then only the total."""
        counts = ", ".join(f"{total} {kind}" for kind, total, _ in self._groups)
        return f"[{note(counts, self._source.handle)}]", f"[{len(self._messages)} messages]", "…"


def compress_console(text: str, *, max_line: int = 200, max_messages: int = 5) -> str:
    """Return console messages by type: errors word for word, of the others the first `max_messages` distinct ones.

    A message that is not an error is shortened to `max_line` characters.
    """
    messages = _read(text)
    out: list[str] = []
    for kind, group in _groups(messages):
        different = _folded(group)
        shown = different if kind == "error" else different[:max_messages]
        out.append(f"{kind} ({len(group)}):")
        out.extend(_line(message, times, None if kind == "error" else max_line) for message, times in shown)
        if len(shown) < len(different):
            out.append(f"  [… {len(different) - len(shown)} more]")
    compressed = "\n".join(out)
    return compressed if len(compressed) < len(text) else text


def _grouped(groups: list[tuple[str, int, list[tuple[_Message, int]]]], room: int, length: int) -> list[str]:
    out: list[str] = []
    room -= sum(len(kind) + 30 for kind, _, _ in groups)
    for kind, total, different in groups:
        lines: list[str] = []
        for message, times in different:
            most = min(max(length, room // 2), max(_LEAST, room - 16)) if kind == "error" else min(length, 200)
            line = _line(message, times, most)
            if len(line) + 1 > room:
                break
            room -= len(line) + 1
            lines.append(line)
        rest = f", {len(lines)} of {len(different)} different shown" if len(lines) < len(different) else ""
        out.extend([f"{kind} ({total}{rest}):", *lines])
    return out


def _read(text: str) -> list[_Message]:
    """Read messages; a line that names no type continues the message above it."""
    messages: list[_Message] = []
    for raw in text.splitlines():
        match = _LEVEL.match(raw)
        if match is None:
            if messages and raw.strip():
                messages[-1].text += "\n" + raw
            elif raw.strip():
                messages.append(_Message("log", raw))
            continue
        name = (match["boxed"] or match["call"] or match["plain"]).lower()
        messages.append(_Message(_NAMES.get(name, name), match["text"]))
    return messages


def _groups(messages: Iterable[_Message]) -> list[tuple[str, list[_Message]]]:
    groups: dict[str, list[_Message]] = {}
    for message in messages:
        groups.setdefault(message.kind, []).append(message)
    return sorted(groups.items(), key=lambda item: (_ORDER.index(item[0]) if item[0] in _ORDER else 9, item[0]))


def _folded(group: list[_Message]) -> list[tuple[_Message, int]]:
    """Fold messages that differ in numbers alone (errors: in nothing), in the order of their first."""
    counts: dict[str, list[_Message]] = {}
    for message in group:
        key = message.text if message.kind == "error" else _NUMBERS.sub("0", message.text)
        counts.setdefault(key, []).append(message)
    return [(same[0], len(same)) for same in counts.values()]


def _line(message: _Message, times: int, length: int | None) -> str:
    text = message.text if length is None else shorten(message.text, length)
    return f"  {text}" + (f" (×{times})" if times > 1 else "")
