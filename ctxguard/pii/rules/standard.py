"""The library's rules, grouped by topic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ctxguard.pii.detect.validate import TOP_LEVEL
from ctxguard.pii.rules.documents import document_rules
from ctxguard.pii.rules.files import RuleFile
from ctxguard.pii.rules.rule import Rule

REGIONS: Final = ("GB", "DE", "FR", "IT", "NL", "AU", "JP", "KR", "CH", "AT", "BE", "SE", "IL", "IN", "ZA")
"""Countries whose national phone numbers begin with 0, so that they are recognizable without a context word."""
_KNOWN_HOSTS: Final = "|".join(rf"(?<=\.{ending})" for ending in TOP_LEVEL.split("|"))


def phone_rules(regions: Sequence[str] = REGIONS) -> tuple[Rule, ...]:
    """Return the rules for phone numbers.

    Args:
        regions: Country codes (ISO 3166, two letters) whose national numbers are found without a context word.
    """
    return RuleFile("phones", REGIONS=",".join(regions)).rules()["rules"]


RULES_BY_COUNTRY: Final = RuleFile("countries").rules()
"""Rules for numbers that a state assigns to people and companies, by country."""
COUNTRIES: Final = tuple(RULES_BY_COUNTRY)
"""Codes of the countries that have their own rules (ISO 3166, two letters)."""
STANDARD_RULES: Final = (
    *RuleFile("core", AFTER_KNOWN=_KNOWN_HOSTS).rules()["rules"],
    *phone_rules(),
    *RuleFile("credentials").rules()["rules"],
    *RuleFile("passwords").rules()["rules"],
    *(rule for rules in RULES_BY_COUNTRY.values() for rule in rules),
    *document_rules(),
)
"""Rules for data that is recognizable by its form, its check digits, or a context word."""
PEOPLE_RULES: Final = RuleFile("people").rules()["rules"]
"""Rules for names of people and postal addresses."""
