"""Keep long LLM conversations inside the budget, valid, and cheap to re-send, with structured personal data masked."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ctxguard.adapting.guard import guard
    from ctxguard.artifacts import Artifact, Kind, Lifetime, Part, ToolCall
    from ctxguard.compat.pattern import stabilize_context
    from ctxguard.compat.truncate import estimate_tokens, truncate_messages
    from ctxguard.config import ContextConfig, load_context_config
    from ctxguard.draft import Draft, Stage
    from ctxguard.errors import BudgetExceededError, CtxguardError
    from ctxguard.history import Exchange, exchanges
    from ctxguard.pii import mask_pii, validate_no_pii
    from ctxguard.report import Report
    from ctxguard.stabilizer import Stabilized, Stabilizer
    from ctxguard.tokens import TokenCounter

__version__ = "0.1.0"

__all__ = [
    "Artifact",
    "BudgetExceededError",
    "ContextConfig",
    "CtxguardError",
    "Draft",
    "Exchange",
    "Kind",
    "Lifetime",
    "Part",
    "Report",
    "Stabilized",
    "Stabilizer",
    "Stage",
    "TokenCounter",
    "ToolCall",
    "estimate_tokens",
    "exchanges",
    "guard",
    "load_context_config",
    "mask_pii",
    "stabilize_context",
    "truncate_messages",
    "validate_no_pii",
]

_HOMES = {
    "ctxguard.adapting.guard": ("guard",),
    "ctxguard.artifacts": ("Artifact", "Kind", "Lifetime", "Part", "ToolCall"),
    "ctxguard.config": ("ContextConfig", "load_context_config"),
    "ctxguard.draft": ("Draft", "Stage"),
    "ctxguard.errors": ("BudgetExceededError", "CtxguardError"),
    "ctxguard.history": ("Exchange", "exchanges"),
    "ctxguard.pii": ("mask_pii", "validate_no_pii"),
    "ctxguard.compat.pattern": ("stabilize_context",),
    "ctxguard.report": ("Report",),
    "ctxguard.stabilizer": ("Stabilized", "Stabilizer"),
    "ctxguard.tokens": ("TokenCounter",),
    "ctxguard.compat.truncate": ("estimate_tokens", "truncate_messages"),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    """Load a public name when it is first used; importing the package itself stays cheap."""
    if name not in _HOME_OF:
        raise AttributeError(f"module 'ctxguard' has no attribute {name!r}")
    value = getattr(import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
