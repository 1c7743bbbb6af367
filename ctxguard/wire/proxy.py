"""The guard as a proxy for any OpenAI- or Anthropic-compatible client: an ASGI application.

Responses are passed on as they arrive: status, headers, and chunks are those of the provider, except for restored
values. Every failure ends the response cleanly, and is named in the metrics, the log, and the response itself. Headers,
bodies, and queries are never logged.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from ctxguard.errors import ConfigError, CtxguardError, WireError
from ctxguard.formats.registry import format_of
from ctxguard.settings import extra
from ctxguard.wire.caches import PROVIDERS
from ctxguard.wire.guard import Guard
from ctxguard.wire.limits import ERROR_HEADER, error_body, error_event, status_of
from ctxguard.wire.transport import UNFORWARDED, AsyncTransport

if TYPE_CHECKING:
    import httpx
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.types import Receive, Scope, Send

_LOG: Final = logging.getLogger("ctxguard.wire")
HEALTH_PATH: Final = "/healthz"
METRICS_PATH: Final = "/metrics"
LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost"})
_HOP_BY_HOP: Final = frozenset(
    b"connection expect keep-alive proxy-authenticate proxy-authorization proxy-connection te trailer "
    b"transfer-encoding upgrade".split()
)
"""Headers that apply to a single connection (RFC 9110, section 7.6.1)."""
_HOST: Final = re.compile(r"(?P<name>\[[\da-fA-F:.]*\]|[^:\[\]]*)(?::\d*)?")
_LARGE: Final = 100_000
"""Size in bytes from which on a body is prepared in a thread."""
_PREFIX: Final = "ctxguard.prefix"
"""The request extension with the prefix of the path that selected the provider."""
_CLIENT_LEFT: Final = 499
"""The status under which a response is counted if the client disconnected before its end."""


def proxy_app(
    guard: Guard,
    upstream: str | Sequence[str],
    *,
    transport: httpx.AsyncBaseTransport | None = None,
    read_timeout: float = 600.0,
    stall_timeout: float = 60.0,
    body_timeout: float = 60.0,
) -> Starlette:
    """Return the proxy as an ASGI application.

    Args:
        guard: Guards every request. Requests with different API keys never share a session.
        upstream: The URL of the provider, such as `https://api.openai.com`. If the path of a request already begins
            with the path of this URL, such as `/v1`, that path is not repeated. If there are several URLs and the path
            of a request begins with the host of one of them (`/api.anthropic.com/v1/messages`), the request is sent to
            that URL. Otherwise, it is sent to the provider of its API, or else to the first URL.
        transport: The transport that sends the requests. None means the default transport of httpx.
        read_timeout: Number of seconds to wait for the next bytes from the provider.
        stall_timeout: Number of seconds to wait for a client that does not read.
        body_timeout: Number of seconds that a client may take to send the body of a request.

    Raises:
        ConfigError: If `upstream` is not an HTTP URL.
        ImportError: If Starlette or httpx is not installed.
    """
    with extra("proxy", "the proxy needs Starlette and httpx"):
        import httpx
        import starlette  # noqa: F401 - whether it is there

    urls = [httpx.URL(one) for one in ([upstream] if isinstance(upstream, str) else upstream)]
    for url in urls:
        if url.scheme not in ("http", "https") or not url.host:
            raise ConfigError(f"upstream must be an http or https URL, not {str(url)!r}", setting="upstream")
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=200)
    sender = AsyncTransport(guard, transport=transport or httpx.AsyncHTTPTransport(limits=limits), large=_LARGE)
    forward = _Forward(guard, urls, sender, read_timeout, stall_timeout, body_timeout)
    return _app(forward, guard, sender)


def _app(forward: _Forward, guard: Guard, sender: AsyncTransport) -> Starlette:
    from starlette.applications import Starlette
    from starlette.responses import PlainTextResponse
    from starlette.routing import Mount, Route

    async def health(_: object) -> PlainTextResponse:
        return PlainTextResponse("ok\n")

    async def metrics(request: Request) -> PlainTextResponse:
        if _is_on_this_machine(request.scope) and not _names_this_machine(request.scope):
            return PlainTextResponse("ctxguard: on this machine, ask for localhost\n", status_code=403)
        gauge = f"# TYPE ctxguard_open_requests gauge\nctxguard_open_requests {forward.open}\n"
        return PlainTextResponse(guard.metrics.text() + gauge)

    @asynccontextmanager
    async def lifespan(_: object) -> AsyncIterator[None]:
        yield
        await sender.aclose()

    routes = [Route(HEALTH_PATH, health), Route(METRICS_PATH, metrics), Mount("/", app=forward)]
    return Starlette(routes=routes, lifespan=lifespan)


class _ClientLeftError(Exception):
    """Raised when the client closed its connection."""


class _StalledError(Exception):
    """Raised when the client stopped reading."""


@dataclass(slots=True)
class _Forward:
    """Forwards requests to the provider through the guard: an ASGI application.

    Attributes:
        open: Number of requests in progress.
        since: When the proxy was started.
    """

    guard: Guard
    upstreams: Sequence[httpx.URL]
    sender: AsyncTransport
    read_timeout: float
    stall_timeout: float
    body_timeout: float
    open: int = 0
    since: datetime = field(default_factory=lambda: datetime.now(UTC))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if _asks_for_page(scope):
            from starlette.responses import HTMLResponse

            from ctxguard.report.page import render

            page = render("guard.html", title="What this guard did", guard=self.guard, proxy=self)
            return await HTMLResponse(page)(scope, receive, send)
        if scope["type"] != "http" or dict(scope["headers"]).get(b"upgrade", b"").lower() == b"websocket":
            # after this status, clients that support HTTP switch to it at once; after others, they retry several times
            refused = _Client(send, self.stall_timeout, scope["path"], "" if scope["type"] == "http" else "websocket.")
            await refused.refuse(426, "WireError", "ctxguard reads no web sockets; send the request by HTTP")
            return None
        self.open += 1
        client = _Client(send, self.stall_timeout, scope["path"])
        try:
            await self._answer(scope, receive, client)
        except _ClientLeftError:
            self._count_failure("client_left", _CLIENT_LEFT)
        except _StalledError:
            self._count_failure("slow_reader", client.status)
            raise
        finally:
            self.open -= 1
            if client.status:
                self.guard.metrics.add("answers", status=str(client.status))

    async def _answer(self, scope: Scope, receive: Receive, client: _Client) -> None:
        try:
            body = await self._body_in_time(scope, receive)
        except WireError as error:
            self.guard.note_refusal("WireError", error.status, str(error))
            await client.refuse(error.status, "WireError", str(error), closes=True)
            return
        answering = asyncio.ensure_future(self._forward(scope, body, client))
        leaving = asyncio.ensure_future(_wait_for_disconnect(receive))
        try:
            await asyncio.wait({answering, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if not answering.done():
                raise _ClientLeftError
            answering.result()
        finally:
            for task in (answering, leaving):
                task.cancel()
            await asyncio.gather(answering, leaving, return_exceptions=True)

    async def _body_in_time(self, scope: Scope, receive: Receive) -> bytes:
        try:
            async with asyncio.timeout(self.body_timeout):
                return await self._body(scope, receive)
        except TimeoutError:
            message = f"the body of the request did not arrive within {self.body_timeout:g} seconds"
            raise WireError(message, status=408) from None

    async def _body(self, scope: Scope, receive: Receive) -> bytes:
        """Return the body of a request; raise `WireError` if it is too large."""
        most = self.guard.max_body
        length = dict(scope["headers"]).get(b"content-length", b"0")
        too_large = WireError(f"the body is larger than {most:,} bytes; raise --max-body", status=413)
        if length.isdigit() and int(length) > most:
            raise too_large
        pieces: list[bytes] = []
        size = 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise _ClientLeftError
            pieces.append(message.get("body", b""))
            size += len(pieces[-1])
            if size > most:
                raise too_large
            if not message.get("more_body", False):
                return b"".join(pieces)

    async def _forward(self, scope: Scope, body: bytes, client: _Client) -> None:
        import httpx

        try:
            request = self._request(scope, body)
        except httpx.InvalidURL:
            self.guard.note_refusal("WireError", 400, "the path of the request cannot be sent on")
            await client.refuse(400, "WireError", "the path of the request cannot be sent on")
            return
        try:
            answer = await self.sender.handle_async_request(request)
        except (httpx.TransportError, CtxguardError) as error:
            status, name, message = self._reason(error, request.url)
            self._count_failure(name, status)
            await client.refuse(status, name, message)
            return
        try:
            await self._pass_on(answer, client, request)
        finally:
            await answer.aclose()

    def _reason(self, error: Exception, asked: httpx.URL) -> tuple[int, str, str]:
        """Return the status, error name, and message for a request to which there is no response from the provider."""
        import httpx

        if isinstance(error, CtxguardError):
            return status_of(error), type(error).__name__, str(error)
        if isinstance(error, httpx.TimeoutException):
            return 504, "upstream_timeout", "the provider did not answer in time"
        host = asked.copy_with(userinfo=None, path="/", query=None)
        message = f"cannot reach {host} ({type(error).__name__}): is it up, and is this its address?"
        if isinstance(error, httpx.ReadError | httpx.WriteError) or "disconnected" in str(error):
            message = f"{host} closed the connection without an answer"
        elif isinstance(error, httpx.RemoteProtocolError):
            message = f"{host} sent an answer that is incomplete or not HTTP"
        return 502, "upstream_unreachable", message

    async def _pass_on(self, answer: httpx.Response, client: _Client, request: httpx.Request) -> None:
        """Pass a response on to the client as it arrives."""
        import httpx

        asked = request.url

        if answer.has_redirect_location:
            try:
                target = asked.join(answer.headers["location"])
                place = f"{target.scheme}://{target.host}"
                is_elsewhere = (target.scheme, target.netloc) != (asked.scheme, asked.netloc)
            except (httpx.InvalidURL, ValueError):
                place, is_elsewhere = "a place that is not a URL", True
            if is_elsewhere:  # the client would follow the redirect, and send its data to that host without the guard
                self._count_failure("upstream_redirects", 502)
                await client.refuse(502, "upstream_redirects", f"the provider redirects to {place}; name that address")
                return
            answer.headers["location"] = request.extensions[_PREFIX] + target.raw_path.decode()
        headers = [(name.lower(), value) for name, value in answer.headers.raw if name.lower() not in _HOP_BY_HOP]
        if _is_read(answer):
            headers = [(name, value) for name, value in headers if name not in (b"content-encoding", b"content-length")]
            headers.append((b"content-length", str(len(answer.content)).encode()))
        await client.start(answer.status_code, headers)
        try:
            async for chunk in _chunks(answer):
                await client.more(chunk)
        except (httpx.TransportError, CtxguardError) as error:
            self._count_failure("upstream_broke_off", answer.status_code)
            if not answer.headers.get("content-type", "").startswith("text/event-stream"):
                raise  # the server closes the connection, which shows the client that the response is incomplete
            message = str(error) if isinstance(error, CtxguardError) else "the provider broke the answer off"
            await client.more(error_event("upstream_broke_off", message))
        await client.end()

    def _upstream(self, path: str) -> tuple[httpx.URL, str]:
        """Return the provider's URL for a request, and the prefix of `path` that selected it; empty if none did."""
        for one in self.upstreams:
            prefix = f"/{one.netloc.decode()}"
            if path == prefix or path.startswith(prefix + "/"):
                return one, prefix
        kind = format_of("POST", path)
        word = PROVIDERS.get(kind.api, "") if kind is not None else ""
        return next((one for one in self.upstreams if word and word in one.host), self.upstreams[0]), ""

    def _request(self, scope: Scope, body: bytes) -> httpx.Request:
        import httpx

        unsent = _HOP_BY_HOP | {b"host", b"content-length"}
        headers = [(name, value) for name, value in scope["headers"] if name not in unsent]
        path: bytes = scope.get("raw_path") or scope["path"].encode()
        upstream, prefix = self._upstream(path.decode("latin-1"))
        path = path[len(prefix) :] or b"/"
        base = upstream.raw_path.partition(b"?")[0].rstrip(b"/")
        path = path if base and path.startswith(base + b"/") else base + path
        query: bytes = scope["query_string"]
        url = upstream.copy_with(raw_path=path + (b"?" + query if query else b""))
        names = (b"proxy-authorization",)  # not forwarded, but distinguishes clients
        unforwarded = {name.decode(): value.decode("latin-1") for name, value in scope["headers"] if name in names}
        # a long connect timeout, because preparing many simultaneous requests delays connecting
        timeouts = {"connect": 30.0, "read": self.read_timeout, "write": self.read_timeout, "pool": 60.0}
        extensions = {"timeout": timeouts, UNFORWARDED: unforwarded, _PREFIX: prefix}
        return httpx.Request(scope["method"], url, headers=headers, content=body or None, extensions=extensions)

    def _count_failure(self, cause: str, status: int) -> None:
        self.guard.metrics.add("failures", cause=cause)
        # only information, because some clients disconnect once they have what they need
        level = logging.INFO if status == _CLIENT_LEFT else logging.WARNING
        _LOG.log(level, "a response did not end normally: %s (status %d)", cause, status)


