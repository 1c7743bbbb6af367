"""The strategies of the requirement documents, all based on one stage: a function chooses the exchanges to keep."""

from __future__ import annotations

from ctxguard.strategies.checkpoints import CheckpointManager
from ctxguard.strategies.fill_budget import DropVerboseOutput, FillBudget
from ctxguard.strategies.importance import ImportanceScorer
from ctxguard.strategies.intelligent_pruner import IntelligentPruner, PruningRules
from ctxguard.strategies.keep import Choice, Keep, Past
from ctxguard.strategies.merge_similar import MergeSimilar
from ctxguard.strategies.sliding_window import PreservationRule, SlidingWindow

__all__ = [
    "CheckpointManager",
    "Choice",
    "DropVerboseOutput",
    "FillBudget",
    "ImportanceScorer",
    "IntelligentPruner",
    "Keep",
    "MergeSimilar",
    "Past",
    "PreservationRule",
    "PruningRules",
    "SlidingWindow",
]
