"""The guard as a transport of httpx: every request of a client is guarded.

Both `httpx` and `httpx2` are supported. Requests and responses are objects of the library that the client uses.
"""

from __future__ import annotations

import asyncio
import copy
import logging
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self, TypeVar, Unpack, cast

from ctxguard.adapting.misuse import takes_stabilizer
from ctxguard.draft import Ask, adrive, drive
from ctxguard.errors import ConfigError, CtxguardError
from ctxguard.formats.registry import format_of
from ctxguard.stabilizer import Stabilizer
from ctxguard.wire.bodies import (
    UnreadableError,
    WireRequest,
    apieces,
    awhole,
    can_decode,
    encoding_of,
    is_json_lines,
    is_upload,
    json_lines_error,
    pieces,
    whole,
)
from ctxguard.wire.guard import HEADERS, SESSION_HEADER, Guard, GuardSettings, Prepared
from ctxguard.wire.limits import ERROR_HEADER, error_body, name_of, status_of
from ctxguard.wire.metering import Billed

if TYPE_CHECKING:
    import httpx
    import httpx2

    from ctxguard.formats.format import Weave
    from ctxguard.wire.events import StreamForm

    # clients of both libraries accept these classes; at run time, having the right methods is enough
    class _Transport(httpx.BaseTransport, httpx2.BaseTransport):  # type: ignore[misc]
        """The base class of transports, for type checkers."""

    class _AsyncTransport(httpx.AsyncBaseTransport, httpx2.AsyncBaseTransport):  # type: ignore[misc]
        """The base class of async transports, for type checkers."""

else:
    _Transport = _AsyncTransport = object

_LOG: Final = logging.getLogger("ctxguard.wire")
UNFORWARDED: Final = "ctxguard.unforwarded"
"""The request extension with the headers that the client sent for the proxy alone."""
_BILLED: Final = "ctxguard.billed"
"""The response extension with the object that reads the reported token counts."""
_FRAMES: Final = "application/vnd.amazon.eventstream"
_OF_THE_BODY: Final = ("content-length", "content-encoding", "transfer-encoding")
_JSON_LINES: Final = frozenset(
    f"application/{name}" for name in ("x-ndjson", "ndjson", "jsonl", "x-jsonl", "jsonlines", "x-jsonlines")
) | {"application/json-seq", "application/stream+json", "text/x-ndjson", "text/jsonl"}
"""Media types of JSON lines, in lower case."""


Client = TypeVar("Client")


class Transport(_Transport):
    """Sends the requests of a client guarded: `httpx.Client(transport=Transport(stabilizer))`.

    If a request cannot be sent, the response contains an error in the provider's form, so that clients raise their
    usual exceptions at once instead of trying again.

    Args:
        guard: A stabilizer, or a guard to share between clients.
        transport: The transport that sends the requests. None means the default transport of the client's library.
        settings: The settings of `ctxguard.wire.Guard`, if `guard` is a stabilizer.

    Raises:
        ConfigError: If a setting cannot be used.
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
        """Close the inner transport."""
        if self._inner is not None:
            self._inner.close()

    def handle_request(self, request: Any) -> Any:  # noqa: ANN401 - of either library
        """Send one request guarded, and return its response with values restored."""
        if self._inner is None:
            self._inner = _library(request).HTTPTransport()
        return drive(_exchange(self.guard, request, self._inner.handle_request, "read"))


class AsyncTransport(_AsyncTransport):
    """Sends the requests of an async client guarded: `httpx.AsyncClient(transport=AsyncTransport(stabilizer))`.

    The parameters that are not described here are those of `Transport`.

    Args:
        large: Size in bytes from which on a body is prepared in a thread, so that other requests do not have to wait.
            In this case, summarizers must be synchronous. None means that no thread is used.

    Raises:
        ConfigError: If a setting cannot be used.
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
        """Close the inner transport."""
        if self._inner is not None:
            await self._inner.aclose()

    async def handle_async_request(self, request: Any) -> Any:  # noqa: ANN401 - of either library
        """Send one request guarded, and return its response with values restored."""
        if self._inner is None:
            self._inner = _library(request).AsyncHTTPTransport()
        return await adrive(
            _exchange(self.guard, request, self._inner.handle_async_request, "aread", large=self._large)
        )


