"""Correct our token counts by those that the provider reported."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

_LEAST_COUNTED: Final = 500
"""Tokens below which a comparison is unreliable: the framing of messages dominates."""
_MOST_CORRECTION: Final = 2.5  # a larger one would be another prompt's, not a tokenizer's
_PLAIN_EXCESS: Final = 0.2
"""Share of the budget by which a reported count may exceed ours and still be that of the same prompt for certain."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """How the provider's reported counts compare with ours.

    A reported count slightly above ours is accepted: the tokenizer or framing differs. A much larger one may belong to
    another prompt, such as a longer history that was sent without ctxguard, or one that was cut since. Then only the
    growth from one reply to the next shows how the provider counts.

    Attributes:
        correction: the provider's tokens for each token that we count, from 1 to 2.5.
        latest: reported and counted tokens of the latest comparison; None before the first.
        anchor: reported and counted tokens of the first comparison since the last cut, from which growth is measured.
    """

    correction: float = 1.0
    latest: tuple[int, int] | None = None
    anchor: tuple[int, int] | None = None

    def compared(self, reported: int, counted: int, budget: int) -> Calibration:
        """Return the calibration after one more comparison.

        Args:
            reported: input tokens that the provider reported for a call.
            counted: our count of that call's prompt.
            budget: tokens that the prompt may take.
        """
        if counted < _LEAST_COUNTED:
            return self
        correction = self.correction
        if reported - counted <= _PLAIN_EXCESS * budget:
            correction = reported / counted
        # A count far above ours may belong to another prompt. The growth between two replies is reliable even then.
        elif self.anchor is not None and counted - self.anchor[1] >= _LEAST_COUNTED:
            correction = (reported - self.anchor[0]) / (counted - self.anchor[1])
        return Calibration(
            # Never below 1: a count that is too high only wastes tokens; one that is too low makes the provider refuse.
            min(_MOST_CORRECTION, max(1.0, correction)),
            (reported, counted),
            self.anchor or (reported, counted),
        )

    def after_cut(self) -> Calibration:
        """Return the calibration after a cut: growth is measured anew."""
        return replace(self, anchor=None)

    def told(self) -> dict[str, int | float | None]:
        """Return the latest comparison for the report's details; empty before the first."""
        if self.latest is None:
            return {}
        reported, counted = self.latest
        error = round(counted / reported - 1, 4) if reported else None
        return {"reported": reported, "counted": counted, "error": error}
