"""Contents of typed parts: an adapter says in a table what each type holds; how a content is walked is always the same.

Providers of dicts differ in names alone: a part has a `type`, and by it a text, other parts, or the link or base64 data
of a medium.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from ctxguard.adapting.formats import unknown_part
from ctxguard.adapting.message_view import Path, Slot, audio, file, get, image, is_record, members, text_of, wanted_text
from ctxguard.artifacts import Part, PartKind

__all__ = [
    "Dialect",
    "Rule",
    "audio_part",
    "file_part",
    "image_part",
    "named_part",
    "opaque_part",
    "text_part",
]

Rule: TypeAlias = Callable[[object, Path], list[Slot]]
"""Gives the pieces of a part by the part and its place."""

_TITLES: Final = ("title", "source", "context")
_BESIDE: Final = ("extras", "metadata")
"""Fields from which LangChain's packages take a title and a context where the part itself has none."""
_HOLDERS: Final = ("source", "input_audio", "file")
"""Fields that may hold a medium in place of the part itself."""
_PAYLOADS: Final = ("base64", "data", "file_data")


def opaque_part(part: object, path: Path) -> list[Slot]:
    """Return the piece of a part that is counted and handed on, but not read."""
    return [((), unknown_part(part, path))]


@dataclass(frozen=True, slots=True)
class Dialect:
    """Say how a provider writes the parts of a content.

    Attributes:
        rules: what gives the pieces of a part, by its type; None is the type of a part that names none.
        of: what errors call a part.
        unknown: the rule of all other types.
    """

    rules: Mapping[str | None, Rule]
    of: str = "part"
    unknown: Rule = opaque_part

    def slots(self, content: object, path: Path) -> list[Slot]:
        """Return the pieces of a content in order.

        Raises:
            HistoryError: it is no text and no list of parts, or a part cannot be read.
        """
        return [slot for place, part in members(content, path, of=self.of) for slot in self.part_slots(part, place)]

    def part_slots(self, part: object, path: Path) -> list[Slot]:
        """Return the pieces of one part, see `slots`."""
        if isinstance(part, str):
            return [(path, Part("text", part))]
        kind = get(part, "type")
        rule = self.rules.get(kind) if kind is None or isinstance(kind, str) else None
        return (rule or self.unknown)(part, path)


def text_part(field: str, kind: PartKind = "text") -> Rule:
    """Return the rule of a part that is nothing without its text.

    Args:
        field: where the text stands.
        kind: what it is.
    """

    def slots(part: object, path: Path) -> list[Slot]:
        return [((*path, field), Part(kind, wanted_text(part, field, path)))]

    return slots


def named_part(rule: Rule) -> Rule:
    """Return a rule that reads what names a part, such as a document or a search result, behind what it holds.

    Args:
        rule: of what it holds.
    """

    def slots(part: object, path: Path) -> list[Slot]:
        holders = [(path, part), *(((*path, key), get(part, key)) for key in _BESIDE)]
        found = (((*place, name), text_of(holder, name)) for place, holder in holders for name in _TITLES)
        return [*rule(part, path), *((place, Part("text", text)) for place, text in found if text)]

    return slots


def image_part(part: object, path: Path) -> list[Slot]:  # noqa: ARG001 - as every rule
    """Return the piece of an image by its data, or by its link."""
    inner, data = get(part, "image_url"), _payload(part)
    link = inner if isinstance(inner, str) else get(inner, "url") or get(part, "url")
    detail = get(inner, "detail") or get(part, "detail")
    return [((), image(link if data is None else f"data:;base64,{data}", detail=detail))]


def audio_part(part: object, path: Path) -> list[Slot]:  # noqa: ARG001 - as every rule
    """Return the piece of a sound."""
    return [((), audio(_payload(part)))]


def file_part(part: object, path: Path) -> list[Slot]:
    """Return the piece of a file, and that of its name, which models are shown."""
    holders = [(path, part), *(((*path, key), get(part, key)) for key in ("file", "extras"))]
    names = [((*place, "filename"), text_of(holder, "filename")) for place, holder in holders]
    return [((), file(_payload(part))), *((place, Part("text", name)) for place, name in names if name)]


def _payload(part: object) -> str | None:
    """Return the base64 data of a medium, wherever its part keeps it."""
    places = [part, *(get(part, key) for key in _HOLDERS)]
    values = (get(place, key) for place in places if is_record(place) for key in _PAYLOADS)
    return next((value for value in values if isinstance(value, str)), None)