class _Sender(NamedTuple):
    """Prepares and sends a client's request and its follow-ups. A synchronous or asynchronous driver performs all I/O.

    Attributes:
        guard: The guard.
        request: The client's request, an object of either library.
        send: Function that sends a request.
        read: Function that reads a response.
        large: Size in bytes from which on a body is prepared in a thread. None means that no thread is used.
    """

    guard: Guard
    request: Any
    send: Callable[..., object]
    read: Callable[..., object]
    large: int | None

    def exchange(self, asked: WireRequest) -> Generator[Ask, object, tuple[Prepared, Any]]:
        """Send a request, and return the prepared request and the response.

        If the provider refuses the request for a reason that a changed request can avoid, the changed request is sent.
        """
        prepared: Any = yield from self._prepare(asked, self.guard.preparing(asked))
        while True:
            sent = _prepared_request(_library(self.request), self.request, prepared)
            answer = self._meter((yield Ask(self.send, (sent,))), prepared, is_hidden=asked.turn is not None)
            if not prepared.may_be_sent_again(answer.status_code) or not can_decode(encoding_of(answer)):
                return prepared, answer
            refused: Any = yield Ask(self.read, (answer, self.guard.max_answer))
            trying = self.guard.preparing_again(asked, prepared, answer.status_code, refused)
            another: Any = yield from self._prepare(asked, trying)
            if another is None:
                return prepared, _with_body(_library(self.request), answer, content=refused)
            prepared = another

    def _prepare(self, asked: WireRequest, flow: Generator[Ask, object, object]) -> Generator[Ask, object, object]:
        """Run `flow`, which prepares a request. For a request of at least `large` bytes, it runs in a thread."""
        if self.large is None or len(asked.body) < self.large:
            return (yield from flow)
        return (yield Ask(asyncio.to_thread, (drive, flow)))

    def _meter(self, answer: Any, prepared: Prepared, *, is_hidden: bool) -> Any:  # noqa: ANN401
        """Return a response whose reported token counts are read while it is passed on."""
        billed = Billed(self.guard.metrics, prepared.billed_to, prepared.prompt, is_hidden=is_hidden)
        answer.extensions[_BILLED] = billed
        if answer.is_stream_consumed:
            billed.feed(answer.content)
            billed.close()
            return answer
        library = _library(self.request)
        stream = _stream_of(library, _MeteredStream)(answer.stream, billed)
        headers, extensions = answer.headers.raw, answer.extensions
        return library.Response(answer.status_code, headers=headers, extensions=extensions, stream=stream)


def _exchange(
    guard: Guard,
    request: Any,  # noqa: ANN401 - of either library
    send: Callable[..., object],
    read: str,
    large: int | None = None,
) -> Generator[Ask, object, Any]:
    """Send one request guarded, and return its response."""
    library, path = _library(request), request.url.path
    if format_of(request.method, path) is None and not is_upload(request.method, path) and guard.passes_unread(path):
        return (yield from _pass_on(guard, request, send))
    sender = _Sender(guard, request, send, awhole if read == "aread" else whole, large)
    asked: WireRequest | None = _wire_request(request, (yield Ask(getattr(request, read))))
    answer: Any = None
    billed: Counter[str] = Counter()
    headers: Mapping[str, str] | None = None  # of the client's own request, not of follow-up requests
    try:
        while asked is not None:
            prepared, answer = yield from sender.exchange(asked)
            headers = prepared.headers if headers is None else headers
            _without_ours(answer).headers.update(headers)
            _refuse_json_lines(answer, prepared)
            if not _is_read(answer, prepared, guard, path):
                return answer
            if _is_stream(answer):
                return _with_body(library, answer, stream=_stream_of(library, _GuardedStream)(answer, prepared, sender))
            said: Any = yield Ask(sender.read, (answer, guard.max_answer))
            if prepared.reply is not None and not prepared.reply.format.streams_lines and is_json_lines(said):
                raise json_lines_error()
            billed.update(answer.extensions[_BILLED].reported)
            asked = prepared.follow(said)
        done = _with_body(library, answer, content=prepared.whole(said))
    except CtxguardError as error:
        if answer is not None:  # unread, it would keep its connection
            yield Ask(answer.aclose if read == "aread" else answer.close)
        return _refusal(library, guard, error, path)
    done.headers.update({f"{HEADERS}-billed-{kind}": str(count) for kind, count in billed.items()})
    return done


def _pass_on(guard: Guard, request: Any, send: Callable[..., object]) -> Generator[Ask, object, Any]:  # noqa: ANN401
    """Forward a request unread."""
    guard.metrics.add("passed_unread")
    try:
        yield from guard.recording(request.url.path, request.headers, None)
    except CtxguardError as error:
        return _refusal(_library(request), guard, error, request.url.path)
    return _without_ours((yield Ask(send, (request,))))


def _without_ours(answer: Any) -> Any:  # noqa: ANN401
    """Return a response without headers that only the guard may set."""
    for name in [name for name in answer.headers if name.lower().startswith(HEADERS)]:
        del answer.headers[name]
    return answer


