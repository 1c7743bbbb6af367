"""One line for first use: `ctxguard.guard(messages, budget=8_000)`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Generic, TypeVar, cast

from ctxguard.adapting.adapter import stabilize_native
from ctxguard.adapting.registry import require_adapter
from ctxguard.artifacts import Artifact
from ctxguard.errors import HistoryError
from ctxguard.report import Report
from ctxguard.stabilizer import Stabilizer

Message = TypeVar("Message")


class Guarded(list[Message], Generic[Message]):
    """A stabilized history: a list of messages of the given kind, with the report.

    Attributes:
        report: What was done, and why.
    """

    def __init__(self, messages: Sequence[Message], report: Report) -> None:
        super().__init__(messages)
        self.report = report


def guard(
    messages: Sequence[Message],
    *,
    budget: int | str | None = None,
    policy: str = "default",
    tools: Sequence[Mapping[str, object]] | None = None,
    window: int | None = None,
    **settings: object,
) -> Guarded[Message]:
    """Return messages that fit a budget and contain no personal data, in their original format.

    Args:
        messages: The whole history up to now: messages of any installed adapter, or artifacts. It is not changed.
        budget: Tokens that the whole request may take (`8_000` or `"8k"`), or a share of the window such as `"80%"`.
        policy: The name of a policy, see `ctxguard.policies`.
        tools: The tool schemas that are sent along, which are counted.
        window: The model's context window in tokens, if the budget is a share of it.
        settings: Further settings of the policy or of `Stabilizer`; calls with the same settings share one stabilizer.

    Raises:
        AdapterError: No installed adapter knows the messages.
        BudgetExceededError: The mandatory messages do not fit.
        ConfigError: A setting is out of range, or the budget is missing.
        HistoryError: `messages` is not a list.
    """
    if isinstance(messages, (str, bytes, Mapping)) or not isinstance(messages, Sequence):
        raise HistoryError(f"guard takes a list of messages, not {type(messages).__name__}; write [{{'role': …}}]")
    stabilizer = _stabilizer(policy, budget, settings)
    if messages and all(isinstance(message, Artifact) for message in messages):
        artifacts = cast("Sequence[Artifact]", messages)
        result = stabilizer.stabilize(artifacts, tools=tools, window=window)
        return Guarded(cast("Sequence[Message]", result.artifacts), result.report)
    native, report = stabilize_native(stabilizer, require_adapter(messages), messages, tools=tools, window=window)
    return Guarded(cast("Sequence[Message]", native), report)


def _stabilizer(policy: str, budget: int | str | None, settings: Mapping[str, object]) -> Stabilizer:
    try:
        return _shared_stabilizer(policy, budget, tuple(sorted(settings.items())))
    except TypeError:  # a setting that cannot be hashed, such as a list of rules
        return Stabilizer.from_policy(policy, budget=budget, **settings)


# a stabilizer caches its results for a conversation: a new one at every call would start over
@lru_cache(maxsize=32)
def _shared_stabilizer(policy: str, budget: int | str | None, settings: tuple[tuple[str, Any], ...]) -> Stabilizer:
    return Stabilizer.from_policy(policy, budget=budget, **dict(settings))
