"""Keep long LLM conversations inside the budget, valid, and cheap to re-send, with structured personal data masked."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ctxguard.adapting.guard import guard as guard
    from ctxguard.artifacts import Artifact as Artifact
    from ctxguard.artifacts import Kind as Kind
    from ctxguard.artifacts import Lifetime as Lifetime
    from ctxguard.artifacts import Part as Part
    from ctxguard.artifacts import ToolCall as ToolCall
    from ctxguard.compat.pattern import stabilize_context as stabilize_context
    from ctxguard.compat.truncate import estimate_tokens as estimate_tokens
    from ctxguard.compat.truncate import truncate_messages as truncate_messages
    from ctxguard.config import ContextConfig as ContextConfig
    from ctxguard.config import load_context_config as load_context_config
    from ctxguard.draft import Draft as Draft
    from ctxguard.draft import Stage as Stage
    from ctxguard.errors import BudgetExceededError as BudgetExceededError
    from ctxguard.errors import CtxguardError as CtxguardError
    from ctxguard.history import Exchange as Exchange
    from ctxguard.history import exchanges as exchanges
    from ctxguard.pii import mask_pii as mask_pii
    from ctxguard.pii import validate_no_pii as validate_no_pii
    from ctxguard.report import Report as Report
    from ctxguard.stabilizer import Stabilized as Stabilized
    from ctxguard.stabilizer import Stabilizer as Stabilizer
    from ctxguard.tokens import TokenCounter as TokenCounter

__version__ = "0.1.0"

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
__all__ = [*sorted(_HOME_OF)]  # noqa: PLE0604 - the names above, which are loaded when they are asked for


def __getattr__(name: str) -> object:
    """Load a public name on first use; importing the package itself is cheap."""
    if name not in _HOME_OF:
        raise AttributeError(f"module 'ctxguard' has no attribute {name!r}")
    value = getattr(import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
