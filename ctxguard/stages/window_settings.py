"""The settings of a window with their defaults and ranges, and the correction of its counts by reported ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
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


_LEAST_COUNTED: Final = 500
"""Prompts with fewer tokens are not compared, because too many of their tokens are around messages (roles,
separators)."""
_MOST_CORRECTION: Final = 2.5  # a larger factor means that another prompt was counted: no tokenizers differ so much
_PLAIN_EXCESS: Final = 0.2
"""A reported count that exceeds ours by at most this share of the budget is trusted to be that of the same prompt."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """How the token counts that the provider reported for prompts compare with ours.

    A reported count slightly above ours is accepted, because tokenizers differ. A much larger count may belong to
    another prompt, such as a history that was sent without ctxguard, or that was not yet cut. In that case, the
    correction is computed from the growth of both counts between two replies.

    Attributes:
        correction: Number of tokens that the provider counts for each token that we count, from 1 to 2.5.
        latest: The reported count and our count of the latest comparison of whole prompts; None before the first.
        anchor: The reported count and our count of the first comparison since the prompt last changed other than at its
            end. Growth is measured from there. None if there was no comparison since.
    """

    correction: float = 1.0
    latest: tuple[int, int] | None = None
    anchor: tuple[int, int] | None = None

    def with_comparison(self, reported: int, counted: int, budget: int, *, is_exact: bool = True) -> Calibration:
        """Return the calibration after one more comparison.

        Args:
            reported: Number of input tokens that the provider reported for a call.
            counted: Number of tokens that we count in the prompt of that call.
            budget: Number of tokens that a prompt may have.
            is_exact: Whether `counted` is the count of the whole prompt. After a cut it is an upper bound, because
                shortened texts are only known by their limits. Then only the growth since the anchor is compared, to
                which both counts add the same.
        """
        if counted < _LEAST_COUNTED:
            return self
        correction = self.correction
        if is_exact and reported - counted <= _PLAIN_EXCESS * budget:
            correction = reported / counted
        # The reported count may belong to another prompt; the growth since the anchor is reliable even then.
        elif self.anchor is not None and counted - self.anchor[1] >= _LEAST_COUNTED:
            correction = (reported - self.anchor[0]) / (counted - self.anchor[1])
        return Calibration(
            # Never below 1: too high a count only wastes tokens, but after too low a count the provider may refuse.
            min(_MOST_CORRECTION, max(1.0, correction)),
            (reported, counted) if is_exact else self.latest,
            self.anchor or (reported, counted),
        )

    def begun_anew(self) -> Calibration:
        """Return the calibration after something in the prompt was shortened, evicted, or recalled.

        From then on, growth is measured from the next comparison.
        """
        return self if self.anchor is None else replace(self, anchor=None)

    def to_details(self) -> dict[str, int | float | None]:
        """Return the latest comparison, for the details of a report; an empty dict before the first comparison."""
        if self.latest is None:
            return {}
        reported, counted = self.latest
        error = round(counted / reported - 1, 4) if reported else None
        return {"reported": reported, "counted": counted, "error": error}
