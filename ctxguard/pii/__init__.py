"""Find personal data, hide it, give it back, and prove that it is gone.

`STANDARD.find(text)` says where it stands; `Masker` hides it (redacted, pseudonymized, hashed, in part); `Vault` keeps
what pseudonyms stand for; `MaskSession.unmask` gives it back; `validate_no_pii` checks on a path of its own.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

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
    "api": ("find_pii", "mask_pii", "validate_no_pii"),
    "detectors": ("CallableDetector", "PresidioDetector"),
    "evaluation": ("evaluate", "read_gold"),
    "gitleaks": ("load_gitleaks",),
    "mask.masker": ("Masker",),
    "mask.session": ("MaskSession",),
    "mask.unmask": ("Restored", "UnmaskStream"),
    "mask.sealing": ("new_key",),
    "mask.vault": ("SessionVault", "Vault"),
    "rule_sets": ("DIGITS", "PEOPLE", "SSN", "STANDARD", "RuleSet", "country_rules"),
    "rules.countries": ("COUNTRIES",),
    "rules.phones": ("phone_rules",),
    "rules.rule": ("Rule",),
    "spans": ("Detector", "Span", "resolve"),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
