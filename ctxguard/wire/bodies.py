"""Read and decompress the bodies of responses, in pieces of limited size and up to a total limit."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Final

from ctxguard.errors import WireError
from ctxguard.wire.decoding import DecodingError, decoder


class UnreadableError(WireError):
    """Raised when a response cannot be used: for example, it is too large, or not compressed as declared.

    Attributes:
        cause: The name of the cause in the metrics.
    """

    def __init__(self, message: str, *, cause: str = "upstream_unreadable") -> None:
        super().__init__(message, status=502)
        self.cause = cause


_BLANK: Final = b"\x1e\r\n "
"""Bytes around the objects of JSON lines, and of a JSON text sequence (RFC 7464)."""


def json_lines_error() -> UnreadableError:
    """Return the error for a response in JSON lines, in which nobody knows which lines continue a text."""
    return UnreadableError(
        "the provider answers in JSON lines, in which no values are restored; ask it for an answer as a whole or as "
        "server-sent events, or have values redacted",
        cause="json_lines",
    )


def is_json_lines(body: bytes) -> bool:
    """Return whether a body consists of JSON lines: its first two lines with text are objects of their own."""
    first, _, rest = body.strip(_BLANK).partition(b"\n")
    second = rest.lstrip(_BLANK).partition(b"\n")[0]
    try:
        return bool(second) and all(isinstance(json.loads(line.strip(_BLANK)), dict) for line in (first, second))
    except (ValueError, RecursionError):
        return False


def encoding_of(answer: Any) -> str:  # noqa: ANN401 - of either library
    """Return the content encoding of a response, in lower case."""
    return str(answer.headers.get("content-encoding", "")).strip().lower()


def _decompressor(answer: Any, max_bytes: int | None) -> Callable[[bytes], Iterator[bytes]]:  # noqa: ANN401
    """Return a function that yields a chunk's decompressed pieces and limits their total size over all chunks."""
    decoded, size = decoder(encoding_of(answer)), 0

    def feed(chunk: bytes) -> Iterator[bytes]:
        nonlocal size
        try:
            for piece in decoded(chunk):
                size += len(piece)
                if max_bytes is not None and size > max_bytes:
                    text = f"the response has more than {max_bytes:,} bytes; raise max_answer (serve: --max-answer)"
                    raise UnreadableError(text, cause="upstream_too_large")
                yield piece
        except DecodingError:
            raise UnreadableError("the response cannot be decompressed") from None

    return feed


def pieces(answer: Any, max_bytes: int | None = None) -> Iterator[bytes]:  # noqa: ANN401
    """Yield the body of a response as it arrives, decompressed, in pieces of limited size.

    Args:
        answer: A response of httpx or httpx2. If it was already read, its content is yielded in one piece.
        max_bytes: Maximum number of bytes in the decompressed body. None means no limit.

    Raises:
        UnreadableError: If the body is larger than `max_bytes`, or not compressed as declared.
    """
    if answer.is_stream_consumed:
        yield answer.content
        return
    inflated = _decompressor(answer, max_bytes)
    for chunk in answer.iter_raw():
        yield from inflated(chunk)


async def apieces(answer: Any, max_bytes: int | None = None) -> AsyncIterator[bytes]:  # noqa: ANN401
    """Asynchronous version of `pieces`."""
    if answer.is_stream_consumed:
        yield answer.content
        return
    inflated = _decompressor(answer, max_bytes)
    async for chunk in answer.aiter_raw():
        for piece in inflated(chunk):
            yield piece


def whole(answer: Any, max_bytes: int) -> bytes:  # noqa: ANN401
    """Return the decompressed body of a response, and close the response.

    Raises:
        UnreadableError: See `pieces`.
    """
    try:
        return b"".join(pieces(answer, max_bytes))
    finally:
        answer.close()


async def awhole(answer: Any, max_bytes: int) -> bytes:  # noqa: ANN401
    """Asynchronous version of `whole`."""
    try:
        return b"".join([piece async for piece in apieces(answer, max_bytes)])
    finally:
        await answer.aclose()
