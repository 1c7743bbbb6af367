"""Find personal data, hide it, give it back, and prove that it is gone.

`STANDARD.find(text)` says where it stands; `Masker` hides it (redacted, pseudonymized, hashed, in part); `Vault` keeps
what pseudonyms stand for; `MaskSession.unmask` gives it back; `validate_no_pii` checks on a path of its own.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ctxguard.pii.countries import COUNTRIES, country_rules
    from ctxguard.pii.detectors import CallableDetector, GuardedDetector, PresidioDetector
    from ctxguard.pii.evaluation import evaluate, read_gold
    from ctxguard.pii.gitleaks import load_gitleaks
    from ctxguard.pii.mask_session import MaskSession
    from ctxguard.pii.masking import Masker
    from ctxguard.pii.phones import phone_rules
    from ctxguard.pii.quick import find_pii, mask_pii, validate_no_pii
    from ctxguard.pii.rules import Rule, RuleSet
    from ctxguard.pii.spans import Detector, Span, resolve
    from ctxguard.pii.standard import DIGITS, SSN, STANDARD
    from ctxguard.pii.unmasking import Restored, UnmaskStream
    from ctxguard.pii.vault import SessionVault, Vault, new_key

__all__ = [
    "COUNTRIES",
    "DIGITS",
    "SSN",
    "STANDARD",
    "CallableDetector",
    "Detector",
    "GuardedDetector",
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
    "countries": ("COUNTRIES", "country_rules"),
    "detectors": ("CallableDetector", "GuardedDetector", "PresidioDetector"),
    "evaluation": ("evaluate", "read_gold"),
    "gitleaks": ("load_gitleaks",),
    "mask_session": ("MaskSession",),
    "masking": ("Masker",),
    "phones": ("phone_rules",),
    "quick": ("find_pii", "mask_pii", "validate_no_pii"),
    "rules": ("Rule", "RuleSet"),
    "spans": ("Detector", "Span", "resolve"),
    "standard": ("DIGITS", "SSN", "STANDARD"),
    "unmasking": ("Restored", "UnmaskStream"),
    "vault": ("SessionVault", "Vault", "new_key"),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
