"""ctxguard for LangChain: chains, stored histories, agents and LangGraph graphs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ctxguard.settings import install_command

try:
    import langchain_core  # noqa: F401 - only to say what to install
except ImportError as error:
    raise ImportError(f"ctxguard_langchain needs langchain-core: {install_command('langchain')}") from error

from ctxguard_langchain.agent import ContextManagedAgent
from ctxguard_langchain.clients import guarded
from ctxguard_langchain.hooks import pre_model_hook
from ctxguard_langchain.messages import LangChainAdapter
from ctxguard_langchain.models import recall_tool
from ctxguard_langchain.runnables import ContextGuard, with_message_history

if TYPE_CHECKING:
    from ctxguard_langchain.middleware import ContextGuardMiddleware

__all__ = [
    "ContextGuard",
    "ContextGuardMiddleware",
    "ContextManagedAgent",
    "LangChainAdapter",
    "guarded",
    "pre_model_hook",
    "recall_tool",
    "with_message_history",
]


def __getattr__(name: str) -> object:
    """Import the agent middleware on first use: it needs `langchain`, which takes seconds to import."""
    if name == "ContextGuardMiddleware":
        from ctxguard_langchain.middleware import ContextGuardMiddleware

        return ContextGuardMiddleware
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
