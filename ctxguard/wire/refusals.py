"""Report a refused request as an error in the provider's own form, so that every client raises its usual exception."""

from __future__ import annotations

from typing import Final

from ctxguard.errors import BudgetExceededError, CheckFailedError, ConfigError, CtxguardError, HistoryError, WireError
from ctxguard.formats.registry import format_of
from ctxguard.wire.replies import as_json

_OF_GOOGLE: Final = {403: "PERMISSION_DENIED", 502: "UNAVAILABLE", 503: "UNAVAILABLE", 504: "DEADLINE_EXCEEDED"}
ERROR_HEADER = "x-ctxguard-error"
"""The header that names the error if a response comes from the guard rather than the provider."""


def status_of(error: CtxguardError) -> int:
    """Return the HTTP status for an error: 4xx if sending the same request again would fail again."""
    if isinstance(error, WireError):
        return error.status
    if isinstance(error, CheckFailedError):
        return 422
    return 400 if isinstance(error, (BudgetExceededError, HistoryError, ConfigError)) else 503


def name_of(error: CtxguardError) -> str:
    """Return the name of an error for clients: a code that clients know, or a name of ctxguard's own."""
    if isinstance(error, BudgetExceededError):
        return "ctxguard_budget_too_small" if error.is_too_small else "context_length_exceeded"
    return type(error).__name__


def error_body(name: str, message: str, *, status: int = 400, path: str = "") -> bytes:
    """Return the body of an error response, in the form of the API that the path belongs to.

    Amazon's clients look for the message in a separate field. Errors in the form of Google do not contain this field,
    and those of Ollama, whose error is a text; all others do.

    Args:
        name: The name of the error, see `name_of`.
        message: The error message.
        status: The HTTP status of the response.
        path: The path of the request. For unknown paths, the form of OpenAI and Anthropic is used.
    """
    shown = f"ctxguard: {message}"
    kind = format_of("POST", path)
    form = "object" if kind is None else kind.error
    if form == "google":
        google = {"code": status, "message": shown, "status": _OF_GOOGLE.get(status, "INVALID_ARGUMENT")}
        return as_json({"error": {**google, "details": [{"reason": name, "domain": "ctxguard"}]}})
    if form == "text":
        return as_json({"error": shown, "code": name})
    error = {"type": "invalid_request_error", "message": shown, "code": name, "param": None}
    return as_json({"type": "error", "error": error, "message": shown})


def error_event(name: str, message: str) -> bytes:
    """Return the server-sent event that ends a stream with an error."""
    return b"event: error\ndata: " + error_body(name, message) + b"\n\n"
