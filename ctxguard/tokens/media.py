"""The token costs of images, audio, files, and encrypted reasoning, by the providers' published rules.

Only the first bytes of an image are decoded, because they contain its size. PDFs are searched for page objects and
strings. For media that are sent as links, a typical size is assumed, and `count_request` reports them as uncounted.
"""

from __future__ import annotations

import base64
import binascii
import io
import math
import re
import zlib
from dataclasses import replace
from functools import lru_cache
from typing import Final

from ctxguard.artifacts import Media, Part
from ctxguard.tokens.families import Costs

_PAYLOAD: Final = re.compile(r"[A-Za-z0-9+/_\s-]+={0,2}\s*")
_DATA_URL: Final = re.compile(r"data:[\w.+/;=%-]{0,256};base64,[A-Za-z0-9+/_%\s-]*={0,2}\s*", re.ASCII)
UNKNOWN_SIDE: Final = 1024
"""Assumed width and height, in pixels, of an image of unknown size, such as a link."""
UNKNOWN_SECONDS: Final = 30.0
"""Assumed length, in seconds, of audio and video of unknown length."""
UNKNOWN_PAGE: Final = 2_500
"""Assumed number of characters on a page that cannot be read."""
PAGE_CHARS: Final = 80_000
"""Number of base64 characters that count as one page if pages cannot be counted."""
MP3_BYTES_PER_SECOND: Final = 16_000  # 128 kbit per second


def media_tokens(media: Media, costs: Costs) -> int:
    """Return the number of tokens that a model family bills for media or encrypted reasoning."""
    if media.kind == "sealed":
        return max(0, round((media.length - costs.sealed_from) * costs.sealed))
    if media.kind == "image":
        return _image_by_rule(media, costs)
    if media.kind == "file":
        return _document(media, costs)
    rate = costs.audio if media.kind == "audio" else costs.video
    return math.ceil(_seconds(media) * rate)


def _document(media: Media, costs: Costs) -> int:
    """Return the number of tokens in a document: its pages as images, and their text if the provider bills text."""
    pages = media.pages or max(1, math.ceil(media.length / PAGE_CHARS))
    characters = pages * UNKNOWN_PAGE if media.characters is None else media.characters
    text = characters / costs.pages.characters if costs.pages.characters else 0
    return pages * costs.pages.each + math.ceil(text)


def _seconds(media: Media) -> float:
    if media.seconds is not None:
        return media.seconds
    return media.length * 3 / 4 / MP3_BYTES_PER_SECOND if media.length else UNKNOWN_SECONDS


def _image_by_rule(media: Media, costs: Costs) -> int:
    """Return the number of tokens in an image by the rule of the family: tiles, patches, area, or a fixed number.

    OpenAI uses tiles or patches, Anthropic the area, and Google tiles of 768 pixels.
    """
    width, height = media.size or (UNKNOWN_SIDE, UNKNOWN_SIDE)
    if costs.image == "tiles":
        return _tiles(width, height, media.detail, *costs.image_scale)
    if costs.image == "patches":
        return _patches(width, height, *costs.image_scale)
    if costs.image == "area":
        return _area(width, height, *costs.image_scale)
    small, tile = (int(number) for number in costs.image_scale)
    if not tile or max(width, height) <= _GEMINI_SMALL:
        return small
    return tile * math.ceil(width / _GEMINI_TILE) * math.ceil(height / _GEMINI_TILE)


_GEMINI_SMALL: Final = 384  # pixels; an image up to this size is one tile
_GEMINI_TILE: Final = 768  # side of a tile in pixels
_PATCH: Final = 32  # side of a patch in pixels (OpenAI)
_MOST_PATCHES: Final = 1_536  # maximum per image; a larger image is scaled down (OpenAI)


