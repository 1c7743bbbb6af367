"""The context being drafted: what stages take and return, what they may ask for, and the drivers that answer."""

from __future__ import annotations

from ctxguard.draft.draft import (
    Action,
    CallSettings,
    Change,
    Cut,
    Draft,
    Follower,
    IncrementalStage,
    LeftOut,
    Stage,
    StageResult,
    follow,
    stage_name,
)
from ctxguard.draft.drivers import Ask, adrive, drive, reads_only, refuse

__all__ = [
    "Action",
    "Ask",
    "CallSettings",
    "Change",
    "Cut",
    "Draft",
    "Follower",
    "IncrementalStage",
    "LeftOut",
    "Stage",
    "StageResult",
    "adrive",
    "drive",
    "follow",
    "reads_only",
    "refuse",
    "stage_name",
]
