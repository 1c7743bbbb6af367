"""A client's request, and the bodies of requests and responses: read in pieces, decompressed, parsed, up to a limit."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ctxguard.errors import WireError
from ctxguard.settings import install_command
from ctxguard.wire.replies import as_json

if TYPE_CHECKING:
    from ctxguard.formats.format import Item


class Turn(NamedTuple):
    """The part of a model's turn that precedes a follow-up request of the guard.

    Attributes:
        name: The name of the recall tool.
        rounds: Number of responses so far that called the recall tool. The client does not see these calls.
        before: The text of the message before the turn.
        shown: The output items that the client receives, in the provider's form: with placeholders.
        plain: The messages that the turn adds to the history, with masked values restored.
        masked: The same messages as the provider has them, with placeholders.
        numbering: The numbering of these placeholders, see `sessions.numberings_of`.
    """

    name: str = ""
    rounds: int = 0
    before: str = ""
    shown: tuple[Item, ...] = ()
    plain: tuple[Item, ...] = ()
    masked: tuple[Item, ...] = ()
    numbering: str = ""


@dataclass(frozen=True, slots=True)
class WireRequest:
    """A request as a client sends it.

    Attributes:
        method: The HTTP method.
        path: The path of the URL.
        headers: The headers, with names in lower case.
        body: The body, decompressed.
        query: The query string of the URL.
        turn: The turn that the request continues, if the guard itself sends the request.
    """

    method: str
    path: str
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)
    query: str = field(default="", repr=False)
    turn: Turn | None = field(default=None, repr=False)


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


PIECE: Final = 65_536
"""Maximum number of bytes in a decompressed piece."""
PLAIN: Final = ("", "identity")
_ZLIB_OR_GZIP: Final = zlib.MAX_WBITS | 32
_ZSTD_WINDOW: Final = 23
"""The binary logarithm of the largest window size of Zstandard, 8 MB, which RFC 9659 sets for HTTP."""

Pieces = Callable[[bytes], Iterator[bytes]]


class DecodingError(Exception):
    """Raised when a body is not compressed as its header declares."""


def _zlib() -> Pieces:
    inflater = zlib.decompressobj(_ZLIB_OR_GZIP)
    header = b""  # a header has two bytes, which may arrive one by one

    def pieces(chunk: bytes) -> Iterator[bytes]:
        nonlocal inflater, header
        while chunk and not inflater.eof:
            try:
                piece = inflater.decompress(chunk, PIECE)
            except zlib.error:
                if len(header) > 1:
                    raise
                inflater = zlib.decompressobj(-zlib.MAX_WBITS)  # some servers send deflate data without the zlib header
                piece = inflater.decompress(header + chunk, PIECE)
            header = (header + chunk)[:2]
            yield piece
            chunk = inflater.unconsumed_tail

    return pieces


def _brotli() -> Pieces:
    import brotli

    inflater = brotli.Decompressor()

    def pieces(chunk: bytes) -> Iterator[bytes]:
        while not inflater.is_finished() and (chunk or not inflater.can_accept_more_data()):
            yield inflater.process(chunk, output_buffer_limit=PIECE)
            chunk = b""

    return pieces


def _zstd() -> Pieces:
    zstd = _zstd_module()
    inflater = zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: _ZSTD_WINDOW})

    def pieces(chunk: bytes) -> Iterator[bytes]:
        while not inflater.eof and (chunk or not inflater.needs_input):
            yield inflater.decompress(chunk, PIECE)
            chunk = b""

    return pieces


def _zstd_module() -> Any:  # noqa: ANN401 - a module
    try:
        from compression import zstd  # in the standard library since Python 3.14
    except ImportError:
        from backports import zstd
    return zstd


_DECODERS: Final[dict[str, Callable[[], Pieces]]] = {
    "gzip": _zlib,
    "x-gzip": _zlib,
    "deflate": _zlib,
    "br": _brotli,
    "zstd": _zstd,
}


@lru_cache(maxsize=32)
def can_decode(encoding: str) -> bool:
    """Return whether a content encoding can be decoded. `br` and `zstd` need an extra library."""
    if encoding in PLAIN:
        return True
    try:
        return encoding in _DECODERS and _DECODERS[encoding]() is not None
    except ImportError:
        return False


def decoder(encoding: str) -> Pieces:
    """Return a function that decompresses the chunks of a body, to be called with one chunk after the other.

    The function raises `DecodingError` if a chunk is not compressed as the encoding says.

    Args:
        encoding: A content encoding in lower case, for which `can_decode` returns True.
    """
    if encoding in PLAIN:
        return lambda chunk: iter((chunk,))
    pieces = _DECODERS[encoding]()

    def decoded(chunk: bytes) -> Iterator[bytes]:
        try:
            yield from pieces(chunk)
        except Exception as error:  # noqa: BLE001 - each library raises errors of its own
            raise DecodingError(type(error).__name__) from None

    return decoded


def decode_request(body: bytes, encoding: str, max_bytes: int) -> bytes:
    """Return the decompressed body of a request.

    Args:
        body: The body as it was sent.
        encoding: The content encoding of the body.
        max_bytes: Maximum number of bytes after decompression.

    Raises:
        WireError: If the body is larger than `max_bytes` or not compressed as `encoding` says, or if the encoding is
            not supported.
    """
    encoding = encoding.strip().lower()
    if not can_decode(encoding):
        remedy = f": {install_command('proxy')}" if encoding in _DECODERS else "; use gzip, deflate, br, or zstd"
        raise WireError(f"bodies compressed as {encoding[:20]!r} cannot be read{remedy}", status=415)
    found = bytearray()
    try:
        for piece in decoder(encoding)(body):
            found += piece
            if len(found) > max_bytes:
                text = f"the body has over {max_bytes:,} bytes after decompression; raise max_body (serve: --max-body)"
                raise WireError(text, status=413)
    except DecodingError:
        raise WireError(f"the body is not compressed as {encoding}, as its header says") from None
    return bytes(found)


def parse_body(body: bytes) -> dict[str, object]:
    """Return the JSON object in a body.

    Raises:
        WireError: If the body is not valid JSON, or not an object.
    """
    try:
        parsed = json.loads(body, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise WireError(f"the body is not valid JSON ({type(error).__name__})") from None
    if not isinstance(parsed, dict):
        raise WireError(f"the body must be a JSON object, not {type(parsed).__name__}")
    return parsed


def _refuse_constant(name: str) -> object:
    raise ValueError(name)


def write_body(body: Mapping[str, object]) -> bytes:
    """Return a body as JSON bytes.

    The client's own bytes are never sent instead, because a repeated key in them could hide unchecked values.
    """
    try:
        return as_json(body, allow_nan=False)
    except (ValueError, RecursionError) as error:
        raise WireError(f"the request cannot be written as JSON ({type(error).__name__})") from None


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
