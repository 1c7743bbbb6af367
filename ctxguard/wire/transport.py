"""The guard as a transport of httpx: whatever a client sends through it is guarded.

`httpx` and `httpx2` are served alike: requests and answers are of the library that the client uses.
"""

from __future__ import annotations

import asyncio
import copy
import logging
import sys
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Self, Unpack

from ctxguard.draft import Ask, adrive, drive
from ctxguard.errors import CtxguardError
from ctxguard.formats.registry import format_of
from ctxguard.stabilizer import Stabilizer
from ctxguard.wire.bodies import UnreadableError, apieces, awhole, encoding_of, pieces, whole
from ctxguard.wire.decoding import can_decode
from ctxguard.wire.guard import HEADERS, SESSION_HEADER, Guard, GuardSettings, Prepared, WireRequest
from ctxguard.wire.refusals import ERROR_HEADER, error_body, name_of, status_of
from ctxguard.wire.uploads import is_upload

if TYPE_CHECKING:
    import httpx
    import httpx2

    # clients of both libraries take them; at run time it is enough to behave like one
    class _Transport(httpx.BaseTransport, httpx2.BaseTransport):  # type: ignore[misc]
        """Be a transport for type checkers."""

    class _AsyncTransport(httpx.AsyncBaseTransport, httpx2.AsyncBaseTransport):  # type: ignore[misc]
        """Be an async transport for type checkers."""

else:
    _Transport = _AsyncTransport = object

_LOG: Final = logging.getLogger("ctxguard.wire")
UNFORWARDED: Final = "ctxguard.unforwarded"
"""The extension of a request that holds headers which the client sent to the proxy alone."""
_FRAMES: Final = "application/vnd.amazon.eventstream"
_OF_THE_BODY: Final = ("content-length", "content-encoding", "transfer-encoding")


class Transport(_Transport):
    """Send the requests of a client guarded: `httpx.Client(transport=Transport(stabilizer))`.

    What cannot be sent comes back as an answer with an error in the provider's form, so that clients raise their usual
    errors at once instead of trying again.

    Args:
        guard: A stabilizer, or a guard to share between clients.
        transport: What sends the requests; None means the usual transport of the client's library.
        settings: Those of `ctxguard.wire.Guard`, where a stabilizer was given.

    Raises:
        ConfigError: A setting cannot be used.
    """

    def __init__(
        self, guard: Stabilizer | Guard, *, transport: object = None, **settings: Unpack[GuardSettings]
    ) -> None:
        self.guard: Guard = as_guard(guard, settings)
        self._inner: Any = transport

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close what sends the requests."""
        if self._inner is not None:
            self._inner.close()

    def handle_request(self, request: Any) -> Any:  # noqa: ANN401 - of either library
        """Send one request guarded, and return its answer with the values back."""
        if self._inner is None:
            self._inner = _library(request).HTTPTransport()
        guard = self.guard
        return drive(_exchanged(guard, request, "read", self._inner.handle_request, guard.prepare, guard.again))


class AsyncTransport(_AsyncTransport):
    """Send the requests of an async client guarded: `httpx.AsyncClient(transport=AsyncTransport(stabilizer))`.

    The settings that are not named here are those of `Transport`.

    Args:
        large: Bytes from which on a body is prepared in a thread, so that others do not wait; None means never.
            Summarizers must be sync then.

    Raises:
        ConfigError: A setting cannot be used.
    """

    def __init__(
        self,
        guard: Stabilizer | Guard,
        *,
        transport: object = None,
        large: int | None = None,
        **settings: Unpack[GuardSettings],
    ) -> None:
        self.guard: Guard = as_guard(guard, settings)
        self._inner: Any = transport
        self._large = large

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close what sends the requests."""
        if self._inner is not None:
            await self._inner.aclose()

    async def handle_async_request(self, request: Any) -> Any:  # noqa: ANN401 - of either library
        """Send one request guarded, and return its answer with the values back."""
        if self._inner is None:
            self._inner = _library(request).AsyncHTTPTransport()
        send = self._inner.handle_async_request
        return await adrive(_exchanged(self.guard, request, "aread", send, self._prepared, self._again))

    def _is_large(self, asked: WireRequest) -> bool:
        return self._large is not None and len(asked.body) >= self._large

    async def _prepared(self, asked: WireRequest) -> Prepared:
        if self._is_large(asked):
            return await asyncio.to_thread(self.guard.prepare, asked)
        return await self.guard.aprepare(asked)

    async def _again(self, asked: WireRequest, prepared: Prepared, status: int, answer: bytes) -> Prepared | None:
        if self._is_large(asked):
            return await asyncio.to_thread(self.guard.again, asked, prepared, status, answer)
        return await self.guard.aagain(asked, prepared, status, answer)


