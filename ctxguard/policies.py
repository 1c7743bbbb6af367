"""Named chains of stages."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Final, Unpack

from ctxguard.artifacts import Lifetime
from ctxguard.draft import Stage
from ctxguard.errors import ConfigError
from ctxguard.settings import nearest, settings_of
from ctxguard.stages import (
    ExpireLifetimes,
    MaskMessages,
    MaskPII,
    OrderByAuthority,
    RecallRelevant,
    RepairExchanges,
    StableWindow,
)
from ctxguard.stages.window_settings import WINDOW_SETTINGS, WindowOptions, WindowSettings
from ctxguard.strategies import DropVerboseOutput, FillBudget

if TYPE_CHECKING:
    from ctxguard.checks import ProviderProfile
    from ctxguard.pii import Detector, Masker
    from ctxguard.stages.embeddings import Embed
    from ctxguard.stores import Store

__all__ = [
    "POLICIES",
    "ChainOptions",
    "ChainSettings",
    "agent_stages",
    "browser_stages",
    "chat_stages",
    "default_stages",
    "long_session_stages",
    "recall_stages",
]


@dataclass(frozen=True)
class ChainSettings(WindowSettings):
    """The settings that every policy with a window takes by keyword, including those of the window.

    Attributes:
        rules: what counts as personal data; None means `ctxguard.pii.STANDARD`.
        masker: your own masker (strategies, vault), instead of `rules`.
        lifetimes: by kind or tool name, see `ExpireLifetimes`.
        store: where full texts are saved; views and the trail then name a handle.
    """

    rules: Detector | Sequence[Detector] | None = None
    masker: Masker | None = None
    lifetimes: Mapping[str, Lifetime] | None = None
    store: Store | None = None


class ChainOptions(WindowOptions, total=False):
    """Type the fields of `ChainSettings` as keywords."""

    rules: Detector | Sequence[Detector] | None
    masker: Masker | None
    lifetimes: Mapping[str, Lifetime] | None
    store: Store | None


def agent_stages(**settings: Unpack[ChainOptions]) -> list[Stage]:
    """Return the chain for agents, without recall: repair, expire, mask, keep a stable window, order."""
    chain = settings_of(ChainSettings, settings)
    return [*_prepared(chain), _window(chain), OrderByAuthority()]


def chat_stages(**settings: Unpack[ChainOptions]) -> list[Stage]:
    """Return the chain for chats, which is that for agents: in both, user messages are kept longest."""
    return agent_stages(**settings)


def default_stages(*, embed: Embed | None = None, **settings: Unpack[ChainOptions]) -> list[Stage]:
    """Return the default chain, for agents and conversations alike: the agent chain, with recall on demand.

    At the beginning of a turn whose question matches evicted exchanges better than those in the context, the relevant
    ones are recalled.

    Args:
        embed: compares by meaning as well as by words, see `RecallRelevant`; `static` for the extra `semantic`.
        **settings: see `ChainSettings`.
    """
    chain = settings_of(ChainSettings, settings)
    return _recalling(chain, RecallRelevant(embed=embed, store=chain.store))


def recall_stages(*, embed: Embed | None = None, **settings: Unpack[ChainOptions]) -> list[Stage]:
    """Return the default chain with recall in every turn. The trail takes a tenth of the tokens after a cut.

    Args:
        embed: compares by meaning as well as by words, see `RecallRelevant`; `static` for the extra `semantic`.
        **settings: see `ChainSettings`.
    """
    chain = settings_of(ChainSettings, settings)
    return _recalling(chain, RecallRelevant(threshold=0.0, embed=embed, store=chain.store))


def browser_stages(*, level: str = "medium", **settings: Unpack[ChainOptions]) -> list[Stage]:
    """Return the agent chain for browsers: page snapshots and console messages are compressed by their type.

    Args:
        level: `low`, `medium` or `high`, see `ctxguard.content.MessageCompressor`.
        **settings: see `ChainSettings`.
    """
    from ctxguard.content import MessageCompressor

    chain = settings_of(ChainSettings, settings)
    return [*_prepared(chain), MessageCompressor(level), _window(chain), OrderByAuthority()]


def _prepared(chain: ChainSettings) -> list[Stage]:
    return [RepairExchanges(), ExpireLifetimes(chain.lifetimes), MaskPII(chain.rules, masker=chain.masker)]


def _recalling(chain: ChainSettings, recall: RecallRelevant) -> list[Stage]:
    return [*_prepared(chain), _window(chain, recall), recall, OrderByAuthority()]


def _window(chain: ChainSettings, recall: RecallRelevant | None = None) -> StableWindow:
    return StableWindow(recall=recall, store=chain.store, **{name: getattr(chain, name) for name in WINDOW_SETTINGS})


def long_session_stages(*, rules: Detector | Sequence[Detector] | None = None) -> list[Stage]:
    """Return the chain of the long-session document: mask digits, keep the mandatory messages, fill with what fits.

    Args:
        rules: what counts as personal data; None means `ctxguard.pii.STANDARD`, and `ctxguard.pii.DIGITS`, any run of
            three or more digits, in what people and the model say.
    """
    from ctxguard.pii import DIGITS

    return [
        *([MaskMessages(DIGITS)] if rules is None else []),
        RepairExchanges(keep_bare=True),
        ExpireLifetimes(),
        MaskPII(rules),
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
        verbose_output: tokens above which a tool output is dropped.
    """
    from ctxguard.pii import SSN, STANDARD

    return [
        ExpireLifetimes(lifetimes),
        MaskPII(SSN | STANDARD if rules is None else rules),
        DropVerboseOutput(verbose_output),
        FillBudget(order="oldest", strict=True, keep="newest"),
        OrderByAuthority(),
    ]


