"""Invariants that judge a finished draft. Each collects all it finds; none changes anything."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol

from ctxguard.checks.authority_first import AuthorityFirst
from ctxguard.checks.calls_are_paired import CallsArePaired
from ctxguard.checks.no_pii import NoPII
from ctxguard.checks.provider_profiles import PROVIDERS, ProviderProfile, provider_profile
from ctxguard.checks.recent_kept import RecentKept
from ctxguard.checks.system_intact import SystemIntact
from ctxguard.checks.within_budget import WithinBudget
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
    """Judge a finished draft."""

    @property
    def name(self) -> str:
        """What reports call it."""
        ...

    def __call__(self, draft: Draft, /) -> Iterable[Finding]:
        """Return everything that is wrong; nothing means that it holds."""
        ...


ALL_CHECKS: Final[tuple[Check, ...]] = (
    NoPII(),
    WithinBudget(),
    AuthorityFirst(),
    CallsArePaired(),
    RecentKept(),
    SystemIntact(),
)
"""What every stabilizer checks unless told otherwise."""
