"""Recognize what a provider refused a request for, where another try may succeed, and work out what may fit."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["RETRIED_STATUSES", "says_stale_thinking", "smaller_budget"]

RETRIED_STATUSES: Final = (400, 413, 422)
_TOO_LONG: Final = re.compile(
    r"context_length_exceeded|context[ _]length|context[ _]window|maximum context|prompt is too long|"
    r"input is too long|too many (?:input )?tokens|exceeds? the (?:maximum|model's)? ?(?:number of )?(?:input )?tokens",
    re.IGNORECASE,
)
_STALE: Final = re.compile(r"invalid .{0,3}signature.{0,3} in .{0,3}thinking", re.IGNORECASE)
_NUMBER: Final = re.compile(r"(?<![\w.])(\d{1,3}(?:,\d{3})+|\d{3,8})(?=\s*(?:tokens?\b|>|maximum|\)|\.|,|\s|$))")
_SHARE: Final = 0.7
_SAFETY: Final = 0.95


def smaller_budget(status: int, answer: bytes, *, tokens: int, budget: int) -> int | None:
    """Return the budget for a second try, or None where the answer is about something else.

    Where the answer names the limit and what it counted, the budget follows from these; else it is 70% of what was
    sent.

    Args:
        status: The status of the answer.
        answer: Its body.
        tokens: Input tokens that were sent, by our count.
        budget: Tokens there were.
    """
    text = _text(answer)
    if status not in RETRIED_STATUSES or _TOO_LONG.search(text) is None:
        return None
    share = _SHARE
    found = (int(number.replace(",", "")) for number in _NUMBER.findall(text))
    numbers = sorted(number for number in found if number != status)  # Google repeats the status in the body
    if len(numbers) >= 2 and 0.2 < numbers[0] / numbers[-1] < 1:
        share = _SAFETY * numbers[0] / numbers[-1]
    return max(1, int(share * min(tokens or budget, budget)))


def says_stale_thinking(status: int, answer: bytes) -> bool:
    """Tell whether an answer refuses thinking that was signed for another prompt.

    Args:
        status: The status of the answer.
        answer: Its body.
    """
    return status in RETRIED_STATUSES and _STALE.search(_text(answer)) is not None


def _text(answer: bytes) -> str:
    return answer[:20_000].decode("utf-8", "replace")