def _patches(width: int, height: int, factor: float) -> int:
    """Return the number of 32-pixel patches in an image, at most 1,536, multiplied by the model's factor."""
    patches = math.ceil(width / _PATCH) * math.ceil(height / _PATCH)
    return math.ceil(min(patches, _MOST_PATCHES) * factor)


def _area(width: int, height: int, pixels: float, most_side: float, most_tokens: float) -> int:
    """Return the number of tokens by area. Images whose longest side exceeds `most_side` are scaled down first."""
    fit = min(1.0, most_side / max(width, height, 1))
    return min(int(most_tokens), math.ceil(width * fit * height * fit / pixels))


def _tiles(width: int, height: int, detail: str, base: float, tile: float) -> int:
    """Return the number of tokens by OpenAI's tile rule: `base`, plus `tile` for each tile of 512 by 512 pixels.

    Images are first scaled to fit 2048 by 2048 pixels, then to a shortest side of 768 ("Images and vision" in OpenAI's
    guide). An image of `low` detail costs `base`.
    """
    if detail == "low" or width < 1 or height < 1:
        return int(base)
    fit = min(1.0, 2048 / max(width, height))
    fit *= min(1.0, 768 / (min(width, height) * fit))
    tiles = math.ceil(width * fit / 512) * math.ceil(height * fit / 512)
    return int(base + tile * max(tiles, 1))


@lru_cache(maxsize=1024)
def _size_of_header(header: str) -> tuple[int, int] | None:
    import imagesize

    try:
        data = base64.b64decode(header + "=" * (-len(header) % 4))
        width, height = imagesize.get(io.BytesIO(data))
    except (binascii.Error, ValueError, OSError):
        return None
    return (width, height) if width > 0 and height > 0 else None


def image_size(url: str) -> tuple[int, int] | None:
    """Return the width and height of an image in pixels, from the first bytes of its `data:` URL.

    Return None for links and unreadable data.
    """
    if not url.startswith("data:"):
        return None
    _, _, payload = url.partition(",")
    for length in (4_096, 65_536):
        size = _size_of_header(payload[:length])
        if size is not None or len(payload) <= length:
            return size
    return None


def image_media(url: str, *, detail: str = "auto") -> Media:
    """Return the properties of an image that determine its cost, from the first bytes of its `data:` URL."""
    length = len(url) - url.find(",") - 1 if url.startswith("data:") else 0
    return Media("image", size=image_size(url), detail=detail, length=length)


def audio_media(data: str) -> Media:
    """Return the properties of base64 audio that determine its cost."""
    return Media("audio", length=len(data), seconds=_wav_seconds(data))


def document_part(url: str) -> Part:
    """Convert a document to a content part: a text document to its text, any other to its number of pages.

    Args:
        url: A `data:` URL, or base64. A string that is not base64 is itself the text of the document.
    """
    head, _, payload = url.partition(",") if url.startswith("data:") else ("", "", url)
    data = _decode(payload)
    if head.startswith(("data:text/", "data:application/json")):
        return Part("text", data.decode("utf-8", "replace"))
    is_base64 = payload.endswith("=") or _BASE64.match(payload)
    text = None if data.startswith(_PDF) else _text_of(data) or (None if is_base64 else payload)
    if text:
        return Part("text", text)
    pages, characters = _pdf(data)
    return Part("file", media=Media("file", length=len(payload), pages=pages, characters=characters))


_PDF: Final = b"%PDF"
_BASE64: Final = re.compile(r"[\w+/\r\n-]{64}", re.ASCII)
"""The beginning of base64; shorter data counts as base64 only if it is padded."""
_CONTROL: Final = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f]")
"""Control characters that do not occur in text. The escape character does, in colored logs."""


