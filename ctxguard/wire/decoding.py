"""Decompress bodies of requests and responses in chunks of limited size: few bytes may expand to very many."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, Final

from ctxguard.errors import WireError
from ctxguard.settings import install_command

PIECE: Final = 65_536
"""Bytes that are decompressed at a time."""
PLAIN: Final = ("", "identity")
_ZLIB_OR_GZIP: Final = zlib.MAX_WBITS | 32
_ZSTD_WINDOW: Final = 23
"""The binary logarithm of the largest window of Zstandard, 8 MB, as RFC 9659 sets it for HTTP."""

Pieces = Callable[[bytes], Iterator[bytes]]


class DecodingError(Exception):
    """A body is not compressed as its header declares."""


def _zlib() -> Pieces:
    inflater = zlib.decompressobj(_ZLIB_OR_GZIP)
    may_be_bare = True

    def pieces(chunk: bytes) -> Iterator[bytes]:
        nonlocal inflater, may_be_bare
        while chunk and not inflater.eof:
            try:
                piece = inflater.decompress(chunk, PIECE)
            except zlib.error:
                if not may_be_bare:
                    raise
                inflater = zlib.decompressobj(-zlib.MAX_WBITS)  # some servers send deflate without its header
                piece = inflater.decompress(chunk, PIECE)
            may_be_bare = False
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
    """Return whether a content encoding can be decoded: `br` and `zstd` need a library."""
    if encoding in PLAIN:
        return True
    try:
        return encoding in _DECODERS and _DECODERS[encoding]() is not None
    except ImportError:
        return False


def decoder(encoding: str) -> Pieces:
    """Return a function that decompresses the chunks of a body, one after the other.

    It raises DecodingError if a chunk is not compressed as the encoding says.

    Args:
        encoding: A content encoding for which `can_decode` holds, in lower case.
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


def decoded_request(body: bytes, encoding: str, most: int) -> bytes:
    """Return the body of a request, decompressed.

    Args:
        body: The body as it was sent.
        encoding: Its content encoding.
        most: Bytes that it may have after decompression.

    Raises:
        WireError: It is larger, not compressed as declared, or the encoding is not supported.
    """
    encoding = encoding.strip().lower()
    if not can_decode(encoding):
        remedy = f": {install_command('proxy')}" if encoding in _DECODERS else "; gzip, deflate, br and zstd are"
        raise WireError(f"bodies that are compressed as {encoding[:20]!r} are not read here{remedy}", status=415)
    found = bytearray()
    try:
        for piece in decoder(encoding)(body):
            found += piece
            if len(found) > most:
                told = f"the body has more than {most:,} bytes after decompression; raise max_body (serve: --max-body)"
                raise WireError(told, status=413)
    except DecodingError:
        raise WireError(f"the body is not compressed as {encoding}, as its header says") from None
    return bytes(found)
