"""Report in the providers' own form why a request was not sent, so that every client raises its usual error."""

from __future__ import annotations

from typing import Final

from ctxguard.errors import BudgetExceededError, CheckFailedError, ConfigError, CtxguardError, HistoryError, WireError
from ctxguard.formats.registry import format_of
from ctxguard.wire.replies import as_json

_OF_GOOGLE: Final = {403: "PERMISSION_DENIED", 502: "UNAVAILABLE", 503: "UNAVAILABLE", 504: "DEADLINE_EXCEEDED"}
ERROR_HEADER = "x-ctxguard-error"
"""The header that names the error if a response is the guard's own and not the provider's."""


def status_of(error: CtxguardError) -> int:
    """Return the HTTP status for an error: 4xx if sending the same request again would fail again."""
    if isinstance(error, WireError):
        return error.status
    if isinstance(error, CheckFailedError):
        return 422
    return 400 if isinstance(error, (BudgetExceededError, HistoryError, ConfigError)) else 503


def name_of(error: CtxguardError) -> str:
    """Return the name of an error for clients: a code that they know, or one of ours."""
    if isinstance(error, BudgetExceededError):
        return "ctxguard_budget_too_small" if error.is_too_small else "context_length_exceeded"
    return type(error).__name__


def error_body(name: str, message: str, *, status: int = 400, path: str = "") -> bytes:
    """Return an error in the form of a path's API; Amazon's clients look for the message in a field of its own.

    Args:
        name: The name of the error, see `name_of`.
        message: The message of the error.
        status: The HTTP status that it is sent with.
        path: The path of the request; for unknown paths, the form of OpenAI and Anthropic is used.
    """
    told = f"ctxguard: {message}"
    kind = format_of("POST", path)
    if kind is not None and kind.api == "gemini":
        said = {"code": status, "message": told, "status": _OF_GOOGLE.get(status, "INVALID_ARGUMENT")}
        return as_json({"error": {**said, "details": [{"reason": name, "domain": "ctxguard"}]}})
    error = {"type": "invalid_request_error", "message": told, "code": name, "param": None}
    return as_json({"type": "error", "error": error, "message": told})


def error_event(name: str, message: str) -> bytes:
    """Return the event that ends a stream after an error."""
    return b"event: error\ndata: " + error_body(name, message) + b"\n\n"
