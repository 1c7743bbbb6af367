"""Read contents of typed parts: a `ContentFormat` is a table that maps each part type to a reader.

Providers differ in names only: a part has a `type`, which determines whether it contains a text, other parts, or the
link or base64 data of a medium. Adapters fill in the table; iterating over a content is the same for all.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from ctxguard.adapting.extra_fields import PlacedField, extra_fields, fixed_field, is_payload, without_tokens
from ctxguard.adapting.fields import NULL_TEXT, Path, fields_of, get, is_record, require_text, text_of, walk_content
from ctxguard.adapting.message_view import PlacedPart
from ctxguard.adapting.provider_formats import refuse_foreign_part
from ctxguard.artifacts import Media, Part, PartKind
from ctxguard.errors import HistoryError
from ctxguard.tokens import EstimateCounter
from ctxguard.tokens.media import audio_media, document_part, image_media, inner_media

PartReader: TypeAlias = Callable[[object, Path], list[PlacedPart]]
"""Reads a native part, given the part and its place."""

_TITLES: Final = ("title", "source", "context")
_TITLE_HOLDERS: Final = ("extras", "metadata")
"""Fields from which LangChain's packages take a title and a context if the part itself has none."""
_MEDIA_HOLDERS: Final = ("source", "input_audio", "file")
"""Fields that may contain a medium instead of the part itself."""
_PLAIN_TEXT: Final = {"type", "text"}
_PAYLOADS: Final = ("base64", "data", "file_data")
_PAYLOAD_KEYS: Final = frozenset(_PAYLOADS)
_SEALED_KEYS: Final = frozenset({"data", "encrypted_content", "signature", "thought_signature", "thoughtSignature"})
_MEDIA: Final[AbstractSet[PartKind]] = {"image", "audio", "file"}
_SHORT: Final = 256
"""Characters up to which a text is not searched for media."""
_COUNTED: Final = 20_000
"""Characters of base64 data in an unknown part that are counted."""
_BASE64: Final = re.compile(r"[A-Za-z0-9+/_-]{1000,}={0,2}")


def opaque(value: object) -> list[Part]:
    """Return the parts for a value that no adapter knows: counted by its JSON, and the media in it by their own rules.

    Raises:
        HistoryError: The value cannot be written as JSON, so no client could send it.
    """
    media: list[Part] = []
    try:
        sent = json.dumps(_without_media(value, media), ensure_ascii=False, default=str)
    except (TypeError, ValueError, RecursionError) as error:
        raise HistoryError(f"a part of unknown type cannot be written as JSON: {error}") from None
    # estimated, and only a part of data whose use is unknown: an exact count would suggest more than it knows
    counted = _BASE64.sub(lambda run: run[0][:_COUNTED] if is_payload(run[0]) else run[0], sent)
    return [Part("opaque", tokens=EstimateCounter().count(counted)), *media]


def _without_media(value: object, media: list[Part]) -> object:
    """Return a value without the media in it, which are added to `media`."""
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
    """Return the part for reasoning that only the provider can read, by its base64 data."""
    media = Media("sealed", length=len(data) if isinstance(data, str) else 0)
    return Part(kind, signed=signed, media=media)


def read_unknown(part: object, path: Path) -> list[PlacedPart]:
    """Read a part of unknown type, which is counted and sent unchanged; reject one of another provider's format."""
    # another provider's adapter could mask this part, so it must not pass here as unknown
    refuse_foreign_part(part, path)
    return [((), one) for one in opaque(part)]


