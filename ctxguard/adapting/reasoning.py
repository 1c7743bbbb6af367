"""Read reasoning and refusals that stand beside the content of a message and are sent back with it.

`reasoning_content` is DeepSeek's, `reasoning` and `reasoning_details` are OpenRouter's: texts, summaries and encrypted
data that providers take back as they were or not at all. LangChain keeps OpenAI's reasoning items in `reasoning`.
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
"""The fields beside a content in which reasoning and refusals stand."""
_SIGNED_FORMAT: Final = "anthropic"
"""How the format of details begins whose signatures vouch for all that stands before them."""


def reasoning_parts(fields: object, path: Path = ()) -> list[PlacedPart]:
    """Return the reasoning and refusals beside a content, in order, from the message or the object at `path` in it."""
    held = {key: value for key in REASONING_FIELDS if (value := get(fields, key)) is not None}
    if not held:  # the common case, and it is asked of every message
        return []
    details = _details(fields, path)
    return [*_texts(held, path, repeated=_joined(details)), *details]


def reasoning_changes(fields: object, changes: Mapping[Path, object], path: Path = ()) -> Iterator[tuple[Path, object]]:
    """Walk the changes of a message, with reasoning details removed as a whole where a change lies in one of them."""
    details = _details(fields, path)
    places = {place for place, _ in details}
    for place, new in changes.items():
        yield (place[: len(path) + 1], REMOVED) if place in places else (place, new)
    # The text that repeats the details must not outlive them: it would bring the old reasoning back.
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
    """Return the part of one detail: its text, or about as many tokens as its encrypted data stands for."""
    text = text_of(detail, "text") or text_of(detail, "summary")
    seal = get(detail, "data") or get(detail, "signature")
    signed = bool(seal) and str(get(detail, "format")).startswith(_SIGNED_FORMAT)
    if text:
        return Part("reasoning", text, signed=signed)
    return sealed(seal, signed=signed)
