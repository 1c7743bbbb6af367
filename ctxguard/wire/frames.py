"""Split a byte stream into the frames of Amazon's event stream format, and replace the event in a frame.

This module does for `application/vnd.amazon.eventstream` what `events` does for server-sent events.

A frame consists of its length, the length of its headers, a checksum of both, headers, payload, and a checksum of
everything. Converse names the event in a header. The streaming `invoke` operation encodes the model's own event as
base64.
"""

from __future__ import annotations

import json
import re
import struct
import zlib
from base64 import b64decode, b64encode
from collections.abc import Iterator
from typing import Final

from ctxguard.errors import WireError
from ctxguard.wire.replies import as_json

_PRELUDE: Final = 12
"""Number of bytes before the headers of a frame."""
_KIND: Final = re.compile(rb"\x0b:event-type\x07(..)", re.DOTALL)
"""Matches the header with the event type: a string preceded by its length in two bytes."""
_WRAPPED: Final = "chunk"


class EventSplitter:
    """Splits a byte stream into frames of at most `max_bytes` bytes."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._held = bytearray()

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Yield the frames that are now complete.

        Raises:
            WireError: If a frame is too large, or the stream is in another format.
        """
        self._held += chunk
        while len(self._held) >= _PRELUDE:
            length = int.from_bytes(self._held[:4])
            if not _PRELUDE < length <= self._max_bytes:
                raise WireError(f"an event of the response has {length:,} bytes", status=502)
            if len(self._held) < length:
                return
            yield bytes(self._held[:length])
            del self._held[:length]

    def close(self) -> bytes:
        """Return the bytes after the last complete frame."""
        rest = bytes(self._held)
        self._held.clear()
        return rest


def _parts(frame: bytes) -> tuple[str, bytes, bytes]:
    """Return the event type, the headers, and the payload of a frame."""
    end = _PRELUDE + int.from_bytes(frame[4:8])
    headers = frame[_PRELUDE:end]
    found = _KIND.search(headers)
    kind = headers[found.end() : found.end() + int.from_bytes(found[1])] if found else b""
    return kind.decode("utf-8", "replace"), headers, frame[end:-4]


def data_of(frame: bytes) -> dict[str, object] | None:
    """Return the event in a frame as a dict whose only key is the event type.

    For a frame of the streaming `invoke` operation, the model's own event is returned without such a key. None if the
    event is not a JSON object.
    """
    kind, _, payload = _parts(frame)
    try:
        data = json.loads(payload)
        event = json.loads(b64decode(data["bytes"])) if kind == _WRAPPED else {kind: data}
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return event if isinstance(event, dict) and kind else None


def with_data(frame: bytes, data: bytes) -> bytes:
    """Return a frame with a new event in its payload. Its headers are kept."""
    kind, headers, was = _parts(frame)
    event = json.loads(data)
    payload = as_json({**json.loads(was), "bytes": b64encode(data).decode()} if kind == _WRAPPED else event[kind])
    prelude = struct.pack(">II", _PRELUDE + len(headers) + len(payload) + 4, len(headers))
    whole = prelude + struct.pack(">I", zlib.crc32(prelude)) + headers + payload
    return whole + struct.pack(">I", zlib.crc32(whole))