@dataclass(frozen=True, slots=True)
class ContentFormat:
    """How a provider writes the parts of a content.

    Attributes:
        readers: The reader for each type of part; None is the type of a part that names none.
        noun: The word for a part in errors.
        unknown: Reads parts of all other types.
    """

    readers: Mapping[str | None, PartReader]
    noun: str = "part"
    unknown: PartReader = read_unknown

    def read(self, content: object, path: Path) -> list[PlacedPart]:
        """Return the parts of a content in order.

        Args:
            content: A string, a list of strings and records, or None.
            path: The place of the content in its message.

        Raises:
            HistoryError: The content is anything else, or a part cannot be read.
        """
        walked = walk_content(content, path, noun=self.noun)
        return [placed for place, part in walked for placed in self.read_part(part, place)]

    def read_part(self, part: object, path: Path) -> list[PlacedPart]:
        """Return the parts for one native part, see `read`; a document can contain several."""
        if isinstance(part, str):
            return [(path, Part("text", part))]
        kind = get(part, "type")
        # a recording may contain anything as a type, and a dict cannot be a key
        reader = self.readers.get(kind) if kind is None or isinstance(kind, str) else None
        return (reader or self.unknown)(part, path)

    def extra_fields(
        self, content: object, path: Path, *, own: AbstractSet[str] = frozenset()
    ) -> Iterator[PlacedField]:
        """Yield the fields of the parts of a content that are not read otherwise: citations, links, unknown keys.

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
        """Yield the fields of one part that are not read otherwise; without `read`, the part is read here."""
        if isinstance(part, str) or (type(part) is dict and part.keys() == _PLAIN_TEXT):
            return
        read = self.read_part(part, path) if read is None else read
        if any(one.kind == "opaque" and one.tokens != 0 for _, one in read):
            # its tokens are already counted as a whole; its texts still have to be searched
            yield from without_tokens(fixed_field("", part, path))
        else:
            # a medium is counted by its own rule, and sealed reasoning as what it represents
            kinds = {one.kind for _, one in read}
            billed = (_SEALED_KEYS if "reasoning" in kinds else set()) | (_PAYLOAD_KEYS if kinds & _MEDIA else set())
            yield from extra_fields(
                part, path, own=own, billed=billed, taken={at for at, _ in read if at and at != path}
            )


def text_reader(field: str, kind: PartKind = "text") -> PartReader:
    """Return a reader for parts that must have a text, which may be null.

    Args:
        field: The name of the field with the text.
        kind: The kind of the part.
    """

    def read_text(part: object, path: Path) -> list[PlacedPart]:
        if get(part, field) is None and field in fields_of(part):
            # recordings contain such parts, and there is nothing in them to mask
            return [((*path, field), NULL_TEXT) if kind == "text" else ((), Part("opaque", tokens=0))]
        return [((*path, field), Part(kind, require_text(part, field, path)))]

    return read_text


def with_titles(reader: PartReader) -> PartReader:
    """Return a reader that also reads the titles of a part, such as a document or a search result.

    Args:
        reader: Reads the part; the titles are added after its result.
    """

    def read_titled(part: object, path: Path) -> list[PlacedPart]:
        holders = [(path, part), *(((*path, key), get(part, key)) for key in _TITLE_HOLDERS)]
        found = (((*place, name), text_of(holder, name)) for place, holder in holders for name in _TITLES)
        return [*reader(part, path), *((place, Part("text", text)) for place, text in found if text)]

    return read_titled


def read_image(part: object, path: Path) -> list[PlacedPart]:  # noqa: ARG001 - the signature of every reader
    """Read an image, given by its data or its link."""
    inner, data = get(part, "image_url"), _payload(part)
    link = inner if isinstance(inner, str) else get(inner, "url") or get(part, "url")
    detail = get(inner, "detail") or get(part, "detail")
    return [((), image(link if data is None else f"data:;base64,{data}", detail=detail))]


def read_audio(part: object, path: Path) -> list[PlacedPart]:  # noqa: ARG001 - the signature of every reader
    """Read audio."""
    return [((), audio(_payload(part)))]


def read_file(part: object, path: Path) -> list[PlacedPart]:
    """Read a file, by its data or as a text, and its name, which the model sees."""
    holders = [(path, part), *(((*path, key), get(part, key)) for key in ("file", "extras"))]
    texts, names = (
        [((*place, key), Part("text", text)) for place, holder in holders if (text := text_of(holder, key))]
        for key in ("text", "filename")
    )
    return [*(texts or [((), file(_payload(part)))]), *names]


def _payload(part: object) -> str | None:
    """Return the base64 data of a medium, from wherever its part keeps it."""
    places = [part, *(get(part, key) for key in _MEDIA_HOLDERS)]
    values = (get(place, key) for place in places if is_record(place) for key in _PAYLOADS)
    return next((value for value in values if isinstance(value, str)), None)


def image(url: object, *, detail: object = None) -> Part:
    """Return the part for an image by its link or `data:` URL, which reveals its size; `detail` is OpenAI's setting."""
    # a link is never fetched: without the data, the size of an average image is assumed
    media = image_media(url if isinstance(url, str) else "", detail=str(detail or "auto"))
    return Part("image", media=media)


def audio(data: object) -> Part:
    """Return the part for a sound, counted by the length of its base64 data if there is any."""
    return Part("audio", media=audio_media(data if isinstance(data, str) else ""))


def video(data: object) -> Part:
    """Return the part for a video, counted by the length of its base64 data if there is any."""
    return Part("audio", media=replace(audio_media(data if isinstance(data, str) else ""), kind="video"))


def file(data: object) -> Part:
    """Return the part for a file by its base64 data or `data:` URL: a text counts as text, other files by length."""
    part = document_part(data if isinstance(data, str) else "")
    return part if part.text is None else Part("file", tokens=EstimateCounter().count(part.text))


def as_base64(blob: object) -> str | None:
    """Return data as base64: bytes encoded, a text as it is, None for anything else."""
    if isinstance(blob, (bytes, bytearray)):
        return base64.b64encode(blob).decode()
    return blob if isinstance(blob, str) else None
