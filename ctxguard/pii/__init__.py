"""Find personal data, hide it, give it back, and prove that it is gone."""

from __future__ import annotations

from ctxguard.pii.masking import (
    Masker,
    MaskSession,
    find_pii,
    mask_pii,
    validate_no_pii,
)
from ctxguard.pii.rules import Rule, RuleSet
from ctxguard.pii.spans import Detector, Span, resolve
from ctxguard.pii.standard import DIGITS, SSN, STANDARD

__all__ = [
    "DIGITS",
    "SSN",
    "STANDARD",
    "Detector",
    "MaskSession",
    "Masker",
    "Rule",
    "RuleSet",
    "Span",
    "find_pii",
    "mask_pii",
    "resolve",
    "validate_no_pii",
]
