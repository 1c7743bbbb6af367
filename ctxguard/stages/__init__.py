"""The stages, each a callable `Draft -> Draft`: usable alone, replaceable, in any order that makes sense."""

from __future__ import annotations

from ctxguard.stages.bound_tool_output import BoundToolOutput, ToolBounds
from ctxguard.stages.checkpoints import CheckpointManager
from ctxguard.stages.drop_stale_thinking import DropStaleThinking
from ctxguard.stages.expire_lifetimes import ExpireLifetimes
from ctxguard.stages.fill_budget import DropVerboseOutput, FillBudget
from ctxguard.stages.importance import ImportanceScorer
from ctxguard.stages.intelligent_pruner import IntelligentPruner, PruningRules
from ctxguard.stages.mask_pii import MaskPII
from ctxguard.stages.merge_message_runs import MergeMessageRuns, SplitMergedRecords
from ctxguard.stages.merge_similar import MergeSimilar
from ctxguard.stages.order_by_authority import OrderByAuthority
from ctxguard.stages.recall_relevant import RecallRelevant
from ctxguard.stages.repair_exchanges import RepairExchanges
from ctxguard.stages.sliding_window import PreservationRule, SlidingWindow
from ctxguard.stages.stable_window import StableWindow
from ctxguard.stages.start_with_user import StartWithUser

__all__ = [
    "BoundToolOutput",
    "CheckpointManager",
    "DropStaleThinking",
    "DropVerboseOutput",
    "ExpireLifetimes",
    "FillBudget",
    "ImportanceScorer",
    "IntelligentPruner",
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
]
