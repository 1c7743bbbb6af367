"""Read messages whose content is a list of typed parts, with a `ContentFormat`: a table of readers by part type.

Providers differ only in names: the `type` of a part determines whether the part contains a text, other parts, or the
link or base64 data of an image, a sound, a video, or a file (*media*). Adapters fill in the table; iterating over the
parts is the same for all.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, TypeAlias

from ctxguard.adapting.fields import (
    NULL_TEXT,
    REMOVED,
    Path,
    get,
    is_record,
    require_text,
    text_of,
    unreadable,
    walk_content,
)
from ctxguard.adapting.json_walk import PlacedField, extra_fields, fixed_field, without_tokens
from ctxguard.adapting.message_view import PlacedPart, refuse_foreign_part
from ctxguard.artifacts import Half, Media, Part, PartKind
from ctxguard.errors import HistoryError
from ctxguard.tokens import EstimateCounter
from ctxguard.tokens.media import audio_media, document_part, image_media, inner_media, is_payload
from ctxguard.tokens.schemas import fields_of

PartReader: TypeAlias = Callable[[object, Path], list[PlacedPart]]
"""Function that reads a native part, given the part and its place in the message."""

_TITLES: Final = ("title", "source", "context")
_TITLE_HOLDERS: Final = ("extras", "metadata")
"""Fields in which LangChain's packages keep a title or context that the part itself lacks."""
_MEDIA_HOLDERS: Final = ("source", "input_audio", "file")
"""Fields that may contain the media data in place of the part itself."""
_PLAIN_TEXT: Final = {"type", "text"}
_TEXT_TYPES: Final = ("text", "input_text", "output_text")
_PAYLOADS: Final = ("base64", "data", "file_data")
_PAYLOAD_KEYS: Final = frozenset(_PAYLOADS)
_SEALED_KEYS: Final = frozenset({"data", "encrypted_content", "signature", "thought_signature", "thoughtSignature"})
_MEDIA: Final[AbstractSet[PartKind]] = {"image", "audio", "file"}
_SHORT: Final = 256
"""Strings of at most this number of characters are not searched for embedded media."""
_COUNTED: Final = 20_000
"""Number of characters up to which base64 data in a part of unknown type is counted."""
_BASE64: Final = re.compile(r"[A-Za-z0-9+/_-]{1000,}={0,2}")


def opaque(value: object) -> list[Part]:
    """Return the parts for a value that no adapter can read.

    The first part stands for the JSON of the value without media; its number of tokens is estimated. A part for each
    medium in the value follows.

    Raises:
        HistoryError: If the value cannot be written as JSON; no client could send it.
    """
    media: list[Part] = []
    try:
        sent = json.dumps(_without_media(value, media), ensure_ascii=False, default=str)
    except (TypeError, ValueError, RecursionError) as error:
        raise HistoryError(f"a part of unknown type cannot be written as JSON: {error}") from None
    # An estimate, with base64 data capped: how the provider bills a part of unknown type is not known.
    counted = _BASE64.sub(lambda run: run[0][:_COUNTED] if is_payload(run[0]) else run[0], sent)
    return [Part("opaque", tokens=EstimateCounter().count(counted)), *media]


def _without_media(value: object, media: list[Part]) -> object:
    """Return a copy of a value without the media in it. Each removed medium is appended to `media`."""
    if isinstance(value, str):
        found = inner_media(value) if len(value) > _SHORT else None
        if found is None or found.text is not None:
            return value
        media.append(found)
        return ""
    if isinstance(value, (list, tuple)):
        return [_without_media(member, media) for member in value]
    fields = fields_of(value)
    return {key: _without_media(member, media) for key, member in fields.items()} if fields else value


def sealed(data: object, *, signed: bool = False, kind: PartKind = "reasoning") -> Part:
    """Return the part for encrypted reasoning, which only the provider can read. `data` is its base64 text."""
    media = Media("sealed", length=len(data) if isinstance(data, str) else 0)
    return Part(kind, signed=signed, media=media)


