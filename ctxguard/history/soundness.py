"""Make messages that can be sent as JSON: text that is Unicode, and arguments of functions that are JSON objects.

Python strings may contain half of a surrogate pair, as when a text was cut inside an emoji. No client can encode such a
string, and a provider refuses its escape ("no low surrogate in string"), in this request and in every later one.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Final, NoReturn

from ctxguard.artifacts import Artifact, ToolCall
from ctxguard.errors import HistoryError


def is_well_formed(text: str) -> bool:
    """Return whether a text contains no half of a surrogate pair, so that it can be encoded."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def well_formed(text: str) -> str:
    """Return a text with U+FFFD in place of each half of a surrogate pair. Two halves that fit become one character."""
    return text if is_well_formed(text) else text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def parse_strictly(text: str) -> object:
    """Return the value of a JSON string, or None if a provider would refuse the string, which may contain no NaN."""
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)


_HALF: Final = "half of a surrogate pair is no text"
_NO_OBJECT: Final = "arguments of a function must be a JSON object"


def make_sound(artifact: Artifact, position: int) -> tuple[Artifact, str]:
    """Return an artifact whose texts and arguments can be sent as JSON, and the reason for a change.

    Args:
        artifact: The artifact; it is returned itself if nothing has to change.
        position: Its position in the history, for the error.

    Raises:
        HistoryError: If half of a surrogate pair is in a value that cannot be changed.
    """
    sound, why = artifact, ""
    if not _is_well_formed(artifact):
        sound, why = _well_formed(artifact), _HALF
        place = next((place for place, text, _ in sound.fixed_texts() if not is_well_formed(text)), None)
        if place is not None:
            raise HistoryError(f"{place} contains half of a surrogate pair, and cannot be changed", position=position)
    calls = tuple([_with_object(call) for call in sound.calls]) if sound.calls else ()
    return (sound, why) if calls == sound.calls else (sound.revised(calls=calls), _NO_OBJECT)


def _is_well_formed(artifact: Artifact) -> bool:
    """Return whether all strings of an artifact can be encoded."""
    content = artifact.content
    if type(content) is str and not artifact.calls and not artifact.fields:  # the common case
        return is_well_formed(content) and all(is_well_formed(text) for _, text, _ in artifact.fixed_texts())
    texts = (text for _, text in artifact.texts())
    return all(map(is_well_formed, texts)) and all(is_well_formed(text) for _, text, _ in artifact.fixed_texts())


def _well_formed(artifact: Artifact) -> Artifact:
    calls = tuple(replace(call, id=call.id and well_formed(call.id)) for call in artifact.calls)
    sound = artifact.revised(calls=calls, answers=artifact.answers and well_formed(artifact.answers))
    return sound.edit(lambda _slot, text: well_formed(text))


def _with_object(call: ToolCall) -> ToolCall:
    """Return a call whose arguments are a JSON object, if its tool takes one."""
    if not call.takes_object or call.arguments == "{}":
        return call
    value = parse_strictly(call.arguments)
    if isinstance(value, dict):
        # an escaped half of a surrogate pair is valid JSON for some parsers only
        halved = "\\ud" in call.arguments.lower() and not is_well_formed(_as_json(value))
        return replace(call, arguments=well_formed(_as_json(value))) if halved else call
    held = {} if not call.arguments.strip() else {"arguments": call.arguments if value is None else value}
    return replace(call, arguments=well_formed(_as_json(held)))


def _as_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