def _exchanged(
    guard: Guard,
    request: Any,  # noqa: ANN401 - of either library
    read: str,
    send: Callable[..., object],
    prepare: Callable[..., object],
    again: Callable[..., object],
) -> Generator[Ask, object, Any]:
    """Send one request guarded, and return its answer; whatever does I/O is asked of a driver, sync or async."""
    library = _library(request)
    path = request.url.path
    if format_of(request.method, path) is None and not is_upload(request.method, path) and guard.passes_unread(path):
        return (yield from _passed_on(guard, request, send))
    asked = _asked(request, (yield Ask(getattr(request, read))))
    try:
        prepared: Any = yield Ask(prepare, (asked,))
    except CtxguardError as error:
        return _refused(library, guard, error, path)
    read_whole = awhole if read == "aread" else whole
    answer: Any = yield Ask(send, (_guarded(library, request, prepared),))
    try:
        while prepared.may_be_sent_again(answer.status_code) and can_decode(encoding_of(answer)):
            refused: Any = yield Ask(read_whole, (answer, guard.max_answer))
            another: Any = yield Ask(again, (asked, prepared, answer.status_code, refused))
            if another is None:
                answer = _rewritten(library, answer, content=refused)
                break
            prepared, answer = another, (yield Ask(send, (_guarded(library, request, another),)))
        _without_ours(answer).headers.update(prepared.headers)
        if not _is_restored(answer, prepared, guard):
            return answer
        if _is_stream(answer):
            return _rewritten(library, answer, stream=_stream_of(library)(answer, prepared, guard))
        said: Any = yield Ask(read_whole, (answer, guard.max_answer))
    except UnreadableError as error:
        return _refused(library, guard, error, path)
    return _rewritten(library, answer, content=prepared.whole(said))


def _passed_on(guard: Guard, request: Any, send: Callable[..., object]) -> Generator[Ask, object, Any]:  # noqa: ANN401
    """Send a request on unread."""
    guard.metrics.add("passed_unread_total")
    try:
        guard.record(request.url.path, request.headers, None)
    except CtxguardError as error:
        return _refused(_library(request), guard, error, request.url.path)
    return _without_ours((yield Ask(send, (request,))))


def _without_ours(answer: Any) -> Any:  # noqa: ANN401
    """Return an answer without headers that only the guard may set."""
    for name in [name for name in answer.headers if name.lower().startswith(HEADERS)]:
        del answer.headers[name]
    return answer


class _Shared:
    """Send by the transport of another client, and leave closing it to that client."""

    def __init__(self, transport: Any, owner: object) -> None:  # noqa: ANN401
        self.handle_request = getattr(transport, "handle_request", None)
        self.handle_async_request = getattr(transport, "handle_async_request", None)
        self._owner = owner

    def close(self) -> None:
        """Do nothing."""

    async def aclose(self) -> None:
        """Do nothing."""


def guarded_http_client(client: Any, guard: Guard) -> Any:  # noqa: ANN401 - of either library
    """Return a copy of a client of httpx that sends guarded, by the same connections.

    Args:
        client: A client, sync or async.
        guard: The guard.
    """
    kind = AsyncTransport if hasattr(client, "aclose") else Transport

    def wrapped(transport: object) -> object:
        return None if transport is None else kind(guard, transport=_Shared(transport, client))

    guarded = copy.copy(client)
    # httpx has no public way to a client's transports, and a new client would lose its proxies and certificates
    guarded._transport = wrapped(client._transport)  # noqa: SLF001
    guarded._mounts = {pattern: wrapped(one) for pattern, one in client._mounts.items()}  # noqa: SLF001
    return guarded


def as_guard(given: Stabilizer | Guard, settings: GuardSettings) -> Guard:
    """Return a guard that was handed over, or that of a stabilizer; refuse anything else."""
    return given if isinstance(given, Guard) and not settings else Guard(given, **settings)  # type: ignore[arg-type]


