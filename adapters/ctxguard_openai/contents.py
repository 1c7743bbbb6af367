"""One part of a content: Chat Completions and Responses name the same things differently, and both names are taken."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from ctxguard.artifacts import Part, PartKind
from ctxguard.formats import unknown_part
from ctxguard.lens import Path, Slot, audio, file, get, image, members, misread, opaque

__all__ = ["content_slots", "picture"]

_TEXTS: Final[Mapping[object, PartKind]] = {
    None: "text",
    "text": "text",
    "input_text": "text",
    "output_text": "text",
    "summary_text": "reasoning",
    "reasoning_text": "reasoning",
    "refusal": "refusal",
}
"""Types of parts that hold a text, none at all among them. A refusal's stands in `refusal`."""


def content_slots(content: object, path: Path) -> list[Slot]:
    """Return the pieces of a content in order.

    Raises:
        HistoryError: it is no text and no list of parts, a text in it is none, or a part is of another format.
    """
    return [slot for place, part in members(content, path) for slot in _slots(part, place)]


def _slots(part: object, path: Path) -> list[Slot]:
    """Return the pieces of a part: one, but for Mistral's thinking, which holds parts of its own."""
    if get(part, "type") != "thinking" or get(part, "signature") is not None:
        return [_slot(part, path)]
    thought = content_slots(get(part, "thinking"), (*path, "thinking"))
    return [(place, replace(piece, kind="reasoning") if piece.kind == "text" else piece) for place, piece in thought]


def _slot(part: object, path: Path) -> Slot:
    if isinstance(part, str):
        return path, Part("text", part)
    kind = get(part, "type")
    known = _TEXTS.get(kind) if kind is None or isinstance(kind, str) else None
    if known is None:
        return (), _MEDIA[str(kind)](part) if str(kind) in _MEDIA else unknown_part(part, path)
    key = "refusal" if known == "refusal" else "text"
    text = get(part, key)
    if text is None and kind is None:
        return (), opaque(part)
    if not isinstance(text, str):
        raise misread((*path, key), "a text", text)
    return (*path, key), Part(known, text)


def picture(part: object) -> Part:
    """Return the part of an image: its link, or an object that holds it."""
    inner = get(part, "image_url")
    url = inner if isinstance(inner, str) else get(inner, "url")
    return image(url, detail=get(inner, "detail") or get(part, "detail"))


_MEDIA: Final[Mapping[str, Callable[[object], Part]]] = {
    "image_url": picture,
    "input_image": picture,
    "computer_screenshot": picture,
    "input_audio": lambda part: audio(get(get(part, "input_audio"), "data")),
    "file": lambda part: file(get(get(part, "file"), "file_data")),
    "input_file": lambda part: file(get(part, "file_data")),
}
