"""Read the texts in a file upload, which is a request with a `multipart/form-data` body."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

_PATHS: Final = ("/files",)
"""Endings of the paths for uploading files that the provider makes available to models."""
_DIVIDED: Final = re.compile(r'\s*multipart/form-data\s*;.*?\bboundary="?([^";]+)', re.IGNORECASE)
_ENCODED: Final = re.compile(r"^content-transfer-encoding:\s*(?:base64|quoted)", re.IGNORECASE | re.MULTILINE)


def is_upload(method: str, path: str) -> bool:
    """Return whether a request uploads a file."""
    return method == "POST" and path.rstrip("/").endswith(_PATHS)


def split_parts(headers: Mapping[str, str], body: bytes) -> tuple[str, list[str]] | None:
    """Split an upload at its separator.

    Args:
        headers: The headers of the request, with names in lower case.
        body: The body of the request, decompressed.

    Returns:
        The separator, and the parts with their headers. None if the body is not multipart form data, or if a part is
        not plain text.
    """
    found = _DIVIDED.match(headers.get("content-type", ""))
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return None
    if found is None or "\0" in text or _ENCODED.search(text):
        return None
    return f"--{found[1]}", text.split(f"--{found[1]}")
