"""Policies: named chains of stages, and the settings that they take."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Final, Unpack

from ctxguard.artifacts import Lifetime
from ctxguard.draft import Chain, Stage
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
from ctxguard.stages.fold import WINDOW_SETTINGS, WindowOptions, WindowSettings
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
    """The settings that all policies with a window take as keywords. The settings of the window are included.

    Attributes:
        rules: The detectors of personal data; None means `ctxguard.pii.STANDARD`.
        masker: A masker with your own strategies or vault, used instead of `rules`.
        lifetimes: Lifetimes of artifacts by kind or tool name; see `ExpireLifetimes`.
        store: The store for the full texts of shortened and evicted messages. Their short forms then name a handle by
            which the full text can be read.
    """

    rules: Detector | Sequence[Detector] | None = None
    masker: Masker | None = None
    lifetimes: Mapping[str, Lifetime] | None = None
    store: Store | None = None


class ChainOptions(WindowOptions, total=False):
    """The fields of `ChainSettings` as keyword arguments, for type checkers and editors."""

    rules: Detector | Sequence[Detector] | None
    masker: Masker | None
    lifetimes: Mapping[str, Lifetime] | None
    store: Store | None


def agent_stages(**settings: Unpack[ChainOptions]) -> list[Stage]:
    """Return the chain for agents: repair, expire lifetimes, mask, keep a stable window, put system and task first.

    Args:
        **settings: The fields of `ChainSettings`.
    """
    chain = settings_of(ChainSettings, settings)
    return [*_first_stages(chain), _window(chain), OrderByAuthority()]


def chat_stages(**settings: Unpack[ChainOptions]) -> list[Stage]:
    """Return the chain for chats. It is the chain for agents, which keeps user messages longest in any case."""
    return agent_stages(**settings)


def default_stages(*, embed: Embed | None = None, **settings: Unpack[ChainOptions]) -> list[Stage]:
    """Return the default chain, for agents and conversations: the chain for agents, with recall if a question needs it.

    Evicted exchanges are recalled at the beginning of a turn if they match the question well, compared with the
    exchanges that are still in the context.

    Args:
        embed: How recall compares meaning in addition to words; see `RecallRelevant`. `static` needs the extra
            `semantic`. None means that only words are compared.
        **settings: The fields of `ChainSettings`.
    """
    chain = settings_of(ChainSettings, settings)
    return _recall_chain(chain, RecallRelevant(embed=embed, store=chain.store))


def recall_stages(*, embed: Embed | None = None, **settings: Unpack[ChainOptions]) -> list[Stage]:
    """Return the default chain, but with recall in every turn.

    Args:
        embed: How recall compares meaning in addition to words; see `RecallRelevant`. `static` needs the extra
            `semantic`. None means that only words are compared.
        **settings: The fields of `ChainSettings`.
    """
    chain = settings_of(ChainSettings, settings)
    return _recall_chain(chain, RecallRelevant(threshold=0.0, embed=embed, store=chain.store))


def browser_stages(*, level: str = "medium", **settings: Unpack[ChainOptions]) -> list[Stage]:
    """Return the chain for browser agents: the chain for agents, with page snapshots and console messages compressed.

    Args:
        level: How much messages are compressed: `low`, `medium`, or `high`; see `ctxguard.content.MessageCompressor`.
        **settings: The fields of `ChainSettings`.
    """
    from ctxguard.content import MessageCompressor

    chain = settings_of(ChainSettings, settings)
    return [*_first_stages(chain), MessageCompressor(level), _window(chain), OrderByAuthority()]


def _first_stages(chain: ChainSettings) -> list[Stage]:
    return [RepairExchanges(), ExpireLifetimes(chain.lifetimes), MaskPII(chain.rules, masker=chain.masker)]


def _recall_chain(chain: ChainSettings, recall: RecallRelevant) -> list[Stage]:
    return [*_first_stages(chain), _window(chain, recall), recall, OrderByAuthority()]


def _window(chain: ChainSettings, recall: RecallRelevant | None = None) -> StableWindow:
    return StableWindow(recall=recall, store=chain.store, **{name: getattr(chain, name) for name in WINDOW_SETTINGS})


def long_session_stages(*, rules: Detector | Sequence[Detector] | None = None) -> list[Stage]:
    """Return the chain of the policy `long_session`: mask, keep the mandatory messages, and add others that fit.

    Args:
        rules: The detectors of personal data. None means `ctxguard.pii.STANDARD` everywhere, and `ctxguard.pii.DIGITS`
            (any run of three or more digits) in user and assistant messages.
    """
    from ctxguard.pii import DIGITS

    return [
        *([MaskMessages(DIGITS)] if rules is None else []),
        RepairExchanges(keep_bare=True),
        ExpireLifetimes(),
        MaskPII(rules),
        FillBudget(),
        OrderByAuthority(moves_notices=True),
    ]


def pattern_stages(
    *,
    rules: Detector | Sequence[Detector] | None = None,
    lifetimes: Mapping[str, Lifetime] | None = None,
    verbose_output: int = 256,
) -> list[Stage]:
    """Return the chain of the context stabilizer pattern.

    The chain expires lifetimes, masks, drops verbose tool outputs, and adds messages from the oldest to the newest.

    Args:
        rules: The detectors of personal data. None means `ctxguard.pii.STANDARD` and `ctxguard.pii.SSN`.
        lifetimes: Lifetimes of artifacts by kind or tool name; see `ExpireLifetimes`.
        verbose_output: Number of tokens above which a tool output is dropped.
    """
    from ctxguard.pii import SSN, STANDARD

    return [
        ExpireLifetimes(lifetimes),
        MaskPII(SSN | STANDARD if rules is None else rules),
        DropVerboseOutput(verbose_output),
        FillBudget(as_pattern=True),
        OrderByAuthority(moves_notices=True),
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
"""The function that builds the chain of each policy; its keyword arguments are the policy's settings."""


