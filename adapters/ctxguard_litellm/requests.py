"""What LiteLLM's proxy holds of a request, as the request that a client would send, and back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from litellm.types.utils import all_litellm_params

from ctxguard.errors import WireError
from ctxguard.wire.guard import WireRequest

_PATHS: Final[Mapping[str, str]] = {
    "completion": "/v1/chat/completions",
    "acompletion": "/v1/chat/completions",
    "responses": "/v1/responses",
    "aresponses": "/v1/responses",
    "anthropic_messages": "/v1/messages",
    "aanthropic_messages": "/v1/messages",
}
"""The paths of the requests that the guard reads, by LiteLLM's name for the call."""
_OF_THE_PROXY: Final = frozenset(all_litellm_params) | {"secret_fields", "proxy_server_request", "litellm_logging_obj"}
"""Fields that LiteLLM keeps beside a request; none of them is sent to a provider."""


def asked(data: Mapping[str, Any], call_type: str, key: str | None) -> WireRequest:
    """Return the request of a client, by whose key sessions are kept apart."""
    received = data.get("proxy_server_request") or {}
    headers = {str(name).lower(): str(value) for name, value in (received.get("headers") or {}).items()}
    headers = {name: value for name, value in headers.items() if name not in ("content-encoding", "content-length")}
    try:
        body = json.dumps(_sent(data), ensure_ascii=False).encode("utf-8", "surrogatepass")
    except (TypeError, ValueError, RecursionError) as error:
        raise WireError(f"the request cannot be written as JSON ({type(error).__name__})") from None
    path = _PATHS.get(call_type, f"/litellm/{call_type}")
    return WireRequest("POST", path, {**headers, "authorization": key or ""}, body)


def changed_data(data: dict[str, Any], body: bytes) -> dict[str, Any]:
    """Return what the proxy is to hold of a request in place of what it held."""
    sent = _sent(data)
    kept = {name: value for name, value in data.items() if name not in sent}
    return {**kept, **json.loads(body)}


def _sent(data: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in data.items() if name not in _OF_THE_PROXY}
