"""Split a byte stream into server-sent events, and replace the data of an event.

The format is defined in the HTML standard, section 9.2. Events end with an empty line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Final

from ctxguard.errors import WireError

_END: Final = re.compile(rb"\r\n\r\n|\n\n|\r\r")
_LINE: Final = re.compile(rb"\r\n|\n|\r")
_BOM: Final = b"\xef\xbb\xbf"
"""The byte order mark at the start of some streams, which is not part of the first event."""
_OVERLAP: Final = 3
"""Length in bytes of the longest ending of an event without its last byte, which may arrive in a later chunk."""


class EventSplitter:
    """Splits a byte stream into events of at most `max_bytes` bytes, each with the empty line that ends it."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._held = bytearray()
        self._has_begun = False

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Yield the events that are now complete.

        Raises:
            WireError: If an event is too large.
        """
        seen = max(0, len(self._held) - _OVERLAP)
        self._held += chunk
        if not self._has_begun:
            if len(self._held) < len(_BOM) and _BOM.startswith(self._held):
                return
            self._held = self._held.removeprefix(_BOM)
            self._has_begun = True
        done = 0
        while (match := _END.search(self._held, max(done, seen))) is not None:
            yield bytes(self._held[done : match.end()])
            done = match.end()
        del self._held[:done]
        if len(self._held) > self._max_bytes:
            raise WireError(f"an event of the response has more than {self._max_bytes:,} bytes", status=502)

    def close(self) -> bytes:
        """Return the bytes after the last complete event."""
        rest = bytes(self._held)
        self._held.clear()
        return rest


def data_of(event: bytes) -> dict[str, object] | None:
    """Return the data of an event if it is a JSON object, else None."""
    lines = [line[5:].removeprefix(b" ") for line in _LINE.split(event) if line.startswith(b"data:")]
    if not lines or lines == [b"[DONE]"]:
        return None
    try:
        data = json.loads(b"\n".join(lines))
    except (ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) else None


def with_data(event: bytes, data: bytes) -> bytes:
    """Return an event with new data on a single line. Its other lines and its line endings are kept."""
    pieces: list[bytes] = []
    is_written = False
    for line in event.splitlines(keepends=True):
        if not line.startswith(b"data:"):
            pieces.append(line)
        elif not is_written:
            pieces.append(b"data: " + data + line[len(line.rstrip(b"\r\n")) :])
            is_written = True
    return b"".join(pieces)
