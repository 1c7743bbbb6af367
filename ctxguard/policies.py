"""Named chains of stages."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypedDict, Unpack

from ctxguard.artifacts import Lifetime
from ctxguard.draft import Stage
from ctxguard.errors import ConfigError
from ctxguard.settings import nearest
from ctxguard.stages import (
    BoundToolOutput,
    DropVerboseOutput,
    ExpireLifetimes,
    FillBudget,
    MaskPII,
    OrderByAuthority,
    RecallRelevant,
    RepairExchanges,
    StableWindow,
)
from ctxguard.stages.stable_window import OnOverflow

if TYPE_CHECKING:
    from ctxguard.checks import ProviderProfile
    from ctxguard.pii import Detector, Masker
    from ctxguard.stages.embeddings import Embed
    from ctxguard.stores import Store

__all__ = [
    "POLICIES",
    "ChainOptions",
    "WindowOptions",
    "agent_stages",
    "browser_stages",
    "chat_stages",
    "long_session_stages",
    "recall_stages",
]

_TOGETHER: Final = 0.5
"""Most of the room that the outputs of one exchange may take together, unless `output_share` itself is more."""


class WindowOptions(TypedDict, total=False):
    """Hold the settings of the window that every policy with one takes; `StableWindow` documents them.

    Attributes:
        target: share of the room that a cut frees down to.
        trail: share of the room that the trail may take.
        digests: whether old outputs and arguments become digests first.
        weights: how strongly exchanges are kept, by who begins them.
        on_overflow: `raise` or `bound`.
    """

    target: float | None
    trail: float | None
    digests: bool
    weights: Mapping[str, float] | None
    on_overflow: OnOverflow


class ChainOptions(WindowOptions, total=False):
    """Hold the settings that every policy with a window takes, those of the window included.

    Attributes:
        rules: what counts as personal data; None means `ctxguard.pii.STANDARD`.
        masker: your own masker (strategies, vault), instead of `rules`.
        lifetimes: by kind or tool name, see `ExpireLifetimes`.
        output_share: most that one tool output may take of the room, see `BoundToolOutput`; those of one exchange
            together may take twice as much, up to half of the room, and less once the history does not fit any more.
            0.25 if not given.
        store: where full texts go; digests and the trail then name a handle.
    """

    rules: Detector | Sequence[Detector] | None
    masker: Masker | None
    lifetimes: Mapping[str, Lifetime] | None
    output_share: float
    store: Store | None


def agent_stages(**settings: Unpack[ChainOptions]) -> list[Stage]:
    """Return the chain for agents, the default: repair, expire, mask, bound, keep a stable window, order."""
    return [*_prepared(settings), _window(settings), OrderByAuthority()]


def chat_stages(**settings: Unpack[ChainOptions]) -> list[Stage]:
    """Return the chain for chats with few tools: what people said stays longest, and outputs may take half the room.

    A cut leaves 0.7 of the room, and the trail a tenth: in a chat the words themselves are what comes up again.
    """
    settings = {
        "output_share": 0.5,
        "weights": {"user": 4.0, "assistant": 2.0},
        "target": 0.7,
        "trail": 0.1,
        **settings,
    }
    return agent_stages(**settings)


def recall_stages(
    *, share: float | None = None, embed: Embed | None = None, **settings: Unpack[ChainOptions]
) -> list[Stage]:
    """Return the agent chain with recall: dropped exchanges come back if they matter for the current question.

    The trail takes a tenth of the window's room, since recall finds the rest.

    Args:
        share: share of what system, task and pins leave of the budget that is kept for them; None means 0.5, and 0.7
            with `embed`. More finds more of what was said, and leaves fewer of the latest steps.
        embed: compares by meaning, beside words, see `RecallRelevant`; `static` for the extra `semantic`.
        **settings: see `ChainOptions`.
    """
    if share is None:
        share = 0.5 if embed is None else 0.7
    recall = RecallRelevant(share, embed=embed, store=settings.get("store"))
    settings = {"trail": 0.1, **settings}
    return [*_prepared(settings, share), _window(settings, reserve=share), recall, OrderByAuthority()]


def browser_stages(*, level: str = "medium", **settings: Unpack[ChainOptions]) -> list[Stage]:
    """Return the agent chain for browsers: page snapshots and console messages are compressed by what they are.

    Args:
        level: `low`, `medium` or `high`, see `ctxguard.content.MessageCompressor`.
        **settings: see `ChainOptions`.
    """
    from ctxguard.content import MessageCompressor

    *first, bound = _prepared(settings)
    return [*first, MessageCompressor(level), bound, _window(settings), OrderByAuthority()]


def _prepared(settings: ChainOptions, reserve: float = 0.0) -> list[Stage]:
    share = settings.get("output_share", 0.25)
    # Of a window that keeps a part free for what comes back, outputs of one exchange take as much less.
    together = max(share, min(_TOGETHER, 2 * share)) * (1 - reserve)
    return [
        RepairExchanges(),
        ExpireLifetimes(settings.get("lifetimes")),
        MaskPII(settings.get("rules"), masker=settings.get("masker")),
        BoundToolOutput(share=share, exchange_share=together, store=settings.get("store")),
    ]


def _window(settings: ChainOptions, *, reserve: float = 0.0) -> StableWindow:
    own = ChainOptions.__annotations__.keys() - WindowOptions.__annotations__.keys() - {"store"}
    return StableWindow(reserve=reserve, **{name: value for name, value in settings.items() if name not in own})  # type: ignore[arg-type]  # the types of `WindowOptions`


def long_session_stages(*, rules: Detector | Sequence[Detector] | None = None) -> list[Stage]:
    """Return the chain of the long-session PRD: mask runs of digits, keep what must stay, fill with what fits.

    Args:
        rules: what counts as personal data; None means `ctxguard.pii.DIGITS`, any run of three or more digits.
    """
    from ctxguard.pii import DIGITS

    return [
        RepairExchanges(keep_bare=True),
        ExpireLifetimes(),
        MaskPII(DIGITS if rules is None else rules),
        FillBudget(),
        OrderByAuthority(),
    ]


def pattern_stages(
    *,
    rules: Detector | Sequence[Detector] | None = None,
    lifetimes: Mapping[str, Lifetime] | None = None,
    verbose_output: int = 256,
) -> list[Stage]:
    """Return the chain of the context stabilizer pattern: expire, mask, drop verbose outputs, fill from the oldest.

    Args:
        rules: what counts as personal data; None means the standard set with the plain SSN shape.
        lifetimes: by kind or tool name, see `ExpireLifetimes`.
        verbose_output: tokens above which a tool output goes.
    """
    from ctxguard.pii import SSN, STANDARD

    return [
        ExpireLifetimes(lifetimes),
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


def policy_settings(policy: str) -> frozenset[str]:
    """Return the names of the settings that a policy takes."""
    own = inspect.signature(POLICIES[policy]).parameters.keys()
    return frozenset(own - {"settings"} | ChainOptions.__annotations__.keys() if "settings" in own else own)


def stabilizer_defaults(policy: str) -> dict[str, object]:
    """Return the settings of the stabilizer itself that a policy changes, unless the caller gives them.

    The plain transcripts of the documents hold tool outputs without calls, and the pattern keeps the system prompt and
    the newest message, nothing else.
    """
    if policy not in ("long_session", "pattern"):
        return {}
    from ctxguard.checks import ALL_CHECKS, CallsArePaired

    checks = [CallsArePaired(allow_bare=True) if isinstance(c, CallsArePaired) else c for c in ALL_CHECKS]
    return {"checks": checks, **({"keep_recent": 1, "keep_task": False} if policy == "pattern" else {})}


def windowed_chain(policy: str, window: WindowOptions) -> list[Stage]:
    """Return the chain of a policy, which must have a window."""
    windowed = [name for name in POLICIES if "target" in policy_settings(name)]
    if policy not in windowed:
        known = ", ".join(windowed)
        raise ConfigError(
            f"no policy {policy!r} with a window (known are {known}){nearest(policy, windowed)}; "
            "Stabilizer.from_policy knows the others",
            setting="policy",
        )
    return POLICIES[policy](**window)


def suiting(stages: tuple[Stage, ...], profile: ProviderProfile) -> tuple[Stage, ...]:
    """Return the stages with those around them that put the roles where a provider wants them."""
    from ctxguard.stages import MergeMessageRuns, SplitMergedRecords, StartWithUser

    first: list[Stage] = []
    added: list[Stage] = []
    if profile.starts_with_user and not any(isinstance(stage, StartWithUser) for stage in stages):
        added.append(StartWithUser())
    if profile.alternates and not any(isinstance(stage, MergeMessageRuns) for stage in stages):
        first.append(SplitMergedRecords())
        added.append(MergeMessageRuns())
    return (*first, *stages, *added)
