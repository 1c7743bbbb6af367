"""What stands beside the content of a message and is sent back with it: reasoning and refusals.

`reasoning_content` is DeepSeek's, `reasoning` and `reasoning_details` are OpenRouter's: texts, summaries and encrypted
data, to come back as they were or not at all. LangChain keeps a reasoning item of OpenAI's under `reasoning`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from ctxguard.artifacts import Part, PartKind
from ctxguard.lens import GONE, Path, Slot, get, is_record, misread, sealed, text_of

__all__ = ["spoken_changes", "spoken_slots"]

_TEXTS: Final[Mapping[str, PartKind]] = {
    "reasoning_content": "reasoning",
    "reasoning": "reasoning",
    "refusal": "refusal",
}
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
    details = [(((*path, *place)), part) for place, part in _details(fields)]
    spoken: list[Slot] = []
    for key, kind in _TEXTS.items():
        said = get(fields, key)
        if isinstance(said, str):
            spoken += [] if _repeats(key, said, details) else [((*path, key), Part(kind, said))]
        elif said is not None and not (key == "reasoning" and is_record(said)):
            raise misread((*path, key), "a text", said)
    return spoken + details


def spoken_changes(fields: object, changes: Mapping[Path, object], path: Path = ()) -> Iterator[tuple[Path, object]]:
    """Walk changes of a message; details of which one would change go as a whole, and a text that repeats them."""
    details = [((*path, *place), part) for place, part in _details(fields)]
    places = {place for place, _ in details}
    for place, new in changes.items():
        yield (place[: len(path) + 1], GONE) if place in places else (place, new)
    said = get(fields, "reasoning")
    if isinstance(said, str) and _repeats("reasoning", said, details) and not places.isdisjoint(changes):
        yield (*path, "reasoning"), GONE


def _repeats(key: str, said: str, details: list[Slot]) -> bool:
    return key == "reasoning" and bool(details) and said == "".join(part.text or "" for _, part in details)


def _details(fields: object) -> Iterator[Slot]:
    listed, item = get(fields, "reasoning_details"), get(fields, "reasoning")
    if listed is not None and not isinstance(listed, (list, tuple)):
        raise misread(("reasoning_details",), "a list of details", listed)
    for number, detail in enumerate(listed or ()):
        if not is_record(detail):
            raise misread(("reasoning_details", number), "a dict with 'type'", detail)
        yield ("reasoning_details", number), _detail(detail)
    if item is not None and is_record(item):
        summary = get(item, "summary")
        texts = [text_of(piece, "text") or "" for piece in summary] if isinstance(summary, (list, tuple)) else []
        yield ("reasoning",), _detail({"text": "\n".join(texts), "data": get(item, "encrypted_content")})


def _detail(detail: object) -> Part:
    """Return the part of one detail: its text, or about as many tokens as its sealed data stand for."""
    text = text_of(detail, "text") or text_of(detail, "summary")
    seal = get(detail, "data") or get(detail, "signature")
    signed = bool(seal) and str(get(detail, "format")).startswith(_BOUND)
    return Part("reasoning", text, signed=signed) if text else Part("reasoning", tokens=sealed(seal), signed=signed)
