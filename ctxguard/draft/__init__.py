"""Drafts of a context, the stages that transform them, and the drivers that perform I/O on behalf of stages."""

from __future__ import annotations

from ctxguard.draft.draft import Action as Action
from ctxguard.draft.draft import Ask as Ask
from ctxguard.draft.draft import CallSettings as CallSettings
from ctxguard.draft.draft import Cause as Cause
from ctxguard.draft.draft import Change as Change
from ctxguard.draft.draft import Cut as Cut
from ctxguard.draft.draft import Decisions as Decisions
from ctxguard.draft.draft import Draft as Draft
from ctxguard.draft.draft import LeftOut as LeftOut
from ctxguard.draft.draft import Masking as Masking
from ctxguard.draft.draft import Stage as Stage
from ctxguard.draft.draft import StageResult as StageResult
from ctxguard.draft.draft import adrive as adrive
from ctxguard.draft.draft import asynchronous as asynchronous
from ctxguard.draft.draft import drive as drive
from ctxguard.draft.draft import reads_only as reads_only
from ctxguard.draft.draft import refuse as refuse
from ctxguard.draft.draft import stage_name as stage_name
from ctxguard.draft.draft import synchronous as synchronous
