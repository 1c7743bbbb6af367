"""Convert the request data of LiteLLM's proxy to a client's request, and back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from litellm.types.utils import all_litellm_params

from ctxguard.errors import WireError
from ctxguard.wire.asked import WireRequest

_PATHS: Final[Mapping[str, str]] = {
    "completion": "/v1/chat/completions",
    "acompletion": "/v1/chat/completions",
    "responses": "/v1/responses",
    "aresponses": "/v1/responses",
    "anthropic_messages": "/v1/messages",
    "aanthropic_messages": "/v1/messages",
}
"""The paths of supported requests, by LiteLLM's name for the call."""
_OF_THE_PROXY: Final = frozenset(all_litellm_params) | {"secret_fields", "proxy_server_request", "litellm_logging_obj"}
"""Fields that LiteLLM adds to a request and does not send to a provider."""


def asked(data: Mapping[str, Any], call_type: str, key: str | None) -> WireRequest:
    """Return the client's request, with the key by which sessions are separated."""
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
    """Return the request data of the proxy with a changed body."""
    sent = _sent(data)
    kept = {name: value for name, value in data.items() if name not in sent}
    return {**kept, **json.loads(body)}


def _sent(data: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in data.items() if name not in _OF_THE_PROXY}
