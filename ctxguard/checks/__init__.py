"""Invariants of a finished draft. Each check reports every violation and changes nothing.

A draft (`ctxguard.draft.Draft`) is the context while stages work on it, with the history it came from.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol

from ctxguard.checks.invariants import AuthorityFirst, CallsArePaired, RecentKept, SystemIntact, WithinBudget
from ctxguard.checks.no_pii import NoPII
from ctxguard.checks.provider_profiles import PROVIDERS, ProviderProfile, provider_profile
from ctxguard.draft import Draft
from ctxguard.report import Finding

__all__ = [
    "ALL_CHECKS",
    "PROVIDERS",
    "AuthorityFirst",
    "CallsArePaired",
    "Check",
    "NoPII",
    "ProviderProfile",
    "RecentKept",
    "SystemIntact",
    "WithinBudget",
    "provider_profile",
]


class Check(Protocol):
    """An invariant of a finished draft."""

    @property
    def name(self) -> str:
        """Name of the check in reports."""
        ...

    def __call__(self, draft: Draft, /) -> Iterable[Finding]:
        """Return a finding for each violation; an empty iterable means that the invariant holds."""
        ...


ALL_CHECKS: Final[tuple[Check, ...]] = (
    NoPII(),
    WithinBudget(),
    AuthorityFirst(),
    CallsArePaired(),
    RecentKept(),
    SystemIntact(),
)
"""The default checks of a stabilizer."""