def _asks_for_page(scope: Scope) -> bool:
    """Return whether a browser on this machine opens the root page."""
    if scope["type"] != "http" or (scope["method"], scope["path"]) != ("GET", "/"):
        return False
    wants_page = "text/html" in _header(scope, b"accept")
    return wants_page and _is_on_this_machine(scope) and _names_this_machine(scope)


def _is_on_this_machine(scope: Scope) -> bool:
    return (scope["client"] or [""])[0] in LOOPBACK


def _names_this_machine(scope: Scope) -> bool:
    """Return whether a request names the loopback interface as its host.

    Any web page can use a host name of its own that resolves to this machine, and read what comes back.
    """
    host = _HOST.fullmatch(_header(scope, b"host"))
    return host is not None and host["name"].lower().strip("[]") in LOOPBACK


def _header(scope: Scope, name: bytes) -> str:
    values: list[bytes] = [value for key, value in scope["headers"] if key == name]
    return values[0].decode("latin-1") if len(values) == 1 else ""


async def _wait_for_disconnect(receive: Receive) -> None:
    """Wait until the client closes its connection."""
    while (await receive())["type"] != "http.disconnect":
        pass


def _is_read(answer: httpx.Response) -> bool:
    """Return whether the whole response has already been read."""
    return answer.is_stream_consumed or answer.is_closed


