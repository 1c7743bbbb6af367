"""Read reasoning and refusals in fields next to the content of a message, which are sent back with it.

`reasoning_content` is DeepSeek's, `reasoning` and `reasoning_details` are OpenRouter's: texts, summaries and encrypted
data that providers accept unchanged or not at all. LangChain keeps OpenAI's reasoning items in `reasoning`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from ctxguard.adapting.content_format import sealed
from ctxguard.adapting.editing import REMOVED
from ctxguard.adapting.fields import Path, get, is_record, text_of, unreadable
from ctxguard.adapting.message_view import PlacedPart
from ctxguard.artifacts import Part, PartKind

_TEXTS: Final[Mapping[str, PartKind]] = {
    "reasoning_content": "reasoning",
    "reasoning": "reasoning",
    "refusal": "refusal",
}
REASONING_FIELDS: Final[tuple[str, ...]] = (*_TEXTS, "reasoning_details")
"""The fields next to the content that contain reasoning and refusals."""
_SIGNED_FORMAT: Final = "anthropic"
"""Prefix of the detail formats whose signatures cover everything before them."""


def reasoning_parts(fields: object, path: Path = ()) -> list[PlacedPart]:
    """Return the reasoning and refusals next to the content, in order, of the message or the object at `path`."""
    held = {key: value for key in REASONING_FIELDS if (value := get(fields, key)) is not None}
    if not held:  # the common case, and it runs for every message
        return []
    details = _details(fields, path)
    return [*_texts(held, path, repeated=_joined(details)), *details]


def reasoning_changes(fields: object, changes: Mapping[Path, object], path: Path = ()) -> Iterator[tuple[Path, object]]:
    """Yield the changes of a message, with all reasoning details removed if a change affects one of them."""
    details = _details(fields, path)
    places = {place for place, _ in details}
    for place, new in changes.items():
        yield (place[: len(path) + 1], REMOVED) if place in places else (place, new)
    # The text that repeats the details must not stay without them: it would restore the old reasoning.
    if not places.isdisjoint(changes) and get(fields, "reasoning") == _joined(details):
        yield (*path, "reasoning"), REMOVED


def _joined(details: Sequence[PlacedPart]) -> str:
    return "".join(part.text or "" for _, part in details)


def _texts(held: Mapping[str, object], path: Path, *, repeated: str) -> Iterator[PlacedPart]:
    for key, kind in _TEXTS.items():
        value = held.get(key)
        if isinstance(value, str):
            # OpenRouter repeats the text of the details in `reasoning`: it must not be counted twice
            if key != "reasoning" or value != repeated:
                yield (*path, key), Part(kind, value)
        elif value is not None and not (key == "reasoning" and is_record(value)):
            raise unreadable((*path, key), "a text", value)


def _details(fields: object, path: Path) -> list[PlacedPart]:
    """Return the details of the reasoning; each is placed as a whole, since no part of it may be changed."""
    listed, item = get(fields, "reasoning_details"), get(fields, "reasoning")
    if listed is not None and not isinstance(listed, (list, tuple)):
        raise unreadable((*path, "reasoning_details"), "a list of details", listed)
    placed: list[PlacedPart] = []
    for index, detail in enumerate(listed or ()):
        place = (*path, "reasoning_details", index)
        if not is_record(detail):
            raise unreadable(place, "a dict with 'type'", detail)
        placed.append((place, _detail(detail)))
    if is_record(item):
        summary = get(item, "summary")
        texts = [text_of(piece, "text") or "" for piece in summary] if isinstance(summary, (list, tuple)) else []
        told = {"text": "\n".join(texts), "data": get(item, "encrypted_content")}
        placed.append(((*path, "reasoning"), _detail(told)))
    return placed


def _detail(detail: object) -> Part:
    """Return the part for one detail: its text, or its approximate tokens if it is encrypted."""
    text = text_of(detail, "text") or text_of(detail, "summary")
    seal = get(detail, "data") or get(detail, "signature")
    signed = bool(seal) and str(get(detail, "format")).startswith(_SIGNED_FORMAT)
    if text:
        return Part("reasoning", text, signed=signed)
    return sealed(seal, signed=signed)
