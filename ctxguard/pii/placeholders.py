"""The syntax of placeholders: what masking writes, what no rule may match, and what unmasking looks up."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from ctxguard.pii.spans import Span

LITERAL: Final = "LITERAL"
"""Label of a placeholder that the original text contained: its value is itself, whatever is in a vault."""
UNCHECKED: Final = "UNCHECKED"
"""Label of a whole text that is masked because a detector failed."""

PSEUDONYM: Final = re.compile(r"<([A-Z](?:[A-Z_]{0,38}[A-Z])?)_(\d{1,6}|\d{1,2}(?:_\d\d){1,3})>")
"""`<EMAIL_1>`: label and number; number 100 is `<EMAIL_1_00>`, see `pseudonym`."""
PLACEHOLDER: Final = re.compile(
    rf"\[REDACTED(?:_([A-Z_]{{1,40}}))?\]|<([A-Z][A-Z_]{{0,39}})_[g-v]{{16}}>|{PSEUDONYM.pattern}"
)
"""Anything masking may have written: its label in one of the first three groups, a pseudonym's number in the fourth."""
Trust: TypeAlias = Callable[[str, str], bool]
_OPENS: Final = re.compile(r"<[A-Z][A-Z_]{0,39}_[0-9g-v]")
# The numbers that `pseudonym` writes. Three digits in a row, or a leading zero, do not come from it.
_WRITTEN: Final = re.compile(r"[1-9]\d?(?:_\d\d){0,3}")
# Text that begins like a placeholder and continues with a value: `<CARD_4111111111111111>`, `[REDACTED_01712345678]`. A
# lower-case letter, or more characters than an IBAN has, indicate a key, whose name is a part of it: `<ghp_16C7e…>`.
_LOOKALIKE: Final = re.compile(
    r"(<[A-Za-z][A-Za-z_]{0,39}|\[REDACTED(?:_[A-Z_]{1,40})?)_(?=[+(]?[A-Z]{0,3}\d[A-Z0-9]{0,31}+(?![A-Za-z0-9_]))"
)
BLANK: Final = "\x00"
_LABEL_REST: Final = re.compile(r"[^A-Z]+")


def label_of(name: str) -> str:
    """Return a label in the characters allowed in a placeholder: `us phone#2` becomes `US_PHONE`."""
    return _LABEL_REST.sub("_", name.upper()).strip("_")[:40].strip("_") or "PII"


def redaction(label: str) -> str:
    """Return the usual placeholder of a label, `[REDACTED_EMAIL]`."""
    return f"[REDACTED_{label}]"


def pseudonym(label: str, number: int) -> str:
    """Return the placeholder of a number: `<EMAIL_1>`, and from 100 on `<EMAIL_1_00>`.

    There are no three digits in a row, so that no rule matches them, and no card code or PIN (`<PIN_123>`) has the form
    of a placeholder.
    """
    digits = str(number)
    groups = [digits[max(0, end - 2) : end] for end in range(len(digits), 0, -2)]
    return f"<{label}_{'_'.join(reversed(groups))}>"


def without_lookalikes(text: str) -> str:
    """Return a text of the same length in which a value in place of a placeholder's number is separated by a blank.

    Masking never writes `<CARD_4111111111111111>`, but attached to a name, the digits would not be found as a card.
    """
    return _LOOKALIKE.sub(r"\1 ", text) if "<" in text or "[REDACTED" in text else text


def blank_placeholders(text: str, trusts: Trust | None = None) -> str:
    """Return a copy of the same length with NUL characters in place of placeholders, so that no rule matches them.

    Args:
        text: the text.
        trusts: returns by label and number whether masking can have written a placeholder; None accepts every one.
    """
    if ("<" in text and _OPENS.search(text) is not None) or ("[" in text and "[REDACTED" in text):
        return PLACEHOLDER.sub(lambda match: _blank(match, trusts), text)
    return text


def _blank(match: re.Match[str], trusts: Trust | None) -> str:
    label = match[1] or match[2] or match[3]
    number = match[4]
    if trusts is None or label is None or ((not number or _WRITTEN.fullmatch(number)) and trusts(label, number or "")):
        return BLANK * (match.end() - match.start())
    return match[0]


def outside_placeholders(text: str, spans: Sequence[Span]) -> Sequence[Span]:
    """Return the findings that are not inside a placeholder, which a model may have taken for a name."""
    if not spans or ("<" not in text and "[REDACTED" not in text):
        return spans
    taken = [match.span() for match in PLACEHOLDER.finditer(text)]
    return [span for span in spans if not any(start <= span.start and span.end <= end for start, end in taken)]
