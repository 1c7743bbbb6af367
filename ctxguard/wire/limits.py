"""Tell which size fits after a provider refused a request as too long, and write errors in the provider's form."""

from __future__ import annotations

import re
from typing import Final, Literal, NamedTuple

from ctxguard.errors import BudgetExceededError, CheckFailedError, ConfigError, CtxguardError, HistoryError, WireError
from ctxguard.formats.registry import format_of
from ctxguard.wire.replies import as_json

Refused = Literal["too long", "stale thinking", "missing thinking"]
RETRIED_STATUSES: Final = (400, 413, 422)
_TOO_LONG: Final = re.compile(
    r"context_length_exceeded|context[ _]length|context[ _]window|context limit|maximum context|prompt is too long|"
    r"input is too long|too many (?:input )?tokens|exceeds? the (?:maximum|model's)? ?(?:number of )?(?:input )?tokens",
    re.IGNORECASE,
)
_THINKING: Final[dict[Refused, re.Pattern[str]]] = {
    "stale thinking": re.compile(r"invalid .{0,3}signature.{0,3} in .{0,3}thinking", re.IGNORECASE),
    "missing thinking": re.compile(r"expected .{0,3}thinking\b.{0,40}but found", re.IGNORECASE),
}
_NUMBER: Final = re.compile(r"(?<![\w.])(\d{1,3}(?:,\d{3})+|\d{3,8})(?=\s*(?:tokens?\b|>|maximum|\)|\.|,|\s|$))")
_COUNT: Final = r"(?P<{}>\d[\d,]*)"
_LIMIT, _INPUT, _REPLY = map(_COUNT.format, ("limit", "input", "reply"))
_TOOLS: Final = rf"(?:{_COUNT.format('tools')} in the functions\D+)?"
_WITH_REPLY: Final = tuple(
    map(
        re.compile,
        (
            rf"{_INPUT} \+ {_REPLY} > {_LIMIT}",  # Anthropic
            rf"length is {_LIMIT} tokens\D+\d+ tokens \({_INPUT} in \D+{_TOOLS}{_REPLY} (?:in|for) +the completion",
            rf"length is {_LIMIT} tokens\D+{_INPUT} input tokens plus {_REPLY}",  # vLLM, as the next
            rf"too large: {_REPLY}\D+length is {_LIMIT} tokens\D+{_INPUT} input tokens",
        ),
    )
)
"""Match error messages that state how many tokens the reply may have. A shorter prompt does not change this number."""
_SHARE: Final = 0.7  # share of the tokens sent, if the response names no limit
_SAFETY: Final = 0.95  # factor, because the provider's count of a shorter prompt can only be estimated


class Retry(NamedTuple):
    """The reason for which a request is sent again, and the budget for the next attempt in tokens."""

    why: Refused
    budget: int


def retry_for(status: int, answer: bytes, *, tokens: int, budget: int, keeps: bool | None) -> Retry | None:
    """Return how to send a refused request again: with or without its signed thinking, or with a smaller budget.

    Args:
        status: The HTTP status of the response.
        answer: The body of the response.
        tokens: Number of input tokens that were sent.
        budget: The budget of the refused attempt in tokens.
        keeps: Whether the caller keeps signed thinking from before a cut. None if the request decides.

    Returns:
        The next attempt, or None if another attempt would not help.
    """
    text = _text(answer) if status in RETRIED_STATUSES else ""
    why = next((why for why, pattern in _THINKING.items() if pattern.search(text)), None)
    if why is not None and keeps is not (why == "stale thinking"):
        return Retry(why, budget)
    smaller = smaller_budget(status, answer, tokens=tokens, budget=budget)
    return None if smaller is None else Retry("too long", smaller)


def smaller_budget(status: int, answer: bytes, *, tokens: int, budget: int) -> int | None:
    """Return the budget in tokens for a second attempt, or None if the prompt was not too long or nothing would fit.

    If the response states the limit and the counted tokens, the budget is computed from these. Otherwise it is 70% of
    the tokens that were sent.
    """
    text = _text(answer)
    if status not in RETRIED_STATUSES or _TOO_LONG.search(text) is None:
        return None
    with_reply = _share_with_reply(text)
    share = _share(text, status) if with_reply is None else with_reply
    return max(1, int(share * min(tokens or budget, budget))) if 0 < share < 1 else None


def _share_with_reply(text: str) -> float | None:
    """Return the share of a prompt that fits together with its reply, or None if the response counts no reply."""
    said = next(filter(None, (expression.search(text) for expression in _WITH_REPLY)), None)
    if said is None:
        return None
    counts = {name: int(count.replace(",", "")) for name, count in said.groupdict(default="0").items()}
    available = counts["limit"] - counts["reply"]  # zero or less if the reply alone is too long
    return _SAFETY * available / max(1, counts["input"] + counts.get("tools", 0))


def _share(text: str, status: int) -> float:
    """Return the share of a prompt that fits, computed from the token limit and count in the response."""
    found = (int(number.replace(",", "")) for number in _NUMBER.findall(text))
    numbers = sorted(number for number in found if number != status)  # Google repeats the status in the body
    if len(numbers) >= 2 and 0.2 < numbers[0] / numbers[-1] < 1:
        return _SAFETY * numbers[0] / numbers[-1]
    return _SHARE


def _text(answer: bytes) -> str:
    return answer[:20_000].decode("utf-8", "replace")


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