def read_unknown(part: object, path: Path) -> list[PlacedPart]:
    """Read a part of unknown type, which is counted and sent unchanged; reject a part in another provider's format."""
    # that provider's adapter would mask the part, so it must not pass unmasked as an unknown one
    refuse_foreign_part(part, path)
    return [((), one) for one in opaque(part)]


@dataclass(frozen=True, slots=True)
class ContentFormat:
    """A provider's format for the parts of a message.

    Attributes:
        readers: The reader for each part type. The key None is for parts without a type.
        noun: The word for a part in error messages.
        unknown: Reader for all other types.
    """

    readers: Mapping[str | None, PartReader]
    noun: str = "part"
    unknown: PartReader = read_unknown

    def read(self, content: object, path: Path) -> list[PlacedPart]:
        """Return the parts of a message's content in order.

        Args:
            content: A string, a list of strings and records, or None.
            path: The place of the content in its message.

        Raises:
            HistoryError: If the content has another type, or a part cannot be read.
        """
        walked = walk_content(content, path, noun=self.noun)
        return [placed for place, part in walked for placed in self.read_part(part, place)]

    def read_part(self, part: object, path: Path) -> list[PlacedPart]:
        """Return the parts read from one native part, see `read`. A document can contain several."""
        if isinstance(part, str):
            return [(path, Part("text", part))]
        kind = get(part, "type")
        # the type in a recording can be any value, and a dict cannot be looked up
        reader = self.readers.get(kind) if kind is None or isinstance(kind, str) else None
        read = (reader or self.unknown)(part, path)
        if path and read and not read[0][0] and read[0][1].kind in _MEDIA:
            # the place of the whole part, so that a text can be written instead of a picture
            read[0] = path, replace(read[0][1], as_text=partial(self.text_part, part))
        return read

    def text_part(self, part: object, text: str) -> object:
        """Return the native part that says `text` in place of a part with a picture or another medium."""
        kind = get(part, "type")
        if kind is None:
            return {"text": text}
        return {"type": "input_text" if str(kind).startswith("input_") else "text", "text": text}

    def extra_fields(
        self, content: object, path: Path, *, own: AbstractSet[str] = frozenset()
    ) -> Iterator[PlacedField]:
        """Yield the fields that no reader handles, for all parts of a content: citations, links, unknown keys.

        Args:
            content: As for `read`.
            path: As for `read`.
            own: Keys that the adapter reads itself.
        """
        if isinstance(content, (list, tuple)):
            for place, part in walk_content(content, path, noun=self.noun):
                yield from self.part_fields(part, place, own=own)

    def part_fields(
        self, part: object, path: Path, read: Sequence[PlacedPart] | None = None, *, own: AbstractSet[str] = frozenset()
    ) -> Iterator[PlacedField]:
        """Yield the fields of one part that no reader handles. If `read` is None, the part is read first."""
        if isinstance(part, str) or (type(part) is dict and part.keys() == _PLAIN_TEXT and part["type"] in _TEXT_TYPES):
            return
        read = self.read_part(part, path) if read is None else read
        if any(one.kind == "opaque" and one.tokens != 0 for _, one in read):
            # the part is already counted as a whole, but its texts still have to be searched
            yield from without_tokens(fixed_field("", part, path))
        else:
            # base64 data of media and of encrypted reasoning is already counted by the rules for these parts
            kinds = {one.kind for _, one in read}
            billed = (_SEALED_KEYS if "reasoning" in kinds else set()) | (_PAYLOAD_KEYS if kinds & _MEDIA else set())
            yield from extra_fields(part, path, own=own, billed=billed, taken=places_of_texts(read, path))


def places_of_texts(read: Sequence[PlacedPart], path: Path = ()) -> set[Path]:
    """Return the places of the texts that were read of the part at `path`; fields beside media are still to be read."""
    return {at for at, part in read if at and at != path and part.as_text is None}


def with_half(parts: Sequence[PlacedPart], half: Half | None, path: Path) -> list[PlacedPart]:
    """Return the parts of a block that is one half of a call that the provider executes.

    The first part stands for the whole block: if a stage replaces it with an empty text, the block is left out.
    """
    if half is None:
        return list(parts)
    if parts and parts[0][1].kind == "opaque" and not parts[0][0]:
        return [(path, replace(parts[0][1], half=half)), *parts[1:]]
    return [(path, Part("opaque", tokens=0, half=half)), *parts]


