"""Find personal data, hide it, give it back, and prove that it is gone.

`STANDARD.find(text)` says where it stands; `Masker` hides it (redacted, pseudonymized, hashed, in part); `Vault` keeps
what pseudonyms stand for; `MaskSession.unmask` gives it back; `validate_no_pii` checks on a path of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ctxguard import _lazy

if TYPE_CHECKING:
    from ctxguard.pii.api import find_pii, mask_pii, validate_no_pii
    from ctxguard.pii.detectors import CallableDetector, PresidioDetector
    from ctxguard.pii.evaluation import evaluate, read_gold
    from ctxguard.pii.gitleaks import load_gitleaks
    from ctxguard.pii.mask.masker import Masker
    from ctxguard.pii.mask.sealing import new_key
    from ctxguard.pii.mask.session import MaskSession
    from ctxguard.pii.mask.unmask import Restored, UnmaskStream
    from ctxguard.pii.mask.vault import SessionVault, Vault
    from ctxguard.pii.rule_sets import DIGITS, PEOPLE, SSN, STANDARD, RuleSet, country_rules
    from ctxguard.pii.rules.countries import COUNTRIES
    from ctxguard.pii.rules.phones import phone_rules
    from ctxguard.pii.rules.rule import Rule
    from ctxguard.pii.spans import Detector, Span, resolve

__all__ = [
    "COUNTRIES",
    "DIGITS",
    "PEOPLE",
    "SSN",
    "STANDARD",
    "CallableDetector",
    "Detector",
    "MaskSession",
    "Masker",
    "PresidioDetector",
    "Restored",
    "Rule",
    "RuleSet",
    "SessionVault",
    "Span",
    "UnmaskStream",
    "Vault",
    "country_rules",
    "evaluate",
    "find_pii",
    "load_gitleaks",
    "mask_pii",
    "new_key",
    "phone_rules",
    "read_gold",
    "resolve",
    "validate_no_pii",
]

_HOMES = {
    "ctxguard.pii.api": ("find_pii", "mask_pii", "validate_no_pii"),
    "ctxguard.pii.detectors": ("CallableDetector", "PresidioDetector"),
    "ctxguard.pii.evaluation": ("evaluate", "read_gold"),
    "ctxguard.pii.gitleaks": ("load_gitleaks",),
    "ctxguard.pii.mask.masker": ("Masker",),
    "ctxguard.pii.mask.session": ("MaskSession",),
    "ctxguard.pii.mask.unmask": ("Restored", "UnmaskStream"),
    "ctxguard.pii.mask.sealing": ("new_key",),
    "ctxguard.pii.mask.vault": ("SessionVault", "Vault"),
    "ctxguard.pii.rule_sets": ("DIGITS", "PEOPLE", "SSN", "STANDARD", "RuleSet", "country_rules"),
    "ctxguard.pii.rules.countries": ("COUNTRIES",),
    "ctxguard.pii.rules.phones": ("phone_rules",),
    "ctxguard.pii.rules.rule": ("Rule",),
    "ctxguard.pii.spans": ("Detector", "Span", "resolve"),
}
__getattr__, __dir__ = _lazy(__name__, _HOMES)
