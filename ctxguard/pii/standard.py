"""The rule sets that ship: `DIGITS`, `SSN`, `STANDARD`."""

from __future__ import annotations

from typing import Final

from ctxguard.pii.rules import Rule, RuleSet

__all__ = ["DIGITS", "SSN", "STANDARD"]

DIGITS: Final = RuleSet(
    "digits", (Rule("digits", "NUMBER", r"\d{3,}", placeholder="[REDACTED]"),)
)
SSN: Final = RuleSet("ssn", (Rule("ssn-shape", "SSN", r"\d{3}-\d{2}-\d{4}"),))


def _luhn(text: str) -> bool:
    digits = [int(char) for char in text if char.isdigit()]
    doubled = sum(sum(divmod(2 * digit, 10)) for digit in digits[-2::-2])
    return (sum(digits[-1::-2]) + doubled) % 10 == 0


STANDARD: Final = RuleSet(
    "standard",
    (
        Rule(
            "email",
            "EMAIL",
            r"(?<![\w.+-])[\w.+-]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63}){1,4}",
        ),
        Rule("ssn", "SSN", r"(?<![\w-])\d{3}-\d{2}-\d{4}(?![\w-])"),
        Rule("card", "CREDIT_CARD", r"(?<![\w-])\d(?:[ -]?\d){12,18}(?![\w-])", _luhn),
        Rule(
            "iban",
            "IBAN",
            r"(?<!\w)[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?(?!\w)",
        ),
        Rule("ipv4", "IP", r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?![\w.])"),
        Rule(
            "phone",
            "PHONE",
            r"(?<![\w-])(?:\+\d{1,3}[ .-]?)?\(?\d{3}\)?[ .-]\d{3}[ .-]\d{4}(?![\w-])",
        ),
    ),
)