async def _chunks(answer: httpx.Response) -> AsyncIterator[bytes]:
    if _is_read(answer):
        yield answer.content
        return
    async for chunk in answer.aiter_raw():
        yield chunk


class _Client:
    """Sends responses to a client, and detects when the client stops reading."""

    def __init__(self, send: Send, stall_timeout: float, path: str, prefix: str = "") -> None:
        self._path = path
        self._send = send
        self._stall_timeout = stall_timeout
        self._prefix = prefix
        self.status = 0

    async def start(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        """Send the status and the headers."""
        self.status = status
        await self._within({"type": f"{self._prefix}http.response.start", "status": status, "headers": headers})

    async def more(self, chunk: bytes) -> None:
        """Send a part of the body."""
        if chunk:
            await self._within({"type": f"{self._prefix}http.response.body", "body": chunk, "more_body": True})

    async def end(self) -> None:
        """End the response."""
        await self._within({"type": f"{self._prefix}http.response.body", "body": b"", "more_body": False})

    async def refuse(self, status: int, name: str, message: str, *, closes: bool = False) -> None:
        """Send an error response that comes from the guard."""
        body = error_body(name, message, status=status, path=self._path)
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            (ERROR_HEADER.encode(), name.encode()),
            *([(b"connection", b"close")] if closes else []),
        ]
        await self.start(status, headers)
        await self.more(body)
        await self.end()

    async def _within(self, message: Any) -> None:  # noqa: ANN401 - a message of ASGI
        try:
            async with asyncio.timeout(self._stall_timeout):
                await self._send(message)
        except TimeoutError:
            raise _StalledError from None
        except OSError:
            raise _ClientLeftError from None
