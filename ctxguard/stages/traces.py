"""Summarize an evicted exchange as steps of the trail: one step for each tool call, or one for the message.

The steps depend on that exchange alone. No model is involved: what a call did is recognized by the words in the name of
its tool and in its arguments, and how the call ended by patterns in its output.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import deque
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import islice
from typing import Final, Literal, NamedTuple

from ctxguard.artifacts import Artifact, Kind, ToolCall
from ctxguard.content.detection import detect
from ctxguard.content.names import ends_of, names_in, walk
from ctxguard.content.outcomes import LONGEST, clipped, outcome_of
from ctxguard.content.processors.json_tree import parse_json, parse_start
from ctxguard.content.processors.tree import Number
from ctxguard.content.views import FileType
from ctxguard.history import History
from ctxguard.stages.error_reports import is_flagged

Section = Literal["said", "failed", "changed", "called", "answered", "observed"]
"""The part of the trail in which a step is listed: user messages (`said`), calls that `failed`, calls that `changed`
something, all other calls (`called`), and replies of the model (`answered`). Tool outputs that an agent sent in the
user's role (`observed`) are counted but not listed."""
_Deed = Section | Literal["ran"]
_SAYS: Final[Mapping[_Deed, str]] = {
    "called": (
        "read get view list ls search find cat head tail grep rg glob fetch show look lookup query browse open check "
        "less wc stat tree pwd cd echo which sed awk sort uniq diff log status du df env blame describe calculate think"
    ),
    "changed": (
        "edit write create update delete remove cancel modify replace insert add append move rename patch apply set "
        "send book reserve exchange return put post save upload schedule reschedule transfer pay purchase buy invite "
        "share submit commit push merge rebase install mv rm cp mkdir touch tee"
    ),
    "ran": "run exec execute bash shell sh terminal test tests pytest python ipython make build",
}
_VERBS: Final[Mapping[str, _Deed]] = {verb: deed for deed, verbs in _SAYS.items() for verb in verbs.split()}
"""What a call does, by a word in the name of its tool or shell command. The first known word decides. `ran` means that
the call runs a program, so that its exit code tells whether it failed."""
_WORDS: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_COMMANDS: Final = ("command", "cmd", "code", "script")
_ACTIONS: Final = ("command", "action", "operation", "mode", "method")
_SEGMENTS: Final = re.compile(r"&&|\|\|?|;|\n")
_PLAIN: Final = re.compile(r"[\w./@:#$~+*?%<>&-]+")
_COMMAND_AT_END: Final = re.compile(r"(?:```|</\w+>)\s*$")
_ID: Final = re.compile(r"^(?=.*[A-Za-z])(?=.*\d)(?!\d{4}-\d\d)[\w#-]+$")
_ID_KEY: Final = re.compile(r"(?:^|[a-z_])[iI][dD]s?$|^ids?$")
_OBSERVED: Final = re.compile(r"\W*observations?\W*[:\n]", re.IGNORECASE)
_LISTED: Final = re.compile(
    r"[-dlbcps][-rwxsStT]{9}[.+@]?\s|total \d+$|\s*\d+[:\t→|]|\s*\[[A-Za-z]\d+\] |RootWebArea\b"
)
"""The start of a line in a directory listing, in a file with line numbers, or in an accessibility tree."""
_UNSAFE: Final = re.compile(r"[^\w.@-]+")
_READ: Final = 4_000
"""Maximum number of values that are read from the arguments or from the result of a call."""
_RESULT: Final = 16_384
"""Number of characters at the start of a result that are searched for ids."""
_TYPED: Final = (FileType.CONSOLE, FileType.SNAPSHOT, FileType.LOG, FileType.JSON, FileType.JSONL, FileType.HTML)
_Pairs = tuple[tuple[str, object], ...]


class TrailStep(NamedTuple):
    """One tool call or one message, as it is listed in the trail.

    Attributes:
        section: The part of the trail in which the step is listed.
        who: The name of the tool, or the role of the author (`user`, `assistant`), followed by the author's name if
            known.
        what: What the call was about (its command, path, or short arguments), or the text of the message.
        ended: A quotation from the output that tells how the call ended; may be empty.
        handle: Handle of the stored output or message; None if it is not stored.
    """

    section: Section
    who: str
    what: str
    ended: str = ""
    handle: str | None = None


