"""Write what a window sends in place of a long text: its first and last lines, and the lines with an error's message.

Results stand at the end of an output and its subject at the beginning, so the two ends say most in the fewest tokens. A
view of another kind for each type of content (`ctxguard.content`) was measured to keep as much and to be misread twice
as often, because names and errors that a text only mentions looked like its result.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from ctxguard.artifacts import Artifact, Kind, Part, ToolCall
from ctxguard.draft import Draft
from ctxguard.history import History
from ctxguard.history.records import sentences
from ctxguard.tokens.caches import cached_by_text
from ctxguard.views.bounding import fit, measure
from ctxguard.views.detection import detect
from ctxguard.views.names import ends_of
from ctxguard.views.outcomes import LONGEST, OPENING_ERROR, clipped, names_no_reason, opens_with_error, outcome_of
from ctxguard.views.processors.log import REPORTED, LineSpan, find_errors
from ctxguard.views.processors.text import TextProcessor
from ctxguard.views.views import NO_LIMITS, Count, FileType, Source, View

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
    outcome = outcome_of(text, ran=False, reads=True)
    return outcome.words or clipped(text, LONGEST) if outcome.failed else None


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


_BY: Final = "ctxguard"
_SMALL: Final = 1_000
"""In a view of up to this number of characters, the end gets more than the beginning."""
_ENDS: Final = 0.65
"""The share of such a view that the end of the text gets."""
_ERRORS: Final = 8
"""Maximum number of error lines that are looked at; beginning and end may show some of them."""
_LONGEST: Final = 200  # characters of an error line
_APART: Final = "… "
"""Precedes an error line, which does not continue the text before it."""
_DIGEST: Final = 200
"""A view of JSON with fewer tokens lists values with their keys: JSON has no lines, and its first and last characters
say little."""
_LEAST_BEGINNING: Final = 40
"""Fewest characters of the beginning of a text that are worth showing."""
_ATTEMPTS: Final = 5
_LEAST: Final = 4
"""The smallest number of tokens to which one text or argument of a message with calls is limited."""
_SEARCHED: Final = 200_000
"""Number of characters, from the end of an output, that are searched for error lines."""


class _Ends(TextProcessor):
    """Shows the start and the end of a text, and error lines from between."""

    def __init__(self, source: Source, errors: Sequence[LineSpan]) -> None:
        super().__init__(source, NO_LIMITS)
        self._errors = errors

    def view(self, available: int) -> View:
        """Return the start, a marker that says what is shown, the last error lines from between, and the end.

        Error lines take at most a third of the view.
        """
        text = self._source.text
        if len(text) <= available:
            return View(text, cut=False, info=self._info(self._total))
        free = max(0, available - len(self._marker("lines 1-999 and 9999-99999 of 99999 shown")) - 2)
        room = available // 3 if self._errors else 0
        # What the error lines do not need, beginning and end get, which may then show some of them.
        for _ in range(2):
            head = self._head(int((free - room) * (1 - _ENDS if available < _SMALL else 0.5)))
            tail = self._tail(min(free - room - len(head), len(text) - len(head)))
            between = self._between(len(head), len(text) - len(tail), room)
            room = len(between)
        view = self._join(head, tail)
        return replace(view, text=view.text.removesuffix(tail) + between + tail) if between else view

    def _between(self, start: int, end: int, available: int) -> str:
        """Return the last error lines that neither the text before `start` nor the text from `end` on shows whole."""
        text = self._source.text
        hidden = (text[span.start : span.end] for span in self._errors if span.end > start and span.start < end)
        lines = ""
        for line in reversed(dict.fromkeys(hidden)):
            shown = f"{_APART}{clipped(line, _LONGEST)}\n"
            if len(shown) + len(lines) > available:
                length = available - len(_APART) - 1
                return lines or (f"{_APART}{clipped(line, length)}\n" if length >= _LEAST_BEGINNING else "")
            lines = shown + lines
        return lines


def short_view(
    text: str,
    max_tokens: int,
    *,
    count: Count,
    handle: str | None = None,
    has_failed: bool = False,
    lists_values: bool = True,
) -> str:
    """Return the first and last lines of a text in at most `max_tokens` tokens; the text itself if it fits.

    Args:
        text: The text.
        max_tokens: Maximum number of tokens. If not even a short note fits, the result is empty.
        count: Function that returns the number of tokens in a string.
        handle: Handle under which the full text can be read; None if it is not stored.
        has_failed: Whether the text is the output of a call that failed. Lines with an error's message are then shown.
        lists_values: Whether a view of JSON with fewer than 200 tokens lists values with their keys.
    """
    measured = measure(text, max_tokens, count)
    if measured.exact and measured.tokens <= max_tokens:
        return text
    if lists_values and max_tokens < _DIGEST and detect(text) in (FileType.JSON, FileType.JSONL):
        from ctxguard.views.digests import digest_view

        values = digest_view(text, max_tokens, count=count, handle=handle, by=_BY)
        return _filled(values, text, max_tokens, count)
    source = Source(text, handle=handle, by=_BY)
    return fit(_Ends(source, _error_lines(text) if has_failed else ()), max_tokens, count, measured.ratio).text


def _filled(values: str, text: str, max_tokens: int, count: Count) -> str:
    """Return the values of a text, followed by its beginning as far as tokens are left: they are reserved anyway."""
    length = 3 * (max_tokens - count(values) - 4)
    while length >= _LEAST_BEGINNING:
        shown = f"{values}\nIt begins: {clipped(text, length)}"
        if count(shown) <= max_tokens:
            return shown
        length = length * 3 // 4
    return values


def _error_lines(text: str) -> list[LineSpan]:
    """Return the last lines that report an error and say which, in order."""
    skipped = max(0, len(text) - _SEARCHED)
    found = find_errors(text[skipped:])
    errors = sorted(one.span for one in (*found.firsts, *found.repeats) if one.rank == REPORTED)
    spans = (LineSpan(span.start + skipped, span.end + skipped, span.number) for span in errors)
    return [span for span in spans if not names_no_reason(text[span.start : span.end])][-_ERRORS:]


def short_speech(text: str, max_tokens: int, *, count: Count, handle: str | None = None) -> str:
    """Return the first and last words of a message in at most `max_tokens` tokens, whole sentences where they fit.

    Args:
        text: The message.
        max_tokens: Maximum number of tokens. If not even a short note fits, the result is empty.
        count: Function that returns the number of tokens in a string.
        handle: Handle under which the full text can be read; None if it is not stored.
    """
    if count(text) <= max_tokens:
        return text
    spoken = [stripped for one in sentences(text[:20_000] + "\n" + text[-20_000:]) if (stripped := one.strip())]
    words = len(text.split())
    end = f"; handle {handle}" if handle else ""
    for first, last in ((spoken[0], spoken[-1]), *_ends_of_words(text, max_tokens)) if spoken else ():
        left = words - len(first.split()) - len(last.split())
        shown = f"{first} [… {max(left, 1)} words left out by {_BY}{end} …] {last}".strip()
        if count(shown) <= max_tokens:
            return shown
    notes = (f"[{words} words left out by {_BY}{end}]", f"[{words} words]", "…")
    return next((note for note in notes if count(note) <= max_tokens), "")


def _ends_of_words(text: str, max_tokens: int) -> Iterator[tuple[str, str]]:
    """Yield fewer and fewer words from the beginning and the end of a text."""
    words = text.split()
    number = min(len(words) // 2, max_tokens)
    if len(words) < max_tokens // 2:  # few long words, or a script without spaces
        length = min(len(text) // 2 - 1, 2 * max_tokens)
        while length >= 4:
            yield text[:length], text[-length // 2 :]
            length = length * 2 // 3
        return
    while number > 1:
        yield " ".join(words[: number - number // 3]), " ".join(words[-(number // 3) :] if number > 2 else ())
        number = number * 2 // 3


def shortened(
    artifact: Artifact,
    limit: int,
    draft: Draft,
    *,
    at: Artifact,
    handle: Callable[[str], str] | None = None,
    is_open: bool = False,
    keeps_media: bool = True,
    is_speech: bool = False,
    is_unread: bool = False,
) -> Artifact:
    """Return an artifact with its texts shortened, so that it has at most `limit` tokens.

    Texts are masked again, because shortening can create text that matches a rule.

    Args:
        artifact: The artifact.
        limit: Maximum number of tokens, with those that a provider adds to a message. The result has more only if its
            texts and arguments cannot be shortened further.
        draft: Provides the counter and the maskers.
        at: The artifact whose arrival causes the shortening; names that were known then are masked, see `Draft.mask`.
        handle: Function that stores a text and returns its handle; None if texts are not stored.
        is_open: Whether calls of the artifact have no results yet. Their arguments then stay unchanged.
        keeps_media: Whether pictures and other media stay. If False, a short note takes the place of each.
        is_speech: Whether first and last words are shown (see `short_speech`) rather than lines (see `short_view`).
        is_unread: Whether the model has not replied to the artifact yet. Then its beginning and its end are shown even
            of JSON, because a list of values says too little to act on.
    """
    counter = draft.counter
    whole = artifact if keeps_media else _without_media(artifact)
    claimed = counter.artifact(whole)
    if claimed <= limit:
        return whole
    # A count that the caller gave may differ from ours, so the excess is converted into tokens of our counter.
    measured = counter.measured(whole)
    excess, calls = measured - limit * measured // claimed, whole.calls
    has_failed = not is_speech and (opens_with_error(whole.text) or failure_of(whole) is not None)
    writer = _Writer(draft, at, handle, is_speech=is_speech, has_failed=has_failed, is_unread=is_unread)
    if calls and not is_open:
        sizes = [counter.text(whole.text), *(counter.text(call.arguments) for call in calls)]
        level = water_level(sizes, sum(sizes) - excess)
        calls = tuple(_shorter_call(call, level, draft, at) for call in calls)
        excess -= sum(sizes[1:]) - sum(counter.text(call.arguments) for call in calls)
    is_plain = isinstance(whole.content, str)
    parts = [Part("text", whole.content)] if isinstance(whole.content, str) else list(whole.content)
    # Reasoning goes before what was said; the sort keeps the order of the others.
    for place in sorted(range(len(parts)), key=lambda n: parts[n].kind != "reasoning"):
        part = parts[place]
        # Providers refuse signed text that was changed.
        if excess > 0 and part.text and part.editable:
            tokens = counter.text(part.text)
            is_spared = part.kind != "reasoning" or excess < tokens
            shown = writer.write(part.text, tokens - excess) if is_spared else ""
            excess -= tokens - counter.text(shown)
            parts[place] = Part(part.kind, shown)
    return whole.revised(content=(parts[0].text or "") if is_plain else tuple(parts), calls=calls)


@dataclass(frozen=True, slots=True)
class _Writer:
    """Writes masked short forms; for the attributes, see `shortened`."""

    draft: Draft
    at: Artifact
    handle: Callable[[str], str] | None
    is_speech: bool
    has_failed: bool
    is_unread: bool

    def write(self, text: str, max_tokens: int) -> str:
        """Return the short form of a text in at most `max_tokens` tokens; empty if not even a note fits."""
        count, most = self.draft.counter.text, max_tokens
        # If masking makes a view exceed its limit, a smaller view is made.
        for attempt in range(1, _ATTEMPTS + 1):
            if most < 1:
                break
            shown = self.draft.mask(self._shorten(text, most, count), at=self.at)
            if count(shown) <= max_tokens:
                return shown
            most = max_tokens - attempt * (max_tokens // _ATTEMPTS + 1)
        return ""

    def _shorten(self, text: str, max_tokens: int, count: Count) -> str:
        handle = None if self.handle is None else self.handle(text)
        if self.is_speech:
            return short_speech(text, max_tokens, count=count, handle=handle)
        lists_values = not self.is_unread
        return short_view(
            text, max_tokens, count=count, handle=handle, has_failed=self.has_failed, lists_values=lists_values
        )


def water_level(sizes: Sequence[int], available: int) -> int:
    """Return the largest common limit for sizes such that the limited sizes add up to at most `available`."""
    ordered = sorted(sizes)
    for number, size in enumerate(ordered):
        share = available // (len(ordered) - number)
        if size > share:
            return max(_LEAST, share)
        available -= size
    return max(_LEAST, ordered[-1])


def _shorter_call(call: ToolCall, max_tokens: int, draft: Draft, at: Artifact) -> ToolCall:
    """Return a call with its arguments in at most `max_tokens` tokens; a JSON object stays one.

    Providers parse arguments: they refuse a truncated object, but accept an empty one.
    """
    count = draft.counter.text
    if count(call.arguments) <= max_tokens:
        return call
    from ctxguard.content import bound

    shorter = draft.mask(bound(call.arguments, max_tokens, count=count, by=_BY).content, at=at)
    is_object = _is_json_object(shorter) or not _is_json_object(call.arguments)
    return replace(call, arguments=shorter if is_object and count(shorter) <= max_tokens else "{}")


def _is_json_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):  # nested too deeply for the arguments of a tool
        return False


_MEDIA: Final = {"image": "picture", "audio": "recording", "video": "video", "file": "document"}


def media_of(artifact: Artifact) -> list[str]:
    """Return a word for each picture, recording, video, or document in an artifact, in order."""
    content = artifact.content
    if isinstance(content, str):
        return []
    return [
        _MEDIA.get(part.media.kind if part.media is not None else part.kind, "document")
        for part in content
        if part.kind in _MEDIA or (part.media is not None and part.media.kind in _MEDIA)
    ]


def may_leave(artifact: Artifact, part: Part) -> bool:
    """Return whether a note can take the place of a part: a medium in a tool result, if the adapter can write it."""
    if artifact.kind is not Kind.TOOL or part.media is None or part.media.kind not in _MEDIA:
        return False
    return part.as_text is not None or artifact.root.source is None


def _without_media(artifact: Artifact) -> Artifact:
    """Return an artifact with a note in place of each picture or other medium that may leave."""
    if isinstance(artifact.content, str):
        return artifact
    content = tuple(
        replace(part, kind="text", text=_media_note(part), media=None) if may_leave(artifact, part) else part
        for part in artifact.content
    )
    return artifact if content == artifact.content else artifact.revised(content=content)


def _media_note(part: Part) -> str:
    return "" if part.media is None else f"[{_MEDIA[part.media.kind]} left out by {_BY}]"
