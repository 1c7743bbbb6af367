"""What images, audio and files cost in tokens, by the providers' published rules, without decoding them."""

from __future__ import annotations

import base64
import binascii
import io
import math
from functools import lru_cache
from typing import Final

__all__ = ["audio_tokens", "file_tokens", "image_size", "image_tokens"]

UNKNOWN_SIDE: Final = 1024
"""Side in pixels assumed of an image that cannot be looked at (a link)."""
PAGE_TOKENS: Final = 1_500
PAGE_BYTES: Final = 60_000
AUDIO_TOKENS_PER_SECOND: Final = 10
WAV_BYTES_PER_SECOND: Final = 48_000


def image_tokens(size: tuple[int, int] | None, *, detail: str = "auto") -> int:
    """Return what an image costs by OpenAI's tile rule: 85 tokens, and 170 for each tile of 512 pixels.

    Images are scaled to fit 2048 x 2048, then to a shortest side of 768 ("Images and vision" in OpenAI's guide).

    Args:
        size: width and height in pixels; None where they are unknown, then 1024 x 1024 is assumed.
        detail: `low` costs 85 tokens whatever the size.
    """
    if detail == "low":
        return 85
    width, height = size or (UNKNOWN_SIDE, UNKNOWN_SIDE)
    if width < 1 or height < 1:
        return 85
    fit = min(1.0, 2048 / max(width, height))
    fit *= min(1.0, 768 / (min(width, height) * fit))
    tiles = math.ceil(width * fit / 512) * math.ceil(height * fit / 512)
    return 85 + 170 * max(tiles, 1)


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
    """Return width and height in pixels of a `data:` URL by its first bytes; None for links and unreadable data."""
    if not url.startswith("data:"):
        return None
    _, _, payload = url.partition(",")
    for length in (4_096, 65_536):
        size = _size_of_header(payload[:length])
        if size is not None or len(payload) <= length:
            return size
    return None


def audio_tokens(data: str | None) -> int:
    """Return about what base64 audio costs: 10 tokens a second, at the data rate of 24 kHz 16-bit sound."""
    seconds = (len(data) * 3 / 4) / WAV_BYTES_PER_SECOND if data else 30.0
    return max(AUDIO_TOKENS_PER_SECOND, math.ceil(seconds * AUDIO_TOKENS_PER_SECOND))


def file_tokens(data: str | None) -> int:
    """Return about what a file costs: 1,500 tokens a page (Anthropic: 1,500 to 3,000), a page for each 60 kB."""
    pages = math.ceil(len(data) * 3 / 4 / PAGE_BYTES) if data else 1
    return PAGE_TOKENS * max(pages, 1)
