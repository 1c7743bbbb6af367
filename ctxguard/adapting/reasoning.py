"""What stands beside the content of a message and is sent back with it: reasoning and refusals.

`reasoning_content` is DeepSeek's, `reasoning` and `reasoning_details` are OpenRouter's: texts, summaries and encrypted
data, to come back as they were or not at all. LangChain keeps a reasoning item of OpenAI's under `reasoning`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from ctxguard.adapting.message_view import GONE, Path, Slot, get, is_record, misread, sealed, text_of
from ctxguard.artifacts import Part, PartKind

__all__ = ["SPOKEN", "spoken_changes", "spoken_slots"]

_TEXTS: Final[Mapping[str, PartKind]] = {
    "reasoning_content": "reasoning",
    "reasoning": "reasoning",
    "refusal": "refusal",
}
SPOKEN: Final = (*_TEXTS, "reasoning_details")
"""The fields in which it stands."""
_BOUND: Final = "anthropic"
"""How the format of details begins whose signatures vouch for all that stands before them."""


def spoken_slots(fields: object, path: Path = ()) -> list[Slot]:
    """Return the pieces beside a content, in order; a `reasoning` that repeats its details is none of them.

    Args:
        fields: the message, or what holds its further fields.
        path: where that stands in the message.

    Raises:
        HistoryError: one of them cannot be read.
    """
    told = {key: said for key in SPOKEN if (said := get(fields, key)) is not None}
    if not told:  # as a rule
        return []
    details = _details(fields, path)
    return [*_texts(told, path, repeated=_text(details)), *details]


def spoken_changes(fields: object, changes: Mapping[Path, object], path: Path = ()) -> Iterator[tuple[Path, object]]:
    """Walk changes of a message; details of which one would change go as a whole, and a text that repeats them.

    Args:
        fields: the message, or what holds its further fields.
        changes: the new values, by their places in the message.
        path: where the fields stand in the message.
    """
    details = _details(fields, path)
    places = {place for place, _ in details}
    for place, new in changes.items():
        yield (place[: len(path) + 1], GONE) if place in places else (place, new)
    if not places.isdisjoint(changes) and get(fields, "reasoning") == _text(details):
        yield (*path, "reasoning"), GONE


def _text(details: Sequence[Slot]) -> str:
    return "".join(part.text or "" for _, part in details)


def _texts(told: Mapping[str, object], path: Path, *, repeated: str) -> Iterator[Slot]:
    for key, kind in _TEXTS.items():
        said = told.get(key)
        if isinstance(said, str):
            if key != "reasoning" or said != repeated:
                yield (*path, key), Part(kind, said)
        elif said is not None and not (key == "reasoning" and is_record(said)):
            raise misread((*path, key), "a text", said)


def _details(fields: object, path: Path) -> list[Slot]:
    """Return what holds reasoning in pieces: the whole of each, since a part of it may not be changed."""
    listed, item = get(fields, "reasoning_details"), get(fields, "reasoning")
    if listed is not None and not isinstance(listed, (list, tuple)):
        raise misread((*path, "reasoning_details"), "a list of details", listed)
    slots: list[Slot] = []
    for number, detail in enumerate(listed or ()):
        place = (*path, "reasoning_details", number)
        if not is_record(detail):
            raise misread(place, "a dict with 'type'", detail)
        slots.append((place, _detail(detail)))
    if is_record(item):
        summary = get(item, "summary")
        texts = [text_of(piece, "text") or "" for piece in summary] if isinstance(summary, (list, tuple)) else []
        told = {"text": "\n".join(texts), "data": get(item, "encrypted_content")}
        slots.append(((*path, "reasoning"), _detail(told)))
    return slots


def _detail(detail: object) -> Part:
    """Return the part of one detail: its text, or about as many tokens as its sealed data stand for."""
    text = text_of(detail, "text") or text_of(detail, "summary")
    seal = get(detail, "data") or get(detail, "signature")
    signed = bool(seal) and str(get(detail, "format")).startswith(_BOUND)
    return Part("reasoning", text, signed=signed) if text else Part("reasoning", tokens=sealed(seal), signed=signed)
