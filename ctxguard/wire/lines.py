"""Split a byte stream into JSON lines, and replace the object in a line.

This module does for JSON lines, as Ollama streams them, what `events` does for server-sent events.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from ctxguard.errors import WireError

_BLANK = b" \t\r\n\x1e"
"""What may stand around an object: blank space, and the sign that begins a record of `application/json-seq`."""


class EventSplitter:
    """Splits a byte stream into lines of at most `max_bytes` bytes, each with its line ending."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._begun = bytearray()

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Yield the lines that are now complete.

        Raises:
            WireError: If a line is too large.
        """
        *lines, rest = chunk.split(b"\n")
        for line in lines:
            yield bytes(self._begun + line) + b"\n"
            self._begun.clear()
        self._begun += rest
        if len(self._begun) > self._max_bytes:
            raise WireError(f"a line of the response has more than {self._max_bytes:,} bytes", status=502)

    def close(self) -> bytes:
        """Return the bytes after the last complete line."""
        rest = bytes(self._begun)
        self._begun.clear()
        return rest


def data_of(line: bytes) -> dict[str, object] | None:
    """Return the data of a line if it is a JSON object, else None."""
    try:
        data = json.loads(line.strip(_BLANK))
    except (ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) else None


def with_data(line: bytes, data: bytes) -> bytes:
    """Return a line with new data. What stands around the object is kept."""
    bare = line.strip(_BLANK)
    begin = line.index(bare)
    return line[:begin] + data + line[begin + len(bare) :]