class _SharedTransport:
    """Sends requests with another client's transport, which stays open when this one is closed."""

    def __init__(self, transport: Any, owner: object) -> None:  # noqa: ANN401
        self.handle_request = getattr(transport, "handle_request", None)
        self.handle_async_request = getattr(transport, "handle_async_request", None)
        self._owner = owner

    def close(self) -> None:
        """Do nothing."""

    async def aclose(self) -> None:
        """Do nothing."""


def guarded_http_client(client: Any, guard: Guard) -> Any:  # noqa: ANN401 - of either library
    """Return a copy of an httpx client whose requests are guarded. It uses the same connections as the original client.

    Args:
        client: A client, synchronous or asynchronous.
        guard: The guard.
    """
    kind = AsyncTransport if hasattr(client, "aclose") else Transport

    def wrapped(transport: object) -> object:
        return None if transport is None else kind(guard, transport=_SharedTransport(transport, client))

    guarded = copy.copy(client)
    # httpx has no public attribute for a client's transports, and a new client would lose its proxies and certificates
    guarded._transport = wrapped(client._transport)  # noqa: SLF001
    guarded._mounts = {pattern: wrapped(one) for pattern, one in client._mounts.items()}  # noqa: SLF001
    # google-genai 3.6 sends the requests of each event loop with a client of its own
    client_of_loop = getattr(client, "_client_for_running_loop", None)
    if client_of_loop is not None:
        guarded._client_for_running_loop = lambda: guarded_http_client(client_of_loop(), guard)  # noqa: SLF001
    return guarded


def as_guard(given: Stabilizer | Guard, settings: GuardSettings) -> Guard:
    """Return the given guard, or a guard for the given stabilizer; raise `ConfigError` for anything else."""
    return given if isinstance(given, Guard) and not settings else Guard(given, **settings)  # type: ignore[arg-type]


def _library(request: object) -> Any:  # noqa: ANN401 - a module
    return sys.modules[type(request).__module__.partition(".")[0]]


def _wire_request(request: Any, body: Any) -> WireRequest:  # noqa: ANN401
    headers = {name.lower(): value for name, value in request.headers.items()}
    headers.update(request.extensions.get(UNFORWARDED, {}))
    return WireRequest(request.method, request.url.path, headers, body, request.url.query.decode("ascii", "replace"))


def _prepared_request(library: Any, request: Any, prepared: Prepared) -> Any:  # noqa: ANN401
    dropped = {b"content-length", b"transfer-encoding", SESSION_HEADER.encode()}
    if prepared.body != request.content:  # a rewritten body is not compressed
        dropped.add(b"content-encoding")
    # responses must not be compressed, so that their values and token counts can be read
    if prepared.report is not None:
        dropped.add(b"accept-encoding")
    headers = [(name, value) for name, value in request.headers.raw if name.lower() not in dropped]
    if prepared.report is not None:
        headers.append((b"Accept-Encoding", b"identity"))
    content = prepared.body or None
    return library.Request(
        request.method, request.url, headers=headers, content=content, extensions=dict(request.extensions)
    )


def _refusal(library: Any, guard: Guard, error: CtxguardError, path: str) -> Any:  # noqa: ANN401
    status = status_of(error)
    if isinstance(error, UnreadableError):  # the request was sent
        name = code = error.cause
        guard.metrics.add("failures", cause=name)
    else:
        name, code = type(error).__name__, name_of(error)
        guard.note_refusal(name, status, str(error))
    _LOG.warning("request refused with status %d: %s", status, name)
    headers = {"content-type": "application/json", ERROR_HEADER: name}
    return library.Response(status, headers=headers, content=error_body(code, str(error), status=status, path=path))


def _is_read(answer: Any, prepared: Prepared, guard: Guard, path: str) -> bool:  # noqa: ANN401
    """Return whether a response is read; count a response whose values cannot be restored."""
    if prepared.report is None or not 200 <= answer.status_code < 300:
        return False
    is_known = "json" in answer.headers.get("content-type", "").lower() or _is_stream(answer)
    is_read = is_known and can_decode(encoding_of(answer))
    guard.metrics.add("unrestored", int(not is_read and prepared.reply is not None))
    # if there is nothing to restore, a response is still read for its token counts, unless it is streamed
    return is_read and (prepared.is_read or not (_is_stream(answer) or "stream" in path))


def _refuse_json_lines(answer: Any, prepared: Prepared) -> None:  # noqa: ANN401
    """Raise `UnreadableError` for a response in JSON lines that may hold placeholders, unless its API streams them.

    For any other API, nobody knows which lines continue a text.
    """
    reply = prepared.reply
    is_refused = reply is not None and not reply.format.streams_lines and 200 <= answer.status_code < 300
    if is_refused and _form_of(answer) == "lines":
        raise json_lines_error()


