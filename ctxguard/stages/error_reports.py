"""Recognize messages that report an error, by a flag that the framework sets or by patterns in the text.

The word "error" alone is weak evidence (`0 errors found`, `error handling`), so each pattern describes a typical way in
which programs and people report an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from ctxguard.artifacts import Artifact, Kind
from ctxguard.content.outcomes import OPENING_ERROR

_SENTENCE: Final = re.compile(
    r"(?<!\bno )(?<!\b0 )(?<!\bany )(?<!\bif an )(?<!without )(?<!without an )\berrors? (?:(?:was |were |has |have )?"
    r"(?:raised|thrown|occurr?ed|happened|encountered|returned)"
    r"|(?:calling|executing|running|invoking|loading|reading|writing|parsing|connecting|opening|processing|fetching"
    r"|creating|evaluating|sending|while|when|during)\b)|\b[1-9]\d* (?:[\w-]+ )?errors?\b",
    re.IGNORECASE,
)
_FIELD: Final = re.compile(
    r"""["'](?:error|exception)["']\s*:\s*(?!null|none|false|""|''|\[\]|\{\}|0\b)\S"""
    r"""|["'](?:status|type|level|outcome|state)["']\s*:\s*["'](?:error|errored|failed|failure|fatal)["']"""
    r"""|["']is_?error["']\s*:\s*true""",
    re.IGNORECASE,
)
_LABEL: Final = re.compile(
    r"^[^\S\n]*(?:#{1,6}[^\S\n]+|\*\*)(?:[\w-]+[^\S\n]){0,2}(?:error|failure)s?\b(?![^\S\n]+[a-z])"
    r"|<(?:[\w-]+[_-])?error>\s*[^\s<]"
    r"|^[^\S\n]*(?:status|state|outcome|result|level)[^\S\n]*[:=][^\S\n]*(?:error|errored|failed|failure|fatal)\b"
    r"|\bis_?error[\"']?\s*[:=]\s*true"
    r"|\A\W*(?!.*\b(?:no|zero|without|any|0|ignore)\b)(?:[\w'-]+ ){0,4}error\W*\Z",
    re.IGNORECASE | re.MULTILINE,
)
"""Headings, tags, and fields by which programs label an error; also a message that consists of such a label alone."""
_SAID: Final = re.compile(
    r"\berror (?:code )?#?[45]\d\d\b"
    r"|\b(?:introduced|encountered|hit|got) (?:an?|new|the following) (?:[\w-]+ )?errors?\b"
    r"|(?<!if )(?<!whether )(?<!when )(?<!case )\bthere (?:was|were|is|are) "
    r"(?:(?!no |any |zero |not )[\w'-]+ ){0,2}errors?\b",
    re.IGNORECASE,
)
_SIGNS: Final = (
    (
        (
            "error",
            "fatal",
            "critical",
            "exception",
            "panic",
            "traceback",
            "err!",
            "e   ",
            "fail",
            "unable",
            "could not",
        ),
        lambda text: OPENING_ERROR.search(f"\n{text}"),
    ),
    (("error", "fatal", "critical"), re.compile(r"\b(?:ERROR|FATAL|CRITICAL)\b\s*[\]:\-|]").search),
    (("error",), _SENTENCE.search),
    (("error", "fail", "fatal"), _LABEL.search),
    (("error",), _SAID.search),
    (("failed", "error"), re.compile(r"^(?:FAILED|ERROR) [\w./\\-]+(?:::| - )", re.MULTILINE).search),
    (("error", "exception", "fail", "fatal"), _FIELD.search),
    (
        ("exit", "returncode"),
        re.compile(r"\b(?:exit(?:ed)?(?: with)?(?: code| status)?|returncode)[ :=]+[1-9]\d*\b", re.IGNORECASE).search,
    ),
    (
        ("http", "status ", "status:", "status="),
        re.compile(r"\b(?:HTTP(?:/\d(?:\.\d)?)?|status(?: code)?)[ :=]+[45]\d\d\b", re.IGNORECASE).search,
    ),
)
"""Patterns of error reports, each with a list of words. Every text that matches a pattern contains at least one of its
words. Most texts contain none of them, so the pattern does not need to be tried."""
_SPOKEN: Final = (Kind.TOOL, Kind.ASSISTANT, Kind.USER)


def reports_error(artifact: Artifact) -> bool:
    """Return whether a message or tool output reports an error, by a flag of the framework or by its text."""
    if artifact.kind not in _SPOKEN:
        return False
    return is_flagged(artifact) or _holds_error(artifact.text)


def is_flagged(artifact: Artifact) -> bool:
    """Return whether the native message or part from which an artifact was read is flagged as an error."""
    return any(map(_marks_error, _natives(artifact.root.source)))


def _holds_error(text: str) -> bool:
    # The words are tried first: searching for a substring is much faster than matching a regular expression.
    folded = text.casefold()
    return any(search(text) for words, search in _SIGNS if any(word in folded for word in words))


def _natives(source: object) -> Iterator[object]:
    """Yield the native message from which an artifact was read, and the parts of the message that hold the artifact."""
    # If a message can be read as several artifacts, the adapter wraps the message; otherwise it is the source itself.
    message = getattr(source, "message", source)
    if message is None:
        return
    yield message
    inside = _field(message, "parts") or _field(message, "content")
    indexes = getattr(source, "indexes", None)
    if isinstance(inside, list | tuple) and indexes is not None:
        # `indexes` are the parts that belong to this artifact; the others belong to other artifacts.
        yield from (inside[index] for index in indexes if 0 <= index < len(inside))


def _marks_error(native: object) -> bool:
    """Return whether a native message or part is flagged as an error.

    The flags are those of LangChain (`status`), Anthropic (`is_error`), MCP (`isError`), and Pydantic AI (retry parts
    and `outcome`).
    """
    return (
        _field(native, "status") == "error"
        or _field(native, "is_error") is True
        or _field(native, "isError") is True
        or _field(native, "part_kind") in ("retry-prompt", "retry-feedback")
        or _field(native, "outcome") in ("failed", "retried")
    )


def _field(native: object, name: str) -> object:
    return native.get(name) if isinstance(native, Mapping) else getattr(native, name, None)