def trace_of(
    exchange: Sequence[Artifact],
    handles: Mapping[int, str] | None = None,
    *,
    is_observed: bool = False,
) -> tuple[TrailStep, ...]:
    """Return the steps of an exchange.

    Args:
        exchange: The masked artifacts of the exchange, if possible as they were before they were shortened.
        handles: Handles of stored texts, by index of the artifact in `exchange`; None means that nothing is stored.
        is_observed: Whether the exchange is tool output in the user's role, see `holds_observation`.
    """
    first, results, handles = exchange[0], exchange[1:], handles or {}
    if not first.calls:
        return (_step_of_message(first, handles.get(0), is_observed=is_observed),)
    places = _places_of_results(first, results)
    steps = []
    for number, call in enumerate(first.calls):
        place = places.get(number)
        result, handle = (None, None) if place is None else (results[place], handles.get(place + 1))
        steps.append(_step_of_call(call, result, handle))
    return tuple(steps)


def visible_text(artifact: Artifact) -> str:
    """Return the text of an artifact without reasoning, which is private to the model and must not be quoted."""
    if isinstance(artifact.content, str):
        return artifact.text
    return "\n".join(part.text for part in artifact.content if part.text is not None and part.kind != "reasoning")


def _step_of_message(artifact: Artifact, handle: str | None, *, is_observed: bool) -> TrailStep:
    text = visible_text(artifact).strip()
    who = " ".join((artifact.kind.value, *_UNSAFE.sub("_", artifact.name or "").split()))
    if artifact.kind is Kind.ASSISTANT:
        return TrailStep("answered", who, text, handle=handle)
    if artifact.kind is not Kind.USER or is_observed or is_observation(text):
        return TrailStep("observed", "observation", text, handle=handle)
    return TrailStep("said", who, text, handle=handle)


def holds_observation(history: History, number: int, end: int) -> bool:
    """Return whether an exchange is the output of a program that an agent sent in the user's role.

    In agents without tool calls, the model writes a command in a code block at the end of a message, and the agent
    replies with the output in the user's role. Such an output is recognized by its text, or by such commands in the
    assistant messages before and after it.

    Args:
        history: The exchanges of the conversation.
        number: Index of the exchange in the history.
        end: Number of leading exchanges that may be considered, so that later exchanges do not change the result.
    """
    if not history.spans[number].is_asked:
        return False
    text, place = history.artifacts[history.start(number)].text, bisect_right(history.replies, number)
    if is_observation(text) or "\n" not in text:
        return is_observation(text)
    around = [n for n in history.replies[max(0, place - 2) : place + 1] if n < end][-2:]
    return len(around) == 2 and all(_COMMAND_AT_END.search(history.members(n)[0].text) for n in around)


@lru_cache(maxsize=4_096)
def is_observation(text: str) -> bool:
    """Return whether a message in the user's role is program output, judged by a label, its lines, or its type."""
    start = ends_of(text)[:4_000]
    if _OBSERVED.match(start):
        return True
    letters = sum(sign.isalpha() for sign in start)
    signs = sum(not sign.isspace() for sign in start)
    if signs <= LONGEST:
        return False
    lines = [line for line in start.split("\n") if line.strip()]
    listed = sum(_LISTED.match(line) is not None for line in lines)
    return 2 * letters < signs or 2 * listed > len(lines) or detect(text) in _TYPED


def _step_of_call(call: ToolCall, result: Artifact | None, handle: str | None) -> TrailStep:
    pairs = _read_arguments(call.arguments)
    section, reads = _section_of(call.name, pairs)
    who = call.name if _PLAIN.fullmatch(call.name) else quote(call.name)
    what = _subject_of(call.arguments, pairs, changed=section == "changed")
    default: Section = "called" if section == "ran" else section
    if result is None:
        return TrailStep(default, who, what)
    ended = outcome_of(result.text, ran=section == "ran", reads=reads, flagged=is_flagged(result))
    words = ended.words or ("" if ended.failed else _ids_in(result.text, what))
    return TrailStep("failed" if ended.failed else default, who, what, words, handle)


def _ids_in(text: str, told: str) -> str:
    """Return the ids in a JSON result with their keys, in at most 120 characters; an empty string if there are none.

    Later calls often need these ids. Those that the string `told` already contains are omitted.
    """
    try:
        tree = parse_start(text[:_RESULT]) if text.lstrip()[:1] in ("{", "[") else ""
    except (ValueError, RecursionError):
        return ""
    by_key: dict[str, dict[str, None]] = {}
    for key, node in islice(walk(tree), _READ):
        if not key or not isinstance(node, str) or node in told or not _PLAIN.fullmatch(node):
            continue
        if _ID.match(node) or _ID_KEY.search(key):
            by_key.setdefault(key, {})[node] = None
    return clipped("; ".join(f"{key} {' '.join(ids)}" for key, ids in by_key.items()), LONGEST)


