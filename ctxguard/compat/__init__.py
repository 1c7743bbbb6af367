"""Helpers of the documents that work without the rest of the library, and every name of the documents."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ctxguard.compat.context_manager import ContextManager as ContextManager
    from ctxguard.compat.metrics import CompressionEvent as CompressionEvent
    from ctxguard.compat.metrics import ContextMetrics as ContextMetrics
    from ctxguard.config import CompressionLevel as CompressionLevel
    from ctxguard.config import ContextConfig as ContextConfig
    from ctxguard.stages.message_compressor import ConsoleMessageCompressor as ConsoleMessageCompressor
    from ctxguard.stages.message_compressor import MessageCompressor as MessageCompressor
    from ctxguard.stages.message_compressor import SnapshotCompressor as SnapshotCompressor
    from ctxguard.strategies import CheckpointManager as CheckpointManager
    from ctxguard.strategies import ImportanceScorer as ImportanceScorer
    from ctxguard.strategies import IntelligentPruner as IntelligentPruner
    from ctxguard.strategies import PruningRules as PruningRules
    from ctxguard.strategies import SlidingWindow as SlidingWindow
    from ctxguard.strategies.checkpoints import BrowserState as BrowserState
    from ctxguard.strategies.checkpoints import Checkpoint as Checkpoint
    from ctxguard.strategies.checkpoints import PageState as PageState
    from ctxguard_langchain import ContextManagedAgent as ContextManagedAgent

_HOMES = {
    "ctxguard.compat.context_manager": ("ContextManager",),
    "ctxguard.compat.metrics": ("CompressionEvent", "ContextMetrics"),
    "ctxguard.config": ("CompressionLevel", "ContextConfig"),
    "ctxguard.strategies": (
        "CheckpointManager",
        "ImportanceScorer",
        "IntelligentPruner",
        "PruningRules",
        "SlidingWindow",
    ),
    "ctxguard.strategies.checkpoints": ("BrowserState", "Checkpoint", "PageState"),
    "ctxguard.stages.message_compressor": ("ConsoleMessageCompressor", "MessageCompressor", "SnapshotCompressor"),
    "ctxguard_langchain": ("ContextManagedAgent",),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}
__all__ = [*sorted(_HOME_OF)]  # noqa: PLE0604 - the names above, which are loaded when they are asked for


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME_OF[name]), name)
