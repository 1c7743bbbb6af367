"""Recognize tool output: what agents send in the user's role, and what says that a call failed.

No model is involved: an output is recognized by a label, by its lines, or by the commands in the replies before it.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from typing import Final

from ctxguard.artifacts import Artifact
from ctxguard.content.detection import detect
from ctxguard.content.names import ends_of
from ctxguard.content.outcomes import LONGEST, clipped, outcome_of
from ctxguard.content.views import FileType
from ctxguard.history import History
from ctxguard.stages.error_reports import is_flagged
from ctxguard.tokens.text_cache import cached_by_text

_COMMAND_AT_END: Final = re.compile(r"(?:```|</\w+>)\s*$")
_OBSERVED: Final = re.compile(r"\W*observations?\W*[:\n]", re.IGNORECASE)
_LISTED: Final = re.compile(
    r"[-dlbcps][-rwxsStT]{9}[.+@]?\s|total \d+$|\s*\d+[:\t→|]|\s*\[[A-Za-z]\d+\] |RootWebArea\b"
)
"""The start of a line in a directory listing, in a file with line numbers, or in an accessibility tree."""
_TYPED: Final = (FileType.CONSOLE, FileType.SNAPSHOT, FileType.LOG, FileType.JSON, FileType.JSONL, FileType.HTML)
_NO_LETTERS: Final = re.compile(r"[\W\d_]+")
_SPACES: Final = re.compile(r"\s+")
_READ: Final = 4_000
"""Number of characters, from both ends of a message, by which it is judged."""
_TYPE_READ: Final = 1_200
"""Number of characters by which the type of a message is judged."""
_TOOL_ERROR: Final = re.compile(r"\s*<((?:tool_use_)?error)>\s*(.*?)\s*(?:</\1>|\Z)", re.DOTALL)


def holds_observation(history: History, number: int) -> bool:
    """Return whether an exchange is the output of a program that an agent sent in the user's role.

    In agents without tool calls, the model writes a command in a code block at the end of a message, and the agent
    replies with the output in the user's role. Such an output is recognized by its text, or by such commands at the end
    of the two replies before it. Later messages do not matter, so the answer is known when the message arrives.

    Args:
        history: The exchanges of the conversation.
        number: Index of the exchange in the history.
    """
    span = history.spans[number]
    if not span.is_asked:
        return False
    text = history.artifacts[span.start].text
    if "\n" not in text or is_observation(text):
        return is_observation(text)
    place = bisect_left(history.replies, number)
    before = history.replies[max(0, place - 2) : place]
    return bool(before) and all(
        _COMMAND_AT_END.search(history.artifacts[history.spans[n].start].text[-_READ:]) for n in before
    )


@cached_by_text
def is_observation(text: str) -> bool:
    """Return whether a message in the user's role is program output, judged by a label, its lines, or its type."""
    start = ends_of(text)[:_READ]
    if _OBSERVED.match(start):
        return True
    signs = len(_SPACES.sub("", start))
    if signs <= LONGEST:
        return False
    letters = len(_NO_LETTERS.sub("", start))
    lines = [line for line in start.split("\n") if line.strip()]
    listed = sum(_LISTED.match(line) is not None for line in lines)
    return 2 * letters < signs or 2 * listed > len(lines) or detect(start[:_TYPE_READ]) in _TYPED


def failure_of(result: Artifact) -> str | None:
    """Return how a tool result says that its call failed, in at most 120 characters; None if it does not say so.

    A call failed if the framework marks the result as an error, if the result begins or ends with an exit code other
    than 0, or if it is an error message. An error that the result only quotes, such as a line of a file, is none.
    """
    text = result.text
    tagged = _TOOL_ERROR.match(text)
    ended = outcome_of(text, ran=True)
    if ended.failed or is_flagged(result) or tagged is not None:
        return clipped(tagged[2] if tagged is not None else ended.words or text, LONGEST)
    told = outcome_of(text, ran=False, reads=True)
    return told.words or clipped(text, LONGEST) if told.failed else None
