"""Find personal data, mask it, restore it, and check that none is left.

`STANDARD.find(text)` returns the places; `Masker` masks (redacts, pseudonymizes, hashes, or shows in part); `Vault`
stores the values of pseudonyms; `MaskSession.unmask` restores them; `validate_no_pii` checks independently.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ctxguard.pii.api import find_pii as find_pii
    from ctxguard.pii.api import mask_pii as mask_pii
    from ctxguard.pii.api import validate_no_pii as validate_no_pii
    from ctxguard.pii.detectors import CallableDetector as CallableDetector
    from ctxguard.pii.detectors import PresidioDetector as PresidioDetector
    from ctxguard.pii.evaluation import evaluate as evaluate
    from ctxguard.pii.evaluation import read_gold as read_gold
    from ctxguard.pii.gitleaks import load_gitleaks as load_gitleaks
    from ctxguard.pii.mask.masker import Masker as Masker
    from ctxguard.pii.mask.sealing import new_key as new_key
    from ctxguard.pii.mask.session import MaskSession as MaskSession
    from ctxguard.pii.mask.unmask import Restored as Restored
    from ctxguard.pii.mask.unmask import UnmaskStream as UnmaskStream
    from ctxguard.pii.mask.vault import SessionVault as SessionVault
    from ctxguard.pii.mask.vault import Vault as Vault
    from ctxguard.pii.rule_sets import DIGITS as DIGITS
    from ctxguard.pii.rule_sets import PEOPLE as PEOPLE
    from ctxguard.pii.rule_sets import SSN as SSN
    from ctxguard.pii.rule_sets import STANDARD as STANDARD
    from ctxguard.pii.rule_sets import RuleSet as RuleSet
    from ctxguard.pii.rule_sets import country_rules as country_rules
    from ctxguard.pii.rules.rule import Rule as Rule
    from ctxguard.pii.rules.standard import COUNTRIES as COUNTRIES
    from ctxguard.pii.rules.standard import phone_rules as phone_rules
    from ctxguard.pii.spans import Detector as Detector
    from ctxguard.pii.spans import Span as Span
    from ctxguard.pii.spans import resolve as resolve

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
    "rules.rule": ("Rule",),
    "rules.standard": ("COUNTRIES", "phone_rules"),
    "spans": ("Detector", "Span", "resolve"),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}
__all__ = [*sorted(_HOME_OF)]  # noqa: PLE0604 - the names above, which are loaded when they are asked for


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