def policy_settings(policy: str) -> frozenset[str]:
    """Return the names of the settings that a policy takes."""
    own = inspect.signature(POLICIES[policy]).parameters.keys()
    return frozenset(own - {"settings"} | {each.name for each in fields(ChainSettings)} if "settings" in own else own)


def settings_taken(policy: str, given: Iterable[str], general: AbstractSet[str]) -> frozenset[str]:
    """Check the settings that a caller passes with a policy, and return the names of all settings of the policy.

    Args:
        policy: Name of the policy.
        given: Names of the settings that the caller passes.
        general: Names of the settings that every stabilizer takes, whatever its policy.

    Raises:
        ConfigError: If the policy is unknown, or a setting is neither one of the policy's nor a general one.
    """
    if not isinstance(policy, str) or policy not in POLICIES:
        known = ", ".join(POLICIES)
        raise ConfigError(f"unknown policy {policy!r}{nearest(policy, POLICIES)}; known are {known}", setting="policy")
    own = policy_settings(policy)
    unknown = sorted(set(given) - own - general)
    if unknown:
        raise ConfigError(
            f"policy {policy!r} takes no setting {unknown[0]!r}{nearest(unknown[0], own | general)}; "
            f"it takes {', '.join(['budget', *sorted(own | general)])}",
            setting=unknown[0],
        )
    return own


def not_taken(setting: str, known: Iterable[str]) -> ConfigError:
    """Return the error for a setting that `Stabilizer` does not take. The error says what to write instead.

    Args:
        setting: Name of the setting.
        known: Names of the settings that `Stabilizer` takes.
    """
    policy = next((each for each in POLICIES if setting in policy_settings(each)), None)
    if setting == "policy":
        remedy = "; write Stabilizer.from_policy(name, budget=…)"
    elif policy is None:
        remedy = nearest(setting, known) or f"; it takes {', '.join(['budget', *sorted(known)])}"
    else:
        remedy = f"; policies do: write Stabilizer.from_policy({policy!r}, budget=…, {setting}=…)"
    return ConfigError(f"Stabilizer takes no setting {setting!r}{remedy}", setting=setting)


def stabilizer_defaults(policy: str) -> dict[str, object]:
    """Return the settings of `Stabilizer` for which a policy has its own defaults, with these defaults.

    Only the policies that were taken from documents have such settings: the long-session chain and the context
    stabilizer pattern. Their plain transcripts contain tool outputs without calls, which the checks must allow. The
    pattern promises to keep only the system prompt and the newest message, so the checks do not require other recent
    messages.
    """
    if policy not in ("long_session", "pattern"):
        return {}
    from ctxguard.checks import ALL_CHECKS, CallsArePaired, RecentKept

    checks = [CallsArePaired(allow_bare=True) if isinstance(c, CallsArePaired) else c for c in ALL_CHECKS]
    if policy == "long_session":
        return {"checks": checks}
    return {"checks": [c for c in checks if not isinstance(c, RecentKept)], "keep_recent": 0, "keep_task": False}


def suiting(stages: Sequence[Stage], profile: ProviderProfile) -> Chain:
    """Return a chain with the stages added by which roles are ordered as a provider requires.

    Stages that the chain already contains are not added again.

    Args:
        stages: The chain.
        profile: The role rules of the provider.
    """
    from ctxguard.stages import MergeMessageRuns, SplitMergedRecords, StartWithUser
    from ctxguard.stages.arrangement import FitCalls

    chain = Chain(stages).with_missing(*([StartWithUser()] if profile.starts_with_user else []))
    if profile.alternates and len(merging := chain.with_missing(MergeMessageRuns())) > len(chain):
        chain = Chain((SplitMergedRecords(), *merging))
    return chain.with_missing(*([FitCalls(profile.call_ids)] if profile.call_ids.are_unique else []))
