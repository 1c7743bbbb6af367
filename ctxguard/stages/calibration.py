"""Correct our token counts by the counts that the provider reported."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

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
