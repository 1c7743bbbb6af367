"""Split a streamed response into its events, and replace the data of an event: one class for each kind of stream.

Server-sent events are defined in the HTML standard, section 9.2: they end with an empty line. A frame of Amazon's event
stream (`application/vnd.amazon.eventstream`) consists of its length, the length of its headers, a checksum of both,
headers, payload, and a checksum of everything; Converse names the event in a header, and the streaming `invoke`
operation encodes the model's own event as base64. Ollama and others stream JSON lines.
"""

from __future__ import annotations

import json
import re
import struct
import zlib
from abc import ABC, abstractmethod
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping
from typing import ClassVar, Final, Literal, TypeAlias

from ctxguard.errors import WireError
from ctxguard.wire.replies import as_json

_END: Final = re.compile(rb"\r\n\r\n|\n\n|\r\r")
_LINE: Final = re.compile(rb"\r\n|\n|\r")
_BOM: Final = b"\xef\xbb\xbf"
"""The byte order mark at the start of some streams, which is not part of the first event."""
_OVERLAP: Final = 3
"""Length in bytes of the longest ending of an event without its last byte, which may arrive in a later chunk."""
_PRELUDE: Final = 12
"""Number of bytes before the headers of a frame."""
_KIND: Final = re.compile(rb"\x0b:event-type\x07(..)", re.DOTALL)
"""Matches the header with the event type: a string preceded by its length in two bytes."""
_WRAPPED: Final = "chunk"
_BLANK: Final = b" \t\r\n\x1e"
"""What may be around an object: white space, and the character that begins a record of `application/json-seq`."""


class Events(ABC):
    """Splits the bytes of a stream into events of at most `max_bytes` bytes: call `feed` with them, then `close`.

    Attributes:
        ending: Bytes that end an event, if a provider may leave them out after the last one; otherwise empty.
    """

    ending: ClassVar[bytes] = b""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._held = bytearray()

    @abstractmethod
    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Yield the events that are now complete, as bytes.

        Raises:
            WireError: If an event is too large, or the stream is in another format.
        """

    def close(self) -> bytes:
        """Return the bytes after the last complete event."""
        rest = bytes(self._held)
        self._held.clear()
        return rest

    @staticmethod
    @abstractmethod
    def data_of(event: bytes) -> dict[str, object] | None:
        """Return the data of an event if it is a JSON object, else None."""

    @staticmethod
    def has_data(event: bytes) -> bool:
        """Return whether an event is meant to have data, so that one whose data cannot be read is malformed."""
        return b"data:" in event

    @staticmethod
    @abstractmethod
    def with_data(event: bytes, data: bytes) -> bytes:
        """Return an event with new data. What stands around the data is kept."""


class ServerSentEvents(Events):
    """Server-sent events, each with the empty line that ends it."""

    ending = b"\n\n"
    _has_begun = False

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

    @staticmethod
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

    @staticmethod
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


class Frames(Events):
    """The frames of Amazon's event stream format."""

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

    @staticmethod
    def data_of(event: bytes) -> dict[str, object] | None:
        """Return the event in a frame as a dict whose only key is the event type.

        For a frame of the streaming `invoke` operation, the model's own event is returned without such a key. None if
        the event is not a JSON object.
        """
        kind, _, payload = _parts(event)
        try:
            data = json.loads(payload)
            found = json.loads(b64decode(data["bytes"])) if kind == _WRAPPED else {kind: data}
        except (ValueError, KeyError, TypeError, RecursionError):
            return None
        return found if isinstance(found, dict) and kind else None

    @staticmethod
    def with_data(event: bytes, data: bytes) -> bytes:
        """Return a frame with a new event in its payload. Its headers are kept."""
        kind, headers, was = _parts(event)
        is_wrapped = kind == _WRAPPED
        new = {**json.loads(was), "bytes": b64encode(data).decode()} if is_wrapped else json.loads(data)[kind]
        payload = as_json(new)
        prelude = struct.pack(">II", _PRELUDE + len(headers) + len(payload) + 4, len(headers))
        whole = prelude + struct.pack(">I", zlib.crc32(prelude)) + headers + payload
        return whole + struct.pack(">I", zlib.crc32(whole))


def _parts(frame: bytes) -> tuple[str, bytes, bytes]:
    """Return the event type, the headers, and the payload of a frame."""
    end = _PRELUDE + int.from_bytes(frame[4:8])
    headers = frame[_PRELUDE:end]
    found = _KIND.search(headers)
    kind = headers[found.end() : found.end() + int.from_bytes(found[1])] if found else b""
    return kind.decode("utf-8", "replace"), headers, frame[end:-4]


class JsonLines(Events):
    """JSON lines, each with its line ending."""

    ending = b"\n"

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Yield the lines that are now complete.

        Raises:
            WireError: If a line is too large.
        """
        *lines, rest = chunk.split(b"\n")
        for line in lines:
            yield bytes(self._held + line) + b"\n"
            self._held.clear()
        self._held += rest
        if len(self._held) > self._max_bytes:
            raise WireError(f"a line of the response has more than {self._max_bytes:,} bytes", status=502)

    @staticmethod
    def data_of(event: bytes) -> dict[str, object] | None:
        """Return the data of a line if it is a JSON object, else None."""
        try:
            data = json.loads(event.strip(_BLANK))
        except (ValueError, RecursionError):
            return None
        return data if isinstance(data, dict) else None

    @staticmethod
    def has_data(event: bytes) -> bool:
        """Return whether a line is not blank."""
        return bool(event.strip())

    @staticmethod
    def with_data(event: bytes, data: bytes) -> bytes:
        """Return a line with new data. What stands around the object is kept."""
        bare = event.strip(_BLANK)
        begin = event.index(bare)
        return event[:begin] + data + event[begin + len(bare) :]


StreamForm: TypeAlias = Literal["events", "frames", "lines"]
FORMS: Final[Mapping[StreamForm, type[Events]]] = {"events": ServerSentEvents, "frames": Frames, "lines": JsonLines}
