"""The shapes of placeholders: what masking writes, what no rule may match, what unmasking looks up."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from ctxguard.pii.spans import Span

__all__ = ["PLACEHOLDER", "PSEUDONYM", "blank_placeholders", "label_of", "outside_placeholders", "redaction"]

PSEUDONYM: Final = re.compile(r"<([A-Z](?:[A-Z_]{0,38}[A-Z])?)_(\d{1,6}|\d{1,2}(?:_\d\d){1,2})>")
"""`<EMAIL_1>`: label and number; `<NUMBER_1_00>` is number 100 where a rule would match three digits."""
PLACEHOLDER: Final = re.compile(
    rf"\[REDACTED(?:_[A-Z_]{{1,40}})?\]|<[A-Z][A-Z_]{{0,39}}_[g-v]{{16}}>|{PSEUDONYM.pattern}"
)
"""Anything masking may have written. It is opaque to rules: too narrow a shape to hide a number in."""
_OPENS: Final = re.compile(r"<[A-Z][A-Z_]{0,39}_[0-9g-v]")
BLANK: Final = "\x00"
_LABEL_REST: Final = re.compile(r"[^A-Z]+")


def label_of(name: str) -> str:
    """Return a label in the letters a placeholder may hold: `us phone#2` becomes `US_PHONE`."""
    return _LABEL_REST.sub("_", name.upper()).strip("_")[:40].strip("_") or "PII"


def redaction(label: str) -> str:
    """Return the usual placeholder of a label, `[REDACTED_EMAIL]`."""
    return f"[REDACTED_{label}]"


def blank_placeholders(text: str) -> str:
    """Return a copy of the same length in which placeholders are NUL characters, so that no rule sees them."""
    if ("<" in text and _OPENS.search(text) is not None) or ("[" in text and "[REDACTED" in text):
        return PLACEHOLDER.sub(lambda match: BLANK * (match.end() - match.start()), text)
    return text


def outside_placeholders(text: str, spans: Sequence[Span]) -> Sequence[Span]:
    """Return the findings that do not lie inside a placeholder; a model may take one for a name."""
    if not spans or ("<" not in text and "[REDACTED" not in text):
        return spans
    taken = [match.span() for match in PLACEHOLDER.finditer(text)]
    return [span for span in spans if not any(start <= span.start and span.end <= end for start, end in taken)]
