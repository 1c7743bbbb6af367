"""The stages, each a callable `Draft -> Draft`: usable alone, replaceable, in any order that makes sense."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ctxguard.stages.bound_tool_output import BoundToolOutput, ToolBounds
from ctxguard.stages.drop_stale_thinking import DropStaleThinking
from ctxguard.stages.expire_lifetimes import ExpireLifetimes
from ctxguard.stages.mask_pii import MaskMessages, MaskPII
from ctxguard.stages.merge_message_runs import MergeMessageRuns, SplitMergedRecords
from ctxguard.stages.order_by_authority import OrderByAuthority
from ctxguard.stages.recall_relevant import RecallRelevant
from ctxguard.stages.repair_exchanges import RepairExchanges
from ctxguard.stages.stable_window import StableWindow
from ctxguard.stages.start_with_user import StartWithUser
from ctxguard.stages.window_settings import WindowSettings

if TYPE_CHECKING:
    from ctxguard.strategies import (
        CheckpointManager,
        DropVerboseOutput,
        FillBudget,
        ImportanceScorer,
        IntelligentPruner,
        MergeSimilar,
        PreservationRule,
        PruningRules,
        SlidingWindow,
    )

__all__ = [
    "BoundToolOutput",
    "CheckpointManager",
    "DropStaleThinking",
    "DropVerboseOutput",
    "ExpireLifetimes",
    "FillBudget",
    "ImportanceScorer",
    "IntelligentPruner",
    "MaskMessages",
    "MaskPII",
    "MergeMessageRuns",
    "MergeSimilar",
    "OrderByAuthority",
    "PreservationRule",
    "PruningRules",
    "RecallRelevant",
    "RepairExchanges",
    "SlidingWindow",
    "SplitMergedRecords",
    "StableWindow",
    "StartWithUser",
    "ToolBounds",
    "WindowSettings",
]


def __getattr__(name: str) -> object:
    """Return a strategy of the requirement documents. Loaded on request, because strategies build on stages."""
    from ctxguard import strategies

    if name.startswith("_") or name not in strategies.__all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(strategies, name)
