"""Scale an image down until its sides and its bytes are within the limits for an attachment."""

from __future__ import annotations

import io
import sys
import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, BinaryIO, Final

from ctxguard.content.opening import RefusedError
from ctxguard.settings import adapter_of, extra

if TYPE_CHECKING:
    from PIL import Image


MAX_PIXELS: Final = 40_000_000  # more pixels take more than 160 MB when decoded
_MAX_FILE: Final = 100_000_000  # maximum bytes of an image file
_PASSED: Final = {"PNG": "image/png", "JPEG": "image/jpeg", "GIF": "image/gif", "WEBP": "image/webp"}
_SMOOTH: Final = ("L", "LA", "RGB", "RGBA", "CMYK", "YCbCr")
"""Color modes that Pillow can scale as they are; images in other modes are converted first."""
_ENCODINGS: Final = (("PNG", 0), ("JPEG", 85), ("JPEG", 70), ("JPEG", 50))
"""Formats to try, with the quality for JPEG. Only PNG can be transparent."""


@dataclass(frozen=True)
class BinaryContent:
    """Binary data to attach to a message.

    In a program that has imported PydanticAI, `read_file` returns an object that is also an instance of PydanticAI's
    `BinaryContent`.

    Attributes:
        data: The bytes.
        mime_type: The MIME type of the data.
        width: Width of an image in pixels; None for other data.
        height: Height of an image in pixels; None for other data.
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
        """Return the MIME type and the size as text."""
        return f"{self.mime_type}, {self.width}x{self.height} pixels, {len(self.data)} bytes"


def fit_image(file: BinaryIO, *, max_side: int, max_bytes: int) -> tuple[BinaryContent, tuple[int, int]]:
    """Return an image whose longer side has at most `max_side` pixels and whose data has at most `max_bytes` bytes.

    An image within these limits is returned unchanged if models accept its format. The second result is the original
    width and height.

    Raises:
        RefusedError: If the file is not an image, is damaged, or has too many pixels.
        ImportError: If Pillow is not installed.
    """
    with extra("files", "Pillow is needed to read images"):
        import PIL.Image
    file.seek(0)
    data = file.read(_MAX_FILE + 1)
    if len(data) > _MAX_FILE:
        raise RefusedError(f"is larger than {_MAX_FILE} bytes, the limit for images")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return _fit(data, max_side, max_bytes)
    except RefusedError:
        raise
    except PIL.Image.DecompressionBombError:
        raise RefusedError(f"has far more than {MAX_PIXELS} pixels, the limit for images") from None
    except Exception as error:  # noqa: BLE001 - decoders raise SyntaxError, struct.error and more
        raise RefusedError(f"is not an image that can be decoded ({type(error).__name__})") from None


def _fit(data: bytes, max_side: int, max_bytes: int) -> tuple[BinaryContent, tuple[int, int]]:
    from PIL import Image

    with Image.open(io.BytesIO(data)) as image:
        width, height = image.size
        image.draft("RGB", (max_side, max_side))  # a JPEG can be decoded at a smaller size, which is faster
        if image.width * image.height > MAX_PIXELS:
            raise RefusedError(f"has {width}x{height} pixels, more than {MAX_PIXELS}, the limit for images")
        mime = _PASSED.get(image.format or "")
        image.load()
        if mime and max(width, height) <= max_side and len(data) <= max_bytes:
            return _attachment(data, mime, width, height), (width, height)
        return _scale(image, max_side, max_bytes), (width, height)


def _scale(image: Image.Image, max_side: int, max_bytes: int) -> BinaryContent:
    """Scale an image down until its data fits. It is written as PNG, or as JPEG if that is too large.

    The image is rotated as its EXIF data say, because the result contains no EXIF data.
    """
    from PIL import ImageOps

    clear = "A" in image.getbands() or "transparency" in image.info
    if image.mode in _SMOOTH:  # before anything is copied, because a large image takes hundreds of megabytes
        image.thumbnail((max_side, max_side), reducing_gap=2.0)
    picture = ImageOps.exif_transpose(image).convert("RGBA" if clear else "RGB")
    side = max_side
    while True:
        picture.thumbnail((side, side))
        for encoding, quality in _ENCODINGS[: 1 if clear else None]:
            buffer = io.BytesIO()
            picture.save(buffer, encoding, quality=quality)
            if buffer.tell() <= max_bytes or side <= 16:
                return _attachment(buffer.getvalue(), _PASSED[encoding], *picture.size)
        side = min(side, max(picture.size)) * 3 // 4


def _attachment(data: bytes, mime: str, width: int, height: int) -> BinaryContent:
    """Return the content. If PydanticAI is imported already, the content is an instance of its class as well."""
    if "pydantic_ai" not in sys.modules:
        return BinaryContent(data, mime, width, height)
    adapter = adapter_of("pydantic-ai", "an image for an agent needs PydanticAI's adapter")
    content: BinaryContent = adapter.attachment(data, mime, width, height)
    return content
