"""Read the bodies of responses, decompressed, in chunks of limited size and up to a total limit."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from ctxguard.errors import WireError
from ctxguard.wire.decoding import DecodingError, decoder


class UnreadableError(WireError):
    """A response cannot be read: it is too large, or not compressed as declared.

    Attributes:
        cause: Its name in the metrics.
    """

    def __init__(self, message: str, *, cause: str = "upstream_unreadable") -> None:
        super().__init__(message, status=502)
        self.cause = cause


def encoding_of(answer: Any) -> str:  # noqa: ANN401 - of either library
    """Return the content encoding of a response."""
    return str(answer.headers.get("content-encoding", "")).strip().lower()


def _inflating(answer: Any, most: int | None) -> Callable[[bytes], Iterator[bytes]]:  # noqa: ANN401
    """Return a function that yields the decompressed pieces of a chunk, up to a total size."""
    decoded, size = decoder(encoding_of(answer)), 0

    def feed(chunk: bytes) -> Iterator[bytes]:
        nonlocal size
        try:
            for piece in decoded(chunk):
                size += len(piece)
                if most is not None and size > most:
                    told = f"the provider's answer has more than {most:,} bytes; raise max_answer (serve: --max-answer)"
                    raise UnreadableError(told, cause="upstream_too_large")
                yield piece
        except DecodingError:
            raise UnreadableError("the provider's answer cannot be decompressed") from None

    return feed


def pieces(answer: Any, most: int | None = None) -> Iterator[bytes]:  # noqa: ANN401
    """Yield the body of a response as it arrives, decompressed, in pieces of limited size.

    Args:
        answer: A response of httpx or httpx2. One that was already read is yielded in one piece.
        most: Bytes that it may have; None means no limit.

    Raises:
        UnreadableError: It is larger, or not compressed as declared.
    """
    if answer.is_stream_consumed:
        yield answer.content
        return
    inflated = _inflating(answer, most)
    for chunk in answer.iter_raw():
        yield from inflated(chunk)


async def apieces(answer: Any, most: int | None = None) -> AsyncIterator[bytes]:  # noqa: ANN401
    """Do the same as `pieces` for a response that arrives asynchronously."""
    if answer.is_stream_consumed:
        yield answer.content
        return
    inflated = _inflating(answer, most)
    async for chunk in answer.aiter_raw():
        for piece in inflated(chunk):
            yield piece


def whole(answer: Any, most: int) -> bytes:  # noqa: ANN401
    """Return the body of a response, and close it.

    Raises:
        UnreadableError: See `pieces`.
    """
    try:
        return b"".join(pieces(answer, most))
    finally:
        answer.close()


async def awhole(answer: Any, most: int) -> bytes:  # noqa: ANN401
    """Do the same as `whole` for a response that arrives asynchronously."""
    try:
        return b"".join([piece async for piece in apieces(answer, most)])
    finally:
        await answer.aclose()
