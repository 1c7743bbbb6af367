"""Keep long LLM conversations inside the budget, valid, and cheap to re-send, with structured personal data masked."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

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


def _lazy(package: str, homes: Mapping[str, Sequence[str]]) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return the `__getattr__` and the `__dir__` of a package that loads a public name when it is first used.

    Args:
        package: its name.
        homes: the public names, by the modules that they stand in.
    """
    home_of = {name: module for module, names in homes.items() for name in names}

    def load(name: str) -> object:
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(home_of[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    return load, lambda: sorted({*vars(sys.modules[package]), *home_of})


__getattr__, __dir__ = _lazy(__name__, _HOMES)
