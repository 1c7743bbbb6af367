"""Guard requests to models as they are sent, whatever framework sends them: the guard on the wire.

| module | what it holds |
|---|---|
| `guard` | `Guard`: what is sent in place of a request |
| `formats` | the requests that it reads |
| `texts`, `checking`, `counting` | every text of a body: found, searched, counted |
| `replies`, `streams`, `events` | values are given back in answers, whole and streamed |
| `sessions` | placeholders of conversations whose history the provider holds |
| `transport` | the guard as a transport of httpx |
| `proxy`, `cli` | the guard as a proxy: `ctxguard serve` |
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ctxguard import _lazy

if TYPE_CHECKING:
    from ctxguard.wire.guard import Guard
    from ctxguard.wire.proxy import proxy_app
    from ctxguard.wire.transport import AsyncTransport, Transport, guarded_http_client

__all__ = ["AsyncTransport", "Guard", "Transport", "guarded_http_client", "proxy_app"]

_HOMES = {
    "ctxguard.wire.guard": ("Guard",),
    "ctxguard.wire.proxy": ("proxy_app",),
    "ctxguard.wire.transport": ("AsyncTransport", "Transport", "guarded_http_client"),
}
__getattr__, __dir__ = _lazy(__name__, _HOMES)