POLICIES: Final[dict[str, Callable[..., list[Stage]]]] = {
    "default": default_stages,
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
    return frozenset(own - {"settings"} | {each.name for each in fields(ChainSettings)} if "settings" in own else own)


def settings_taken(policy: str, given: Iterable[str], general: AbstractSet[str]) -> frozenset[str]:
    """Return the names of the settings that a policy takes.

    Args:
        policy: its name.
        given: names of the given settings.
        general: names of the settings that a stabilizer of any policy takes.

    Raises:
        ConfigError: the policy is unknown, or a setting belongs neither to it nor to every stabilizer.
    """
    if policy not in POLICIES:
        known = ", ".join(POLICIES)
        raise ConfigError(f"unknown policy {policy!r}{nearest(policy, POLICIES)}; known are {known}", setting="policy")
    own = policy_settings(policy)
    unknown = sorted(set(given) - own - general)
    if unknown:
        raise ConfigError(
            f"policy {policy!r} takes no setting {unknown[0]!r}{nearest(unknown[0], own | general)}; "
            f"it takes {', '.join(sorted(own | general))}",
            setting=unknown[0],
        )
    return own


def not_taken(setting: str, known: Iterable[str]) -> ConfigError:
    """Return the error for a setting that `Stabilizer` does not take; it says what to write instead."""
    policy = next((each for each in POLICIES if setting in policy_settings(each)), None)
    if setting == "policy":
        remedy = "; write Stabilizer.from_policy(name, budget=…)"
    elif policy is None:
        remedy = nearest(setting, known)
    else:
        remedy = f"; policies do: write Stabilizer.from_policy({policy!r}, budget=…, {setting}=…)"
    return ConfigError(f"Stabilizer takes no setting {setting!r}{remedy}", setting=setting)


def stabilizer_defaults(policy: str) -> dict[str, object]:
    """Return the settings of the stabilizer itself that a policy changes, unless the caller gives them.

    The plain transcripts of the documents contain tool outputs without calls. The pattern keeps the system prompt and
    the newest message, nothing else: it does not promise to keep the last user message before an answer.
    """
    if policy not in ("long_session", "pattern"):
        return {}
    from ctxguard.checks import ALL_CHECKS, CallsArePaired, RecentKept

    checks = [CallsArePaired(allow_bare=True) if isinstance(c, CallsArePaired) else c for c in ALL_CHECKS]
    if policy == "long_session":
        return {"checks": checks}
    return {"checks": [c for c in checks if not isinstance(c, RecentKept)], "keep_recent": 0, "keep_task": False}


def suiting(stages: tuple[Stage, ...], profile: ProviderProfile) -> tuple[Stage, ...]:
    """Return the stages, with others added before and after them that order the roles as a provider requires."""
    from ctxguard.stages import MergeMessageRuns, SplitMergedRecords, StartWithUser

    first: list[Stage] = []
    added: list[Stage] = []
    if profile.starts_with_user and not any(isinstance(stage, StartWithUser) for stage in stages):
        added.append(StartWithUser())
    if profile.alternates and not any(isinstance(stage, MergeMessageRuns) for stage in stages):
        first.append(SplitMergedRecords())
        added.append(MergeMessageRuns())
    return (*first, *stages, *added)