def _library(request: object) -> Any:  # noqa: ANN401 - a module
    return sys.modules[type(request).__module__.partition(".")[0]]


def _asked(request: Any, body: Any) -> WireRequest:  # noqa: ANN401
    headers = {name.lower(): value for name, value in request.headers.items()}
    headers.update(request.extensions.get(UNFORWARDED, {}))
    return WireRequest(request.method, request.url.path, headers, body, request.url.query.decode("ascii", "replace"))


def _guarded(library: Any, request: Any, prepared: Prepared) -> Any:  # noqa: ANN401
    dropped = {b"content-length", b"transfer-encoding", SESSION_HEADER.encode()}
    if prepared.body != request.content:  # what is written anew is not compressed
        dropped.add(b"content-encoding")
    if prepared.report is not None:  # an answer must be readable, to put values back and to see what was billed
        dropped.add(b"accept-encoding")
    headers = [(name, value) for name, value in request.headers.raw if name.lower() not in dropped]
    if prepared.report is not None:
        headers.append((b"Accept-Encoding", b"identity"))
    content = prepared.body or None
    return library.Request(
        request.method, request.url, headers=headers, content=content, extensions=dict(request.extensions)
    )


def _refused(library: Any, guard: Guard, error: CtxguardError, path: str) -> Any:  # noqa: ANN401
    status = status_of(error)
    if isinstance(error, UnreadableError):  # the request was sent
        name = code = error.cause
        guard.metrics.add("failures_total", "cause", name)
    else:
        name, code = type(error).__name__, name_of(error)
        guard.metrics.add("refused_total", "error", name)
    _LOG.warning("request refused with status %d: %s", status, name)
    headers = {"content-type": "application/json", ERROR_HEADER: name}
    return library.Response(status, headers=headers, content=error_body(code, str(error), status=status, path=path))


def _is_restored(answer: Any, prepared: Prepared, guard: Guard) -> bool:  # noqa: ANN401
    """Tell whether values are put back in an answer; count it where they should be and cannot."""
    if prepared.reply is None or not 200 <= answer.status_code < 300:
        return False
    is_read = can_decode(encoding_of(answer))
    is_restored = is_read and ("json" in answer.headers.get("content-type", "").lower() or _is_stream(answer))
    guard.metrics.add("unrestored_total", count=int(not is_restored))
    return is_restored


def _is_stream(answer: Any) -> bool:  # noqa: ANN401
    return str(answer.headers.get("content-type", "")).lower().startswith(("text/event-stream", _FRAMES))


def _rewritten(library: Any, answer: Any, **body: object) -> Any:  # noqa: ANN401
    headers = [(name, value) for name, value in answer.headers.raw if name.decode().lower() not in _OF_THE_BODY]
    return library.Response(answer.status_code, headers=headers, extensions=answer.extensions, **body)


class _GuardedStream:
    """Give values back in the events of an answer as they come."""

    def __init__(self, answer: Any, prepared: Prepared, guard: Guard) -> None:  # noqa: ANN401
        is_framed = answer.headers["content-type"].lower().startswith(_FRAMES)
        self._answer, self._events, self._guard = answer, prepared.stream(is_framed=is_framed), guard
        # clients that stop at the last event read the rest by a second iterator: it goes on where the first stopped
        self._pieces, self._apieces = pieces(answer), apieces(answer)

    def __iter__(self) -> Iterator[bytes]:
        try:
            for chunk in self._pieces:
                if piece := self._events.feed(chunk):
                    yield piece
        except Exception:
            yield from self._rest()
            raise
        yield from self._rest()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._apieces:
                if piece := self._events.feed(chunk):
                    yield piece
        except Exception:
            for rest in self._rest():
                yield rest
            raise
        for rest in self._rest():
            yield rest

    def _rest(self) -> Iterator[bytes]:
        if rest := self._events.close():
            yield rest

    def close(self) -> None:
        self._answer.close()
        self._note_malformed()

    async def aclose(self) -> None:
        await self._answer.aclose()
        self._note_malformed()

    def _note_malformed(self) -> None:
        self._guard.metrics.add("malformed_events_total", count=self._events.malformed)


@lru_cache(maxsize=4)
def _stream_of(library: Any) -> Any:  # noqa: ANN401 - a class that the library takes for a stream of its own
    return type("GuardedStream", (_GuardedStream, library.SyncByteStream, library.AsyncByteStream), {})
