"""Named chains, so that a first user writes one word."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from ctxguard.artifacts import Lifetime
from ctxguard.draft import Stage
from ctxguard.stages import (
    BoundToolOutput,
    DropVerboseOutput,
    ExpireLifetimes,
    FillBudget,
    MaskPII,
    OrderByAuthority,
    RepairExchanges,
    StableWindow,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ctxguard.pii import Detector, Masker
    from ctxguard.stores import Store

__all__ = [
    "POLICIES",
    "agent_stages",
    "browser_stages",
    "chat_stages",
    "long_session_stages",
    "recall_stages",
]


def chat_stages(
    *,
    target: float = 0.6,
    rules: Detector | Sequence[Detector] | None = None,
    masker: Masker | None = None,
    lifetimes: Mapping[str, Lifetime] | None = None,
) -> list[Stage]:
    """Return the chain for chats with few tools: outputs may take half of what the budget leaves."""
    return agent_stages(target=target, rules=rules, masker=masker, lifetimes=lifetimes, output_share=0.5)


def agent_stages(
    *,
    target: float = 0.6,
    rules: Detector | Sequence[Detector] | None = None,
    masker: Masker | None = None,
    lifetimes: Mapping[str, Lifetime] | None = None,
    output_share: float = 0.25,
    store: Store | None = None,
) -> list[Stage]:
    """Return the chain for agents, the default: repair, expire, mask, bound, keep a stable window, order.

    Args:
        target: share of the budget that a cut frees down to.
        rules: what counts as personal data; None means `ctxguard.pii.STANDARD`.
        masker: a masker of one's own (strategies, vault), in place of `rules`.
        lifetimes: by kind or tool name, see `ExpireLifetimes`.
        output_share: most that one tool output may take of what the budget leaves.
        store: where full tool outputs go.
    """
    prepared = _prepared(rules, masker, lifetimes, output_share, store)
    return [*prepared, StableWindow(target=target), OrderByAuthority()]


def recall_stages(
    *,
    share: float = 0.15,
    target: float = 0.6,
    rules: Detector | Sequence[Detector] | None = None,
    masker: Masker | None = None,
    lifetimes: Mapping[str, Lifetime] | None = None,
    output_share: float = 0.25,
    store: Store | None = None,
) -> list[Stage]:
    """Return the agent chain that brings dropped exchanges back where they matter for the current question.

    Args:
        share: share of what the budget leaves that is kept for them.
        target: see `agent_stages`, as all others.
        rules: see `agent_stages`.
        masker: see `agent_stages`.
        lifetimes: see `agent_stages`.
        output_share: see `agent_stages`.
        store: see `agent_stages`.
    """
    from ctxguard.stages.recall_relevant import recall_stages as fitting_stages

    prepared = _prepared(rules, masker, lifetimes, output_share, store)
    return [*fitting_stages(share=share, target=target, before=prepared), OrderByAuthority()]


def browser_stages(
    *,
    level: str = "medium",
    target: float = 0.6,
    rules: Detector | Sequence[Detector] | None = None,
    masker: Masker | None = None,
    lifetimes: Mapping[str, Lifetime] | None = None,
    store: Store | None = None,
) -> list[Stage]:
    """Return the agent chain for browsers: page snapshots and console messages are compressed by what they are.

    Args:
        level: `low`, `medium` or `high`, see `ctxguard.content.MessageCompressor`.
        target: see `agent_stages`, as all others.
        rules: see `agent_stages`.
        masker: see `agent_stages`.
        lifetimes: see `agent_stages`.
        store: see `agent_stages`.
    """
    from ctxguard.stages.message_compressor import MessageCompressor

    *first, bound = _prepared(rules, masker, lifetimes, 0.25, store)
    return [*first, MessageCompressor(level), bound, StableWindow(target=target), OrderByAuthority()]


def _prepared(
    rules: Detector | Sequence[Detector] | None,
    masker: Masker | None,
    lifetimes: Mapping[str, Lifetime] | None,
    output_share: float,
    store: Store | None,
) -> list[Stage]:
    return [
        RepairExchanges(),
        ExpireLifetimes(lifetimes),
        MaskPII(rules, masker=masker),
        BoundToolOutput(share=output_share, exchange_share=min(1.0, 2 * output_share), store=store),
    ]


def long_session_stages(*, rules: Detector | Sequence[Detector] | None = None) -> list[Stage]:
    """Return the chain of the long-session PRD: mask runs of digits, keep what must stay, fill with what fits.

    Args:
        rules: what counts as personal data; None means `ctxguard.pii.DIGITS`, any run of three or more digits.
    """
    from ctxguard.pii import DIGITS

    return [
        RepairExchanges(),
        ExpireLifetimes(),
        MaskPII(DIGITS if rules is None else rules),
        FillBudget(),
        OrderByAuthority(),
    ]


def pattern_stages(*, rules: Detector | Sequence[Detector] | None = None, verbose_output: int = 256) -> list[Stage]:
    """Return the chain of the context stabilizer pattern: mask, drop verbose tool outputs, fill from the oldest.

    Args:
        rules: what counts as personal data; None means the standard set with the plain SSN shape.
        verbose_output: tool outputs above it go, in tokens.
    """
    from ctxguard.pii import SSN, STANDARD

    return [
        MaskPII(SSN | STANDARD if rules is None else rules),
        DropVerboseOutput(verbose_output),
        FillBudget(order="oldest", strict=True),
        OrderByAuthority(),
    ]


POLICIES: Final[dict[str, Callable[..., list[Stage]]]] = {
    "chat": chat_stages,
    "agent": agent_stages,
    "browser": browser_stages,
    "recall": recall_stages,
    "long_session": long_session_stages,
    "pattern": pattern_stages,
}
"""The chains by name. Each takes its own settings by keyword."""
