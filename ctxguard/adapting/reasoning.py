"""Read reasoning and refusals that a message has in fields of their own, next to its content. Clients send them back.

`reasoning_content` is a field of DeepSeek, `reasoning` and `reasoning_details` are fields of OpenRouter. They contain
texts, summaries, and encrypted data, which providers accept only unchanged. LangChain stores OpenAI's reasoning items
in `reasoning`.
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
"""The fields of a message, apart from its content, that contain reasoning or refusals."""
_SIGNED_FORMAT: Final = "anthropic"
"""Prefix of the `format` of reasoning details whose signature covers everything before them."""


def reasoning_parts(fields: object, path: Path = ()) -> list[PlacedPart]:
    """Return the reasoning and refusals in a message's own fields, in order.

    Args:
        fields: The message, or the object in it that has the fields.
        path: The place of `fields` in the message.
    """
    values = {key: value for key in REASONING_FIELDS if (value := get(fields, key)) is not None}
    if not values:  # the common case; this function runs for every message
        return []
    details = _details(fields, path)
    return [*_texts(values, path, repeated=_joined(details)), *details]


def reasoning_changes(fields: object, changes: Mapping[Path, object], path: Path = ()) -> Iterator[tuple[Path, object]]:
    """Yield the changes of a message. If one of them affects a reasoning detail, all reasoning details are removed."""
    details = _details(fields, path)
    places = {place for place, _ in details}
    for place, new in changes.items():
        yield (place[: len(path) + 1], REMOVED) if place in places else (place, new)
    # Also remove the text that repeats the details, because it still contains the old reasoning.
    if not places.isdisjoint(changes) and get(fields, "reasoning") == _joined(details):
        yield (*path, "reasoning"), REMOVED


def _joined(details: Sequence[PlacedPart]) -> str:
    return "".join(part.text or "" for _, part in details)


def _texts(values: Mapping[str, object], path: Path, *, repeated: str) -> Iterator[PlacedPart]:
    for key, kind in _TEXTS.items():
        value = values.get(key)
        if isinstance(value, str):
            # OpenRouter repeats the text of the details in `reasoning`, which must not be counted twice
            if key != "reasoning" or value != repeated:
                yield (*path, key), Part(kind, value)
        elif value is not None and not (key == "reasoning" and is_record(value)):
            raise unreadable((*path, key), "a text", value)


def _details(fields: object, path: Path) -> list[PlacedPart]:
    """Return the parts for the reasoning details. The place of each is that of the whole detail."""
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
        detail = {"text": "\n".join(texts), "data": get(item, "encrypted_content")}
        placed.append(((*path, "reasoning"), _detail(detail)))
    return placed


def _detail(detail: object) -> Part:
    """Return the part for one reasoning detail. Encrypted details count as an approximate number of tokens."""
    text = text_of(detail, "text") or text_of(detail, "summary")
    seal = get(detail, "data") or get(detail, "signature")
    signed = bool(seal) and str(get(detail, "format")).startswith(_SIGNED_FORMAT)
    if text:
        return Part("reasoning", text, signed=signed)
    return sealed(seal, signed=signed)
