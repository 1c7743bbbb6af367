"""Make an image small enough to be attached: by its sides and by its bytes."""

from __future__ import annotations

import io
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, BinaryIO, Final

from ctxguard.files.opening import RefusedError
from ctxguard.settings import extra

if TYPE_CHECKING:
    from PIL import Image

MAX_PIXELS: Final = 40_000_000  # a larger image takes more than 160 MB when decoded
_MAX_FILE: Final = 100_000_000  # bytes of an image file
_PASSED: Final = {"PNG": "image/png", "JPEG": "image/jpeg", "GIF": "image/gif", "WEBP": "image/webp"}
_SMOOTH: Final = ("L", "LA", "RGB", "RGBA", "CMYK", "YCbCr")
"""Modes whose pixels can be averaged as they are; the others are converted first."""
_QUALITIES: Final = (85, 70, 50)


@dataclass(frozen=True)
class BinaryContent:
    """Binary data to attach to a message.

    In a program that has imported PydanticAI, it is an instance of PydanticAI's `BinaryContent`, too.

    Attributes:
        data: the bytes.
        mime_type: the type of the data.
        width: pixels, for an image.
        height: pixels, for an image.
    """

    data: bytes = field(repr=False)
    mime_type: str
    width: int | None = None
    height: int | None = None

    @property
    def media_type(self) -> str:
        """The MIME type, under the name that other libraries use."""
        return self.mime_type

    def __str__(self) -> str:
        """Return the type and the size in words."""
        return f"{self.mime_type}, {self.width}x{self.height} pixels, {len(self.data)} bytes"


def fit_image(file: BinaryIO, *, max_side: int, max_bytes: int) -> tuple[BinaryContent, tuple[int, int]]:
    """Return an image of at most `max_side` pixels and `max_bytes` bytes, and its original sides.

    An image within these limits is returned as it is.

    Raises:
        RefusedError: it is not an image, damaged, or a decompression bomb.
        ImportError: Pillow is not installed.
    """
    with extra("files", "Pillow is needed to read images"):
        import PIL.Image
    file.seek(0)
    data = file.read(_MAX_FILE + 1)
    if len(data) > _MAX_FILE:
        raise RefusedError(f"is larger than the {_MAX_FILE} bytes up to which images are read")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return _fitted(data, max_side, max_bytes)
    except RefusedError:
        raise
    except PIL.Image.DecompressionBombError:
        raise RefusedError(f"has far more than the {MAX_PIXELS} pixels up to which images are decoded") from None
    except Exception as error:  # noqa: BLE001 - decoders raise SyntaxError, struct.error and more
        raise RefusedError(f"is not an image that can be decoded ({type(error).__name__})") from None


def _fitted(data: bytes, max_side: int, max_bytes: int) -> tuple[BinaryContent, tuple[int, int]]:
    from PIL import Image

    with Image.open(io.BytesIO(data)) as image:
        width, height = image.size
        image.draft("RGB", (max_side, max_side))  # a JPEG can be decoded at a smaller size, which costs a fraction
        if image.width * image.height > MAX_PIXELS:
            raise RefusedError(
                f"has {width}x{height} pixels, more than the {MAX_PIXELS} up to which images are decoded"
            )
        mime = _PASSED.get(image.format or "")
        image.load()
        if mime and max(width, height) <= max_side and len(data) <= max_bytes:
            return _attachment(data, mime, width, height), (width, height)
        return _scaled(image, max_side, max_bytes), (width, height)


def _scaled(image: Image.Image, max_side: int, max_bytes: int) -> BinaryContent:
    """Scale down until the bytes fit: as PNG if that fits, else as JPEG, each time with shorter sides.

    The picture is rotated as its EXIF data require, because the result contains no EXIF data.
    """
    from PIL import ImageOps

    clear = "A" in image.getbands() or "transparency" in image.info
    if image.mode in _SMOOTH:  # before anything is copied: a large picture takes hundreds of megabytes
        image.thumbnail((max_side, max_side), reducing_gap=2.0)
    picture = ImageOps.exif_transpose(image).convert("RGBA" if clear else "RGB")
    side = max_side
    while True:
        picture.thumbnail((side, side))
        for written in _written(picture):
            if len(written.data) <= max_bytes or side <= 16:
                return written
        side = min(side, max(picture.size)) * 3 // 4


def _written(picture: Image.Image) -> Iterator[BinaryContent]:
    yield _saved(picture, "PNG", "image/png", {})
    if picture.mode == "RGB":
        for quality in _QUALITIES:
            yield _saved(picture, "JPEG", "image/jpeg", {"quality": quality})


def _saved(picture: Image.Image, name: str, mime: str, options: dict[str, int]) -> BinaryContent:
    buffer = io.BytesIO()
    picture.save(buffer, name, **options)
    return _attachment(buffer.getvalue(), mime, *picture.size)


def _attachment(data: bytes, mime: str, width: int, height: int) -> BinaryContent:
    """Return the content in the form of the framework in use, without importing any other framework."""
    if "pydantic_ai" not in sys.modules:
        return BinaryContent(data, mime, width, height)
    content: BinaryContent = import_module("ctxguard_pydantic_ai.adapter").Attachment(data, mime, width, height)
    return content
