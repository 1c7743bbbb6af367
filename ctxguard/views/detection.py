"""Detect the type of a text from its first characters and lines."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from ctxguard.views.views import FileType

_SAMPLE = 16_384  # characters that are examined, so that detection takes constant time
_STAMP = re.compile(
    r"^\W{0,4}(?:<\d+>\d? ?)?(?:[A-Z][a-z]{2} [A-Z][a-z]{2} +\d|[A-Z][a-z]{2} +\d+ \d\d:\d\d"
    r"|\d{2,4}[-/]\d\d?[-/]\d{2,4}|\d\d:\d\d:\d\d|\d{10}[. ]|time=|ts=)|^\S+ \S+ \S+ \[\d\d/[A-Z][a-z]{2}/\d{4}"
)
_LEVEL = re.compile(
    r"\b(?:TRACE|DEBUG|INFO|NOTICE|WARN|WARNING|ERROR|FATAL|CRITICAL|SEVERE|PASSED|FAILED|SKIPPED)\b"
    r"|\blevel=\w|^(?:ok|not ok) \d|\.\.\. (?:ok|FAIL|ERROR|skipped)|^E  "
)
_RUN = re.compile(
    r"\n(?:Traceback \(most recent call last\)|={5,} .{3,60} ={5,}$|Exception in thread|panic: |npm ERR!"
    r"|\S+:\d+:(?:\d+:)? (?:fatal )?(?:error|warning)|(?:FAILED|ERROR)\b"
    r"|\W{0,2}\d{4}-\d\d-\d\d[T ]\d\d:\d\d.{0,60}\b(?:DEBUG|INFO|WARN(?:ING)?|ERROR|FATAL|CRITICAL)\b"
    r"|Ran \d+ tests? in |(?:OK|FAILED) \()",
    re.MULTILINE,
)
_EXIT = re.compile(r"exit (?:code|status)\W+\d")
_CODE = re.compile(
    r"^\s*(?:def \w+\(.*\).*:|class \w+.*[:{]|(?:async )?function\b.*\{|import [\w.{*]|from [\w.]+ import|#include"
    r"|package \w|func \w*.*\{|(?:pub |public |private |static |export |const |let |var )+\w.*|fn \w+|return\b.*;?"
    r"|if \(?.*[:{]$|for .*[:{]$|[})\]]+;?$)"
)
_SNAPSHOT = re.compile(
    r"^\s*- (?:generic|link|button|heading|text(?:box)?|img|list(?:item)?|paragraph|navigation|main|banner|document"
    r"|region|combobox|checkbox|radio|table|row|cell|form|search(?:box)?|contentinfo|article|menu(?:item)?|tab|dialog"
    r"|group)\b|\[ref=\w+\]|^\s*\[\d+\]\s*(?:<\w|[A-Z]?\w+ ['\"])|^\s*uid=\w+ \w+|\bRootWebArea\b"
)
_CONSOLE = re.compile(
    r"^\s*(?:- )?\[(?:LOG|ERROR|WARN|WARNING|INFO|DEBUG|VERBOSE|PAGEERROR)\]|^console\.(?:log|error|warn|info|debug)\b",
    re.IGNORECASE,
)
_KEY = re.compile(r"""\s*(?:- )*(?:[\w./-]+|"[^"]{1,80}"|'[^']{1,80}'):(?:\s|$)""")
_AT_MARGIN = re.compile(rf"""{_KEY.pattern}|- |-$|#|---(?:\s|$)|\.\.\.$|[}}\]]""")
_MARKDOWN = re.compile(r"^(?:#{1,6} \S|```|[-*] \S|\d+\. \S|\|.*\|$|> )")


