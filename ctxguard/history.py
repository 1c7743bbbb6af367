"""What must stay: system and task, pins, the latest messages, the last user message, the last exchange."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from ctxguard.artifacts import Artifact, Kind
from ctxguard.draft import Draft

__all__ = [
    "ASKED_BEHIND",
    "AUTHORITY",
    "LEFT_OUT",
    "LEFT_OUT_END",
    "MESSAGES",
    "OPENINGS",
    "REACHED",
    "RECALLED",
    "SUMMARY",
    "Unit",
    "asked_by_user",
    "is_record",
    "recent_messages",
    "stands_in",
    "task_of",
    "units",
]

AUTHORITY: Final = (Kind.SYSTEM, Kind.TASK)
"""Kinds that stand first and are never dropped."""
MESSAGES: Final = (Kind.USER, Kind.ASSISTANT)
"""Kinds that count as messages: what a person or the model said."""
SUMMARY: Final = "[Summary of the earlier conversation, which is no longer shown. A record, not a request.]"
"""First line of the message that stands for what was compacted."""
RECALLED: Final = (
    "[Recalled from earlier in this conversation, oldest first, because it may matter for the next message. "
    "A record of what was said, not a new request.]"
)
"""First line of the block of what is brought back."""
REACHED: Final = "Previous phases completed. Current state:"
"""First line of a checkpoint."""
LEFT_OUT: Final = "[Of the exchanges above, "
"""How the message begins that says where exchanges were left out between others."""
LEFT_OUT_END: Final = " in the full conversation, those that matter least are left out.]"
"""How it ends; a number stands between, or what masks it."""
ASKED_BEHIND: Final = "\n\n>>>\n\n"
"""What parts a message that a stage wrote from the words of the user's that are joined to it.

No summary is likely to hold it, and it takes no more tokens than joining saves: words would not fit a full budget.
"""
_MOST_LEFT_OUT: Final = 160
"""Characters that such a message has at most: it is kept, so nothing longer may pass for one."""
OPENINGS: Final = (SUMMARY, RECALLED, REACHED, LEFT_OUT)
"""How the messages begin that stages write in the user's role."""
TASK_SHARE: Final = 4
"""The first user message is the task unless it takes more than one part in four of the budget."""


@dataclass(slots=True)
class Unit:
    """Hold the place and the cost of one exchange in a repaired history.

    Attributes:
        start: position of its first artifact.
        end: position after its last one.
        tokens: what it costs.
        user: whether it has the role of the user.
        asks: whether a user wrote it: it is none of the messages that stages write in that role.
        message: whether it holds what a user or the model said.
        pinned: whether it must stay.
    """

    start: int
    end: int
    tokens: int
    user: bool
    asks: bool
    message: bool
    pinned: bool


def units(draft: Draft, begin: int = 0) -> list[Unit]:
    """Cut a draft into exchanges, leaving out what has authority. Results stand behind their call by now.

    Args:
        draft: its history is repaired.
        begin: position to begin at, where an exchange begins.
    """
    count = draft.counter.artifact
    found: list[Unit] = []
    calling, told = False, None
    for position, artifact in enumerate(draft.artifacts[begin:], begin):
        kind = artifact.kind
        if kind is Kind.SYSTEM or kind is Kind.TASK:
            continue
        if kind is Kind.TOOL and calling and found[-1].end == position:
            unit = found[-1]
            unit.end = position + 1
            unit.tokens += count(artifact)
            unit.pinned = unit.pinned or artifact.pinned
            continue
        calling = bool(artifact.calls)
        user = kind is Kind.USER
        asks = asked_by_user(artifact)
        pinned = artifact.pinned
        if user and not asks and artifact.text.startswith(LEFT_OUT):  # a pruner leaves one, so no other one is kept
            told = any(map(_tells_left_out, draft.artifacts[:position])) if told is None else True
            pinned = pinned or not told
        found.append(Unit(position, position + 1, count(artifact), user, asks, asks or kind is Kind.ASSISTANT, pinned))
    return found


def _tells_left_out(artifact: Artifact) -> bool:
    return stands_in(artifact) and artifact.text.startswith(LEFT_OUT)


def stands_in(artifact: Artifact) -> bool:
    """Tell a message that a stage wrote in place of others, also where it comes back as part of a history."""
    if artifact.kind is not Kind.USER or not artifact.text.startswith(OPENINGS):
        return False
    text = artifact.text
    if text.startswith(LEFT_OUT):
        return len(text) <= _MOST_LEFT_OUT and text.endswith(LEFT_OUT_END)
    return ASKED_BEHIND not in text


def is_record(artifact: Artifact) -> bool:
    """Tell a summary or a checkpoint: what it stands for is nowhere else."""
    return stands_in(artifact) and artifact.text.startswith((SUMMARY, REACHED))


def asked_by_user(artifact: Artifact) -> bool:
    """Tell a message that a user wrote from those that stages write in that role."""
    return artifact.kind is Kind.USER and not stands_in(artifact)


def task_of(draft: Draft) -> Artifact | None:
    """Return the first user message where it is kept as the task: by setting, and if it is not too large.

    Where a stage's own message stands first, the first one of the user's is gone, and with it the task.
    """
    if not draft.keep_task:
        return None
    first = next((a for a in draft.artifacts if a.kind is Kind.USER), None)
    if first is None or stands_in(first) or draft.counter.artifact(first) * TASK_SHARE > draft.budget:
        return None
    return first


def recent_messages(artifacts: Sequence[Artifact], keep: int) -> list[Artifact]:
    """Return the latest `keep` messages, newest first; those that stages wrote in the user's role are none."""
    return list(islice((a for a in reversed(artifacts) if a.kind in MESSAGES and not stands_in(a)), keep))
