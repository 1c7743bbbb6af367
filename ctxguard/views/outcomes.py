"""Find out how a tool call ended, from the test summary, exit code, or error message in its output."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from ctxguard.views.names import ends_of
from ctxguard.views.processors.log import REPORTED, error_rank, find_errors

LONGEST: Final = 120
"""Maximum number of characters in a quotation: most error messages fit, and a summary of evicted messages can hold
several."""

OPENING_ERROR: Final = re.compile(
    r"\n[^\S\n]*(?:\[?(?:error|fatal|critical|exception|panic)\]?\s*[:\]!]|Traceback \(most recent call last\)"
    r"|(?!no |0 |without )(?:[a-z][\w'-]{0,30}[^\S\n]){1,4}(?:error|exception|failure)s?[^\S\n]?[:!]"
    r"|(?:failed|unable) to \w|could not \w"
    r"|(?-i:(?:[\w.]+\.)?[A-Z]\w*(?:Error|Exception)\b\s*(?::|$)|npm ERR!|E {3,}\S))",
    re.MULTILINE | re.IGNORECASE,
)
"""A line break and a line that begins with an error in one of the usual forms. The word "error" alone is not enough."""
_ERROR_FIELD: Final = re.compile(
    r"""\{\s*["'](?:(?:error|exception)["']\s*:\s*(?!null|none|false|""|''|\[\]|\{\}|0\b)\S|is_?error["']\s*:\s*true)""",
    re.IGNORECASE,
)
_EXIT: Final = re.compile(
    r"\W{0,3}(?:(?:command|process|program)[\w ]{0,20})?\b(?:exit(?:ed|[ _]?code)?|returncode|return code)"
    r"(?: with)?(?: (?:exit )?(?:code|status))?\W{0,4}(-?\d{1,5})\W{0,4}",
    re.IGNORECASE,
)
_COUNTS: Final = r"\d+ (?:passed|failed|errors?|skipped|deselected|xfailed|xpassed|warnings?|total|todo|pending)"
_SUMMARY: Final = re.compile(
    rf"=*\s*{_COUNTS}(?:, {_COUNTS})* in [\d.]+ ?s(?:econds)?\b[^=]{{0,20}}=*"  # pytest
    rf"|Tests?:?\s+{_COUNTS}(?:(?:,| \|) {_COUNTS})*(?: \(\d+\))?"  # jest, vitest
    r"|\d+ (?:passing|failing|pending)(?: \([\d.]+ ?m?s\))?"  # mocha
    r"|(?:\d+ (?:doctests?|properties|property), )*\d+ (?:tests?|examples?|runs), (?:\d+ assertions?, )?\d+ failures?"
    r"(?:, \d+ \w+)*"  # ExUnit, RSpec, minitest
    r"|test result: (?:ok|FAILED)\. \d+ passed; \d+ failed;.{0,80}"  # cargo
    r"|(?:\[\w+\] +)?Tests run: \d+, +Failures: \d+(?:, +\w+: [\d.]+)*.{0,60}"  # JUnit
    r"|Tests: \d+, Assertions: \d+(?:, \w+: \d+)*\.|OK \(\d+ tests?, \d+ assertions?\)"  # PHPUnit
    r"|FAILED \((?:(?:failures|errors|skipped)=\d+(?:, )?)+\)"  # unittest
    r"|(?:Passed|Failed)!\s+- Failed:\s+\d+, Passed:\s+\d+.{0,80}"  # dotnet
    r"|(?:FAIL|ok)\s+[\w./-]+\s+(?:[\d.]+s|\(cached\)|\[build failed\])"  # go
    r"|# (?:pass|fail) \d+",  # TAP
)
"""The last line of a test runner's output. The whole line must match, so that no listing or sentence is taken for
one."""
_FAILING: Final = re.compile(
    r"\b[1-9]\d* (?:failed|failing|failures?|errors?)\b|\bFAIL(?:ED)?\b|(?:Failures|Errors|Failed|fail):? +[1-9]"
)
_NOTHING_SAID: Final = re.compile(
    r"\W*(?:error|fatal|critical|exception|panic|Traceback \(most recent call last\))?\W*|[-=~^*\s]*", re.IGNORECASE
)
"""A line that announces an error but not its reason."""
_ERROR_LINES: Final = 5
"""Maximum number of lines in an error message. Longer output of a tool that reads is taken for the text that it
read."""


class StepOutcome(NamedTuple):
    """How a tool call ended.

    Attributes:
        failed: Whether the output reports a failure.
        words: Quotation from the output that says how the call ended, on one line of at most 120 characters; empty if
            there is none.
    """

    failed: bool
    words: str


def outcome_of(text: str, *, ran: bool, reads: bool = False, flagged: bool = False) -> StepOutcome:
    """Return how a tool call ended, as far as its output says so.

    Args:
        text: The output.
        ran: Whether the call ran a program. Only then do test summaries and exit codes in the output count.
        reads: Whether the call only read something. A long output is then taken for what it read, not for an error
            message.
        flagged: Whether the framework marks the output as an error.
    """
    lines = [line.strip() for line in ends_of(text).split("\n") if line.strip()]
    if not lines:
        return StepOutcome(failed=flagged, words="")
    if ran and (ended := _outcome_of_run(lines)) is not None:
        return ended
    is_error = flagged or (opens_with_error(text) and not (reads and len(lines) > _ERROR_LINES))
    if is_error:
        return StepOutcome(failed=True, words=_reason(lines))
    is_short = len(lines) == 1 and len(lines[0]) <= LONGEST // 2 and any(sign.isalnum() for sign in lines[0])
    return StepOutcome(failed=False, words=lines[0] if is_short else "")


def opens_with_error(text: str) -> bool:
    """Return whether a text begins with an error, rather than mentioning errors later."""
    start = text.lstrip()[:2_000]
    return OPENING_ERROR.match(f"\n{start}") is not None or _ERROR_FIELD.match(start) is not None


def _outcome_of_run(lines: list[str]) -> StepOutcome | None:
    """Return the outcome by a test summary, exit code, or error in the last line; None if there is none of these."""
    summaries = [line for line in lines if _SUMMARY.fullmatch(line)]
    if summaries:
        summary = next((line for line in reversed(summaries) if _FAILING.search(line)), summaries[-1])
        return StepOutcome(failed=_FAILING.search(summary) is not None, words=clipped(summary.strip("= "), LONGEST))
    ended = next((found for line in (*lines[:1], *lines[-2:]) if (found := _EXIT.fullmatch(line))), None)
    if ended is not None and int(ended[1]):
        rest = [line for line in lines if line != ended[0].strip()]
        reason = _reason(rest) if rest else ""
        return StepOutcome(failed=True, words=clipped("; ".join(filter(None, (ended[0].strip(), reason))), LONGEST))
    if OPENING_ERROR.match(f"\n{lines[-1]}"):
        return StepOutcome(failed=True, words=clipped(lines[-1], LONGEST))
    return None


def _reason(lines: list[str]) -> str:
    """Return the line with the reason: the last of a traceback, the one after a bare `ERROR:`, or else the first."""
    if lines[0].startswith("Traceback"):
        named = [line for line in lines[1:] if OPENING_ERROR.match(f"\n{line}")]
        return clipped((named or lines)[-1], LONGEST)
    errors = [n for n, line in enumerate(lines) if OPENING_ERROR.match(f"\n{line}")]
    if not errors:  # a compiler begins the line with the place of the error
        errors = [n for n, line in enumerate(lines) if error_rank(line) == REPORTED and not names_no_reason(line)]
    first = errors[0] if errors else 0
    reasons = [line for line in lines[first:] if not names_no_reason(line)]
    if lines[first].startswith("Traceback"):
        return _reason(lines[first:])
    # A message may continue on the next lines, such as one that quotes the text that was not found.
    return clipped(" ".join((reasons or lines)[:_ERROR_LINES]), LONGEST)


def names_no_reason(line: str) -> bool:
    """Return whether a line only announces an error, such as `ERROR:` or the first line of a traceback."""
    return _NOTHING_SAID.fullmatch(line) is not None


def last_error(text: str) -> str:
    """Return the last line that reports an error in a text; empty if there is none."""
    errors = [finding.span for finding in find_errors(text).firsts if finding.rank == REPORTED]
    lines = text[errors[-1].start :].split("\n", 8) if errors else []
    reasons = [line.strip() for line in lines[:8] if not names_no_reason(line)]
    return clipped(reasons[0], LONGEST) if reasons else ""


def summary_of_tests(text: str) -> str:
    """Return the last summary of a test runner in a text; empty if there is none."""
    summaries = [line.strip("= ") for line in map(str.strip, text.split("\n")) if _SUMMARY.fullmatch(line)]
    return clipped(summaries[-1], LONGEST) if summaries else ""


def clipped(text: str, length: int) -> str:
    """Return a text on one line of at most `length` characters; a longer one is cut at a word and ends in `…`."""
    text = " ".join(text[: 4 * length].split())
    if len(text) <= length:
        return text
    head, _, _ = text[:length].rpartition(" ")
    return (head if len(head) > length // 2 else text[: length - 1]).rstrip() + "…"
