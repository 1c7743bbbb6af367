"""The settings of `StableWindow` with their defaults and ranges, for all places where a window can be configured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Final, Literal, TypedDict

from ctxguard.errors import ConfigError
from ctxguard.settings import one_of

OnOverflow = Literal["raise", "bound"]
_TARGET: Final = 0.65  # chosen on recordings, see docs/decisions/0012_window.md
SMALL: Final = 500
"""Number of available tokens up to which a cut frees no more than necessary. With so few tokens, nearly every step
causes a cut in any case, and the system prompt makes up most of the cost."""


class WindowOptions(TypedDict, total=False):
    """The fields of `WindowSettings` as keyword arguments, for type checkers and editors."""

    target: float | None
    trail: float
    output_share: float
    on_overflow: OnOverflow


@dataclass(frozen=True)
class WindowSettings:
    """The settings of a `StableWindow`.

    `Stabilizer`, `StableWindow`, the policies, and the section `stabilizer` of the configuration accept these fields by
    name. The defaults were chosen by replaying recorded sessions, see `docs/decisions/0012_window.md`.

    The available tokens are the budget minus tool schemas, system prompt, task, and pins. For `target` and `trail`, the
    last user message is subtracted, too.

    Attributes:
        target: Share of the available tokens to which a cut shrinks the context, above 0 and at most 1. A lower share
            makes cuts rarer. None means 0.65, or 500 tokens if these are more.
        trail: Share of the tokens kept at a cut that the trail (the summary of evicted exchanges) may take, from 0 (no
            trail) to below 1.
        output_share: Share of the available tokens that a tool output may take once the model has replied to it. Larger
            outputs are replaced by a view of that size; smaller ones stay whole until a cut. Parallel outputs share
            twice this limit.
        on_overflow: What happens if the mandatory messages exceed the budget even after tool outputs, arguments, and
            older messages were shortened: `raise` a `BudgetExceededError`, or `bound` (shorten) the last user message
            and the task as well.

    Raises:
        ConfigError: If a setting is out of range.
    """

    target: float | None = None
    trail: float = 0.1
    output_share: float = 0.1
    on_overflow: OnOverflow = "raise"

    def __post_init__(self) -> None:
        if self.target is not None:
            _require_share("target", "above 0 and at most 1", self.target, lambda share: 0 < share <= 1)
        _require_share("trail", "from 0 to below 1", self.trail, lambda share: 0 <= share < 1)
        _require_share("output_share", "above 0 and at most 1", self.output_share, lambda share: 0 < share <= 1)
        one_of(self.on_overflow, OnOverflow, "on_overflow")

    def kept_of(self, tokens: int) -> int:
        """Return how many of `tokens`, the number of available tokens, may be in use after a cut."""
        return int(self.target * tokens) if self.target is not None else max(int(_TARGET * tokens), min(tokens, SMALL))


WINDOW_SETTINGS: Final = tuple(each.name for each in fields(WindowSettings))
"""The names of the settings of a window."""


def _require_share(setting: str, range_text: str, value: object, holds: Callable[[float], bool]) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not holds(value):
        raise ConfigError(f"{setting} is a share {range_text}, not {value!r}", setting=setting)
