"""Guard requests to models as they are sent, whatever framework sends them: the guard on the wire.

| module | content |
|---|---|
| `guard` | `Guard`: which request is sent instead |
| `texts`, `checking`, `counting` | every text of a body: found, searched, counted |
| `replies`, `streams`, `events` | restoring values in responses, whole and streamed |
| `sessions` | placeholders of conversations whose history is stored at the provider |
| `audit` | a record of what was sent |
| `transport` | the guard as a transport of httpx |
| `proxy`, `cli` | the guard as a proxy: `ctxguard serve` |
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ctxguard.wire.audit import AuditLog
    from ctxguard.wire.guard import Guard
    from ctxguard.wire.proxy import proxy_app
    from ctxguard.wire.transport import AsyncTransport, Transport, guarded_http_client

__all__ = ["AsyncTransport", "AuditLog", "Guard", "Transport", "guarded_http_client", "proxy_app"]

_HOME_OF = {
    "AsyncTransport": "transport",
    "AuditLog": "audit",
    "Guard": "guard",
    "Transport": "transport",
    "guarded_http_client": "transport",
    "proxy_app": "proxy",
}


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