def detect(text: str) -> FileType:
    """Return the type of a text, or `FileType.TEXT` if it has no known structure.

    Only the first 16,384 characters and, to recognize a log, the last 4,096 are examined. The text is not parsed, so it
    may turn out not to be valid for the type.
    """
    start = text[:_SAMPLE].lstrip("\ufeff \t\r\n")
    if start[:1] in ("{", "["):
        return _detect_bracketed(start)
    if start[:1] == "<" and re.match(r"<[!?A-Za-z]", start):
        return _detect_markup(start)
    lines = [line for line in start.splitlines() if line.strip()]
    if len(text) > _SAMPLE:
        lines = lines[:-1]
        start += "\n" + text[-_SAMPLE // 4 :]
    return _by_lines(lines[:200], start)


def _detect_bracketed(start: str) -> FileType:
    lines = [line.strip() for line in start.splitlines() if line.strip()]
    if _share(lines[:50], _CONSOLE) > 0.5:
        return FileType.CONSOLE
    if re.match(r"\[\d+\]\s*[<\w]", start) and _share(lines[:200], _SNAPSHOT) > 0.3:
        return FileType.SNAPSHOT
    is_stamp = re.match(r"\[\d[^\],\[]*[-/:][^\],\[]*\]?", start) is not None  # a time in brackets
    if not is_stamp and re.match(r"\[\s*(?:[\[{\"\]\d\-]|true|false|null)", start):
        return FileType.JSON
    if start[0] == "[":
        return _by_lines(lines[:200], start)
    if len(lines) > 1 and lines[0].endswith("}") and all(re.match(r'\{\s*["}]', line) for line in lines[:20]):
        return FileType.JSONL
    return FileType.JSON if re.match(r'\{\s*["}]', start) else _by_lines(lines[:200], start)


def _detect_markup(start: str) -> FileType:
    if re.match(r"(?is)<!doctype html|<html|(?:<!--.*?-->\s*)?<!doctype html", start) or re.search(
        r"(?i)<(?:body|head)\b", start[:4000]
    ):
        return FileType.HTML
    if re.match(r"(?i)<(?:div|span|p|table|a|ul|section|main|article|h[1-6])\b", start):
        return FileType.HTML
    if re.match(r"<\d+>", start):
        return FileType.LOG
    return FileType.XML if re.match(r"<\?xml|<!--|<!DOCTYPE|<[A-Za-z_][\w.:-]*[\s/>]", start) else FileType.TEXT


def _by_lines(lines: list[str], start: str) -> FileType:
    return next((kind for kind, matches in _TESTS if lines and matches(lines, start)), FileType.TEXT)


def _share(lines: list[str], pattern: re.Pattern[str]) -> float:
    return sum(1 for line in lines if pattern.search(line[:400])) / max(1, len(lines))


def _is_table(lines: list[str]) -> bool:
    """Return whether lines are a table: at least three, most of which have the same number of separators."""
    if len(lines) < 3:
        return False
    bare = [re.sub(r'"(?:[^"]|"")*"', "", line[:2000]) if '"' in line else line[:2000] for line in lines[:40]]
    for separator in ("\t", ",", ";", "|"):
        counts = [line.count(separator) for line in bare]
        usual = max(set(counts), key=counts.count)
        least = 1 if separator == "\t" or _is_pairs(bare, separator) else 2
        if usual >= least and counts.count(usual) >= 0.8 * len(counts) and counts[0] == usual:
            return separator != "|" or not lines[1].strip().startswith("|-")
    return False


def _is_pairs(lines: list[str], separator: str) -> bool:
    """Return whether lines are a table of two columns: short lines with one separator and no space after it."""
    return all(
        line.count(separator) == 1 and len(line) <= 200 and f"{separator} " not in line and not line.endswith(".")
        for line in lines
    )


def _is_yaml(lines: list[str]) -> bool:
    """Return whether lines are YAML: two or more have a key, and all that are not indented are valid in YAML."""
    keys = sum(1 for line in lines if _KEY.match(line))
    margin = [line for line in lines if not line[0].isspace()]
    return keys >= 2 and all(map(_AT_MARGIN.match, margin))


def _is_log(lines: list[str], start: str) -> bool:
    if _share(lines, _STAMP) > 0.3 or _share(lines, _LEVEL) > 0.3:
        return True
    return _RUN.search(f"\n{start}") is not None or _EXIT.search(start.lower()) is not None


_TESTS: Final[tuple[tuple[FileType, Callable[[list[str], str], bool]], ...]] = (
    (FileType.CONSOLE, lambda lines, _: _share(lines, _CONSOLE) > 0.4),
    (FileType.SNAPSHOT, lambda lines, _: _share(lines, _SNAPSHOT) > 0.4),
    (FileType.LOG, _is_log),
    (FileType.CSV, lambda lines, _: _is_table(lines)),
    (FileType.CODE, lambda lines, _: _share(lines, _CODE) > 0.25),
    (FileType.YAML, lambda lines, _: _is_yaml(lines)),
    (FileType.MARKDOWN, lambda lines, start: _share(lines, _MARKDOWN) > 0.3 or start.startswith("# ")),
)
"""The tests for types, in the order in which they are made: a log may look like a table, and a table may look like
YAML."""