def _text_of(data: bytes) -> str | None:
    """Return data as text if it is valid UTF-8 without control characters; otherwise None."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None
    return None if _CONTROL.search(text) else text


def inner_media(text: str) -> Part | None:
    """Return the media in a string that is a `data:` URL or a base64 image or PDF; None for any other string."""
    if text.startswith("data:"):
        return url_part(text) if ";base64," in text[:100] else None
    kind = next((kind for start, kind in _STARTS if text.startswith(start)), None)
    return None if kind is None else url_part(f"data:{kind};base64,{text}")


_STARTS: Final = (
    ("iVBORw0KGgo", "image/png"),
    ("/9j/", "image/jpeg"),
    ("R0lGOD", "image/gif"),
    ("UklGR", "image/webp"),
    ("JVBERi0", "application/pdf"),
)
"""The characters with which base64 images and PDFs begin, and their media types."""


def url_part(url: str) -> Part:
    """Convert a `data:` URL to a content part, depending on its media type."""
    kind = url[5:].partition("/")[0]
    if kind == "image":
        return Part("image", media=image_media(url))
    if kind in ("audio", "video"):
        heard = audio_media(url.partition(",")[2])
        return Part("audio", media=replace(heard, kind="video") if kind == "video" else heard)
    return document_part(url)


_PAGE_OBJECT: Final = re.compile(rb"/Type\s*/Page\b")
_STREAM: Final = re.compile(rb"stream\r?\n(.*?)endstream", re.DOTALL)
_SHOWN: Final = re.compile(rb"\((?:[^()\\]|\\.)*\)|<([0-9A-Fa-f\s]+)>")
_MOST_BYTES: Final = 20_000_000  # maximum number of bytes of a PDF that are searched


def _pdf(data: bytes) -> tuple[int | None, int | None]:
    """Return the number of pages and the number of characters in a PDF, from its page objects and strings.

    Both are None if the data is not a PDF. If page objects are compressed, only the number of pages is None.
    """
    if not data.startswith(_PDF):
        return None, None
    data = data[:_MOST_BYTES]
    streams = (match[1] for match in _STREAM.finditer(data))
    return len(_PAGE_OBJECT.findall(data)) or None, sum(map(_shown_characters, streams))


def _shown_characters(stream: bytes) -> int:
    """Return the number of characters in a content stream; hexadecimal strings have two bytes per character."""
    try:
        contents = zlib.decompressobj().decompress(stream, _MOST_BYTES)
    except zlib.error:
        contents = stream
    if b"TJ" not in contents and b"Tj" not in contents:
        return 0
    shown = _SHOWN.finditer(contents)
    return sum(len(match[0]) - 2 if match[1] is None else len(match[1]) // 4 for match in shown)


def _wav_seconds(data: str) -> float | None:
    """Return the length of WAV audio in seconds, from the data rate in its header; None for other formats."""
    header = _decode(data[:64])
    if header[:4] != b"RIFF" or len(header) < 32:
        return None
    rate = int.from_bytes(header[28:32], "little")
    return len(data) * 3 / 4 / rate if rate else None


def _decode(payload: str) -> bytes:
    try:
        return base64.b64decode(payload + "=" * (-len(payload) % 4))
    except (binascii.Error, ValueError):
        return b""


def encrypted_tokens(data: object) -> int:
    """Return the approximate number of tokens in encrypted or signed base64 data, at four bytes per token."""
    return len(data) * 3 // 16 if isinstance(data, str) else 0


def is_payload(value: object, *, least: int = 128) -> bool:
    """Return whether a value is a `data:` URL with base64 data, or base64 data of at least `least` characters.

    Any other text that begins with `data:` may say what a person wrote.
    """
    if not isinstance(value, str):
        return False
    if value.startswith("data:"):
        return _DATA_URL.fullmatch(value) is not None
    if len(value) < least:
        return False
    # base64 mixes cases and digits, unlike a long word in lower case
    head = value[:1_000]
    mixed = any(map(str.isdigit, head)) and head != head.lower() and head != head.upper()
    return mixed and not re.search(r"[ \t]", head) and _PAYLOAD.fullmatch(value) is not None