def text_reader(field: str, kind: PartKind = "text") -> PartReader:
    """Return a reader for parts with a required text field, whose value may be null.

    Args:
        field: The name of the field that contains the text.
        kind: The kind of the part that the reader returns.
    """

    def read_text(part: object, path: Path) -> list[PlacedPart]:
        if get(part, field) is None and field in fields_of(part):
            # recordings contain such parts, and there is nothing in them to mask
            return [((*path, field), NULL_TEXT) if kind == "text" else ((), Part("opaque", tokens=0))]
        return [((*path, field), Part(kind, require_text(part, field, path)))]

    return read_text


def with_titles(reader: PartReader) -> PartReader:
    """Return a reader that also reads the titles of a part, such as those of a document or a search result.

    Args:
        reader: Reads the part. The titles are appended to its result.
    """

    def read_titled(part: object, path: Path) -> list[PlacedPart]:
        holders = [(path, part), *(((*path, key), get(part, key)) for key in _TITLE_HOLDERS)]
        found = (((*place, name), text_of(holder, name)) for place, holder in holders for name in _TITLES)
        return [*reader(part, path), *((place, Part("text", text)) for place, text in found if text)]

    return read_titled


def read_image(part: object, path: Path) -> list[PlacedPart]:  # noqa: ARG001 - the signature of every reader
    """Read an image, given as base64 data or as a link."""
    inner, data = get(part, "image_url"), _payload(part)
    link = inner if isinstance(inner, str) else get(inner, "url") or get(part, "url")
    detail = get(inner, "detail") or get(part, "detail")
    return [((), image(link if data is None else f"data:;base64,{data}", detail=detail))]


def read_audio(part: object, path: Path) -> list[PlacedPart]:  # noqa: ARG001 - the signature of every reader
    """Read a sound, given as base64 data."""
    return [((), audio(_payload(part)))]


def read_file(part: object, path: Path) -> list[PlacedPart]:
    """Read a file, given as base64 data or as text, and its file name, which the model sees."""
    holders = [(path, part), *(((*path, key), get(part, key)) for key in ("file", "extras"))]
    texts, names = (
        [((*place, key), Part("text", text)) for place, holder in holders if (text := text_of(holder, key))]
        for key in ("text", "filename")
    )
    return [*(texts or [((), file(_payload(part)))]), *names]


def _payload(part: object) -> str | None:
    """Return the base64 data in a media part, from any of the fields that may contain it; None if there is none."""
    places = [part, *(get(part, key) for key in _MEDIA_HOLDERS)]
    values = (get(place, key) for place in places if is_record(place) for key in _PAYLOADS)
    return next((value for value in values if isinstance(value, str)), None)


def image(url: object, *, detail: object = None) -> Part:
    """Return the part for an image.

    Args:
        url: The link or `data:` URL of the image. A `data:` URL reveals the size of the image.
        detail: OpenAI's `detail` setting.
    """
    # links are never fetched, so a linked image counts as an image of average size
    media = image_media(url if isinstance(url, str) else "", detail=str(detail or "auto"))
    return Part("image", media=media)


def audio(data: object) -> Part:
    """Return the part for a sound. Its token count is based on the length of the base64 data, if there is any."""
    return Part("audio", media=audio_media(data if isinstance(data, str) else ""))


def video(data: object) -> Part:
    """Return the part for a video. Its token count is based on the length of the base64 data, if there is any."""
    return Part("audio", media=replace(audio_media(data if isinstance(data, str) else ""), kind="video"))


def file(data: object) -> Part:
    """Return the part for a file, given as base64 data or `data:` URL. Text files count as text, others by pages."""
    part = document_part(data if isinstance(data, str) else "")
    return part if part.text is None else Part("file", tokens=EstimateCounter().count(part.text))


def as_base64(blob: object) -> str | None:
    """Return data as base64: bytes are encoded, a string is returned unchanged, and anything else becomes None."""
    if isinstance(blob, (bytes, bytearray)):
        return base64.b64encode(blob).decode()
    return blob if isinstance(blob, str) else None


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
