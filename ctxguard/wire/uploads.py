"""Read the texts of an upload: a body of `multipart/form-data`, in which files are sent."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

_PATHS: Final = ("/files",)
"""Endings of the paths to which files are uploaded that a provider shows to models."""
_DIVIDED: Final = re.compile(r'\s*multipart/form-data\s*;.*?\bboundary="?([^";]+)', re.IGNORECASE)
_ENCODED: Final = re.compile(r"^content-transfer-encoding:\s*(?:base64|quoted)", re.IGNORECASE | re.MULTILINE)


def is_upload(method: str, path: str) -> bool:
    """Return whether a request uploads a file."""
    return method == "POST" and path.rstrip("/").endswith(_PATHS)


def divided(headers: Mapping[str, str], body: bytes) -> tuple[str, list[str]] | None:
    """Return the separator of an upload's parts, and the parts with their headers; None if one is not plain text.

    Args:
        headers: The headers of the request, with their names in lower case.
        body: Its body, not compressed.
    """
    found = _DIVIDED.match(headers.get("content-type", ""))
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return None
    if found is None or "\0" in text or _ENCODED.search(text):
        return None
    return f"--{found[1]}", text.split(f"--{found[1]}")