def _section_of(tool: str, pairs: _Pairs) -> tuple[_Deed, bool]:
    """Return the section of the trail in which a call belongs, and whether the call certainly only reads.

    Words in the name of the tool, in the action, or in the command decide. The section is `ran` if the call runs a
    program.
    """
    values = {key: node for key, node in reversed(pairs) if isinstance(node, str)}
    action = next((values[key] for key in _ACTIONS if _first_verb(values.get(key, "")) and _is_word(values[key])), tool)
    command = next((values[key] for key in _COMMANDS if key in values and not _is_word(values[key])), None)
    if command is None:
        found = _first_verb(action)
        return found or "called", found == "called"
    # A command that contains no known verb counts as running a program.
    verbs = {_first_verb(" ".join(words[:2])) or "ran" for part in _SEGMENTS.split(command) if (words := part.split())}
    if "changed" in verbs:
        return "changed", False
    return ("ran", False) if "ran" in verbs else ("called", True)


def _is_word(text: str) -> bool:
    return re.fullmatch(r"\w+", text) is not None


def _first_verb(text: str) -> _Deed | None:
    words = (match[0].lower() for match in _WORDS.finditer(text[:LONGEST]))
    return next((_VERBS[word] for word in words if word in _VERBS), None)


def _subject_of(arguments: str, pairs: _Pairs, *, changed: bool) -> str:
    """Return what a call was about: its command, its path, or its short arguments.

    Args:
        arguments: The arguments as a string.
        pairs: The keys and values in them; empty if the string is not JSON.
        changed: Whether the call changed something. Short texts in its arguments are then contents rather than a
            description, and are left out if the call names a path.
    """
    values: dict[str, list[str]] = {}
    for key, node in pairs:
        if isinstance(node, str) and node.strip():
            values.setdefault(key, []).append(node)
    command = next((values[key][0] for key in _COMMANDS if key in values and not _is_word(values[key][0])), None)
    if command is not None:
        return quote(clipped(command, LONGEST))
    if not pairs or not values:
        return quote(clipped(arguments, LONGEST)) if arguments.strip(" {}[]") and not pairs else ""
    has_path = any(map(_is_path, (value for listed in values.values() for value in listed)))
    told: list[str] = []
    for key, listed in values.items():
        # If a path identifies the call, line numbers and contents add nothing.
        is_detail = changed or isinstance(listed[0], Number) or len(listed[0]) > LONGEST // 2
        if has_path and is_detail and not _is_path(listed[0]) and not (key in _ACTIONS and _is_word(listed[0])):
            continue
        value = _show(", ".join(listed[:8]))
        # A number means nothing without the name of its argument; an action is clear without it.
        is_clear = _is_path(listed[0]) or key in _ACTIONS or (len(values) == 1 and not isinstance(listed[0], Number))
        part = value if is_clear else f"{_UNSAFE.sub('_', key)}={value}"
        if told and sum(map(len, told)) + len(part) > LONGEST:
            break
        told.append(part)
    return " ".join(told)


def _is_path(text: str) -> bool:
    # A long path is recognized by its last folders, because a name has at most `LONGEST` characters.
    end = text if len(text) <= LONGEST else text[-LONGEST:].partition("/")[2]
    return len(text) <= 2 * LONGEST and "/" in text and _PLAIN.fullmatch(text) is not None and names_in(end) == (end,)


def _show(value: str) -> str:
    short = value if _is_path(value) else clipped(value, LONGEST // 2)
    return short if _PLAIN.fullmatch(short) else quote(short)


def quote(text: str) -> str:
    """Return a string in double quotes, with double quotes inside it replaced and unprintable characters removed.

    Tool output must not end its own quotation: the trail has the user's role, so the rest would read as the user's.
    """
    shown = "".join(sign for sign in text if sign.isprintable())
    return f'"{shown.replace(chr(34), chr(39))}"'


def _places_of_results(first: Artifact, results: Sequence[Artifact]) -> dict[int, int]:
    """Return the index of each call's result, by index of the call. Calls without an id match results in order."""
    waiting: dict[str | None, deque[int]] = {}
    for number, call in enumerate(first.calls):
        waiting.setdefault(call.id, deque()).append(number)
    places = {}
    for place, result in enumerate(results):
        numbers = waiting.get(result.answers) or waiting.get(None)
        if numbers:
            places[numbers.popleft()] = place
    return places


def _read_arguments(arguments: str) -> _Pairs:
    """Return at most 4,000 keys and values in the arguments of a call; none if the arguments are not JSON."""
    try:
        tree: object = parse_json(arguments)
    except (ValueError, RecursionError):
        return ()
    return tuple(islice(walk(tree), _READ))
