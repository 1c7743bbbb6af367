"""Say in the providers' own form why a request was not sent, so that every client raises its usual error."""

from __future__ import annotations

from ctxguard.errors import (
    BudgetExceededError,
    CheckFailedError,
    ConfigError,
    CtxguardError,
    HistoryError,
    WireError,
)
from ctxguard.wire.replies import as_json

ERROR_HEADER = "x-ctxguard-error"
"""The header that names the error where an answer is ours and not the provider's."""


def status_of(error: CtxguardError) -> int:
    """Return the HTTP status for an error: 4xx where sending the same again would fail again."""
    if isinstance(error, WireError):
        return error.status
    if isinstance(error, CheckFailedError):
        return 422
    return 400 if isinstance(error, (BudgetExceededError, HistoryError, ConfigError)) else 503


def error_body(name: str, message: str) -> bytes:
    """Return an error as OpenAI and Anthropic write theirs, with the message where Amazon's clients look, too."""
    code = "context_length_exceeded" if name == BudgetExceededError.__name__ else name
    told = f"ctxguard: {message}"
    error = {"type": "invalid_request_error", "message": told, "code": code, "param": None}
    return as_json({"type": "error", "error": error, "message": told})


def error_event(name: str, message: str) -> bytes:
    """Return the event that ends a stream which cannot go on."""
    return b"event: error\ndata: " + error_body(name, message) + b"\n\n"