def _form_of(answer: Any) -> StreamForm | None:  # noqa: ANN401
    """Return what a streamed response consists of; None if the response is not streamed."""
    kind = str(answer.headers.get("content-type", "")).lower()
    if kind.startswith(_FRAMES):
        return "frames"
    if kind.partition(";")[0].strip() in _JSON_LINES:
        return "lines"
    return "events" if kind.startswith("text/event-stream") else None


def _is_stream(answer: Any) -> bool:  # noqa: ANN401
    return _form_of(answer) is not None


def _with_body(library: Any, answer: Any, **body: object) -> Any:  # noqa: ANN401
    headers = [(name, value) for name, value in answer.headers.raw if name.decode().lower() not in _OF_THE_BODY]
    return library.Response(answer.status_code, headers=headers, extensions=answer.extensions, **body)


class _GuardedStream:
    """Restores values in a streamed response as it arrives.

    If the model calls the guard's own recall tool, the guard answers the call in a request of its own. The client then
    receives the response to that request as the rest of the same stream.
    """

    def __init__(self, answer: Any, prepared: Prepared, sender: _Sender) -> None:  # noqa: ANN401
        self._sender = sender
        self._begin(answer, prepared)

    def _begin(self, answer: Any, prepared: Prepared, weave: Weave | None = None) -> None:  # noqa: ANN401
        self._answer, self._events = answer, prepared.stream(weave, form=_form_of(answer) or "events")
        # stored, because clients that stop at the last event read the rest with a second iterator, which continues
        self._pieces, self._apieces = pieces(answer), apieces(answer)

    def _next(self, prepared: Prepared, answer: Any) -> None:  # noqa: ANN401
        """Continue with the response to a follow-up request."""
        if not 200 <= answer.status_code < 300 or not _is_stream(answer):
            message = f"the provider refused the follow-up request for this response (status {answer.status_code})"
            raise UnreadableError(message, cause="read_back_refused")
        weave = self._events.weave
        if weave is not None:
            weave.again()
        self._begin(answer, prepared, weave)

    def __iter__(self) -> Iterator[bytes]:
        while True:
            try:
                for chunk in self._pieces:
                    if piece := self._events.feed(chunk):
                        yield piece
            except Exception:
                yield from self._rest()
                raise
            yield from self._rest()
            asked = self._events.follow()
            if asked is None:
                return
            self.close()
            self._next(*drive(self._sender.exchange(asked)))

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
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
            asked = self._events.follow()
            if asked is None:
                return
            await self.aclose()
            self._next(*(await adrive(self._sender.exchange(asked))))

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
        self._sender.guard.metrics.add("malformed_events", self._events.malformed)
        self._events.malformed = 0


class _MeteredStream:
    """Passes on the bytes of a response, and reads the token counts in them."""

    def __init__(self, stream: Any, billed: Billed) -> None:  # noqa: ANN401
        self._stream, self._billed = stream, billed

    def __iter__(self) -> Iterator[bytes]:
        for chunk in self._stream:
            self._billed.feed(chunk)
            yield chunk

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._stream:
            self._billed.feed(chunk)
            yield chunk

    def close(self) -> None:
        self._billed.close()
        self._stream.close()

    async def aclose(self) -> None:
        self._billed.close()
        await self._stream.aclose()


@lru_cache(maxsize=8)
def _stream_of(library: Any, kind: type) -> Any:  # noqa: ANN401 - a class that the library takes for a stream of its own
    return type(kind.__name__, (kind, library.SyncByteStream, library.AsyncByteStream), {})


@takes_stabilizer("guarded")
def guarded(client: Client, guard: Stabilizer | Guard, **settings: Unpack[GuardSettings]) -> Client:
    """Return a copy of a client whose requests are guarded. It uses the same connections as the original client.

    Args:
        client: `OpenAI`, `AsyncOpenAI`, one of the Azure clients, `Anthropic`, or `AsyncAnthropic`.
        guard: A stabilizer, or a guard to share between clients.
        settings: The settings of `ctxguard.wire.Guard`, if `guard` is a stabilizer.

    Raises:
        ConfigError: If a setting cannot be used, or `client` is not a client of these SDKs.
    """
    given = cast("Any", client)
    if not (hasattr(given, "_client") and hasattr(given, "with_options")):
        message = f"expected a client of OpenAI's or Anthropic's SDK, got {type(client).__name__}"
        raise ConfigError(f"{message}; write guarded(client, Stabilizer(budget=…))", setting="client")
    # the SDKs have no public attribute for a client's HTTP client
    http_client = guarded_http_client(given._client, as_guard(guard, settings))  # noqa: SLF001
    return cast("Client", given.with_options(http_client=http_client))
