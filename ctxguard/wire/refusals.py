"""Say in the providers' own form why a request was not sent, so that every client raises its usual error."""

from __future__ import annotations

from typing import Final

from ctxguard.errors import (
    BudgetExceededError,
    CheckFailedError,
    ConfigError,
    CtxguardError,
    HistoryError,
    WireError,
)
from ctxguard.formats.registry import format_of
from ctxguard.wire.replies import as_json

_OF_GOOGLE: Final = {403: "PERMISSION_DENIED", 502: "UNAVAILABLE", 503: "UNAVAILABLE", 504: "DEADLINE_EXCEEDED"}
ERROR_HEADER = "x-ctxguard-error"
"""The header that names the error where an answer is ours and not the provider's."""


def status_of(error: CtxguardError) -> int:
    """Return the HTTP status for an error: 4xx where sending the same again would fail again."""
    if isinstance(error, WireError):
        return error.status
    if isinstance(error, CheckFailedError):
        return 422
    return 400 if isinstance(error, (BudgetExceededError, HistoryError, ConfigError)) else 503


def name_of(error: CtxguardError) -> str:
    """Return the name by which clients are told an error: the code that they know, or one of ours."""
    if isinstance(error, BudgetExceededError):
        return "ctxguard_budget_too_small" if error.is_too_small else "context_length_exceeded"
    return type(error).__name__


def error_body(name: str, message: str, *, status: int = 400, path: str = "") -> bytes:
    """Return an error as the API of a path writes its own, with the message where Amazon's clients look, too.

    Args:
        name: What the error is called, see `name_of`.
        message: What it says.
        status: The HTTP status that it is sent with.
        path: The path of the request; the form of OpenAI and Anthropic is used where it tells nothing.
    """
    told = f"ctxguard: {message}"
    kind = format_of("POST", path)
    if kind is not None and kind.api == "gemini":
        said = {"code": status, "message": told, "status": _OF_GOOGLE.get(status, "INVALID_ARGUMENT")}
        return as_json({"error": {**said, "details": [{"reason": name, "domain": "ctxguard"}]}})
    error = {"type": "invalid_request_error", "message": told, "code": name, "param": None}
    return as_json({"type": "error", "error": error, "message": told})


def error_event(name: str, message: str) -> bytes:
    """Return the event that ends a stream which cannot go on."""
    return b"event: error\ndata: " + error_body(name, message) + b"\n\n"
