"""Decompress bodies of requests and responses in pieces of limited size, since few bytes may expand to very many."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, Final

from ctxguard.errors import WireError
from ctxguard.settings import install_command

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
