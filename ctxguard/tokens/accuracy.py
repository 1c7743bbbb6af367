"""The measured counting error for each model family, and the headroom that follows from it.

`python benchmarks/usage.py --measured` computes the table `measured` of `data/models.toml` from recorded requests whose
input tokens the provider reported; a test compares the table with these requests. Requests with media, or with tools
that the provider runs, are left out. The margin of a family covers the error of 98% of its recorded requests, but has
at least a minimum share (`LEAST` in the benchmark), since few requests cannot show that an error is rare. If requests
of more than 10,000 tokens were recorded, the margin also covers 95% of these (`LONG` in the benchmark).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from ctxguard.errors import ConfigError
from ctxguard.tokens.families import FACTS, Family

Headroom: TypeAlias = int | float | Literal["measured"]
"""The part of a budget to keep free: a number of tokens, a share, or the measured error for the model's family."""


@dataclass(frozen=True, slots=True)
class Margin:
    """The headroom for an estimated count: a share of the count, and a fixed number of tokens."""

    share: float = 0.0
    flat: int = 0

    def tokens(self, counted: int) -> int:
        """Return the number of tokens to keep free in addition to `counted` counted tokens."""
        return math.ceil(self.share * counted) + self.flat if counted else 0

    def narrowed(self) -> Margin:
        """Return a third of the margin, which is enough once the provider's own counts are known."""
        return Margin(self.share / 3, self.flat // 3)

    def within(self, budget: int) -> int:
        """Return the number of tokens of a budget to keep free, so that the rest plus its margin fits the budget."""
        return math.ceil((self.share * budget + self.flat) / (1 + self.share)) if self.share or self.flat else 0


@dataclass(frozen=True, slots=True)
class Measured:
    """The measured error of the counts for a family.

    Attributes:
        requests: Number of recorded requests, without those that contain media or the provider's own tools.
        within: Share of the requests whose count is within 5% or 10 tokens of the reported count.
        under: Share of the requests whose count is too low by more than 5% and 20 tokens.
        bias: Sum of our counts, divided by the sum of the reported counts.
        margin: Headroom that covers the error of 98% of the requests.
    """

    requests: int
    within: float
    under: float
    bias: float
    margin: Margin

    def __str__(self) -> str:
        if abs(self.bias - 1) < 0.005:
            side = "errs to neither side"
        else:
            side = f"errs on the {'high' if self.bias > 1 else 'low'} side by {abs(self.bias - 1):.0%} in the sum"
        return f"within 5% or 10 tokens for {self.within:.0%} of {self.requests} recorded requests, {side}"


MEASURED: Final = {
    name: Measured(**{**own, "margin": Margin(**own["margin"])}) for name, own in FACTS["measured"].items()
}
"""The measured error by family, from `data/models.toml`."""
NO_MODEL: Final = "no model is named, so this is no provider's count"
_FEW: Final = 20
"""Number of recorded requests of a family below which its margin is widened."""
_ESTIMATED: Final = 0.12
"""Share that an estimate by byte classes adds to a margin: its error against o200k_base on prose, code, and JSON."""
_WIDE: Final = Margin(0.15, 30)
"""The headroom for a family without recorded requests."""


def valid_headroom(headroom: object) -> Headroom:
    """Validate and return a headroom, which is `measured`, a number of tokens, or a share below 1.

    Raises:
        ConfigError: If `headroom` is none of these.
    """
    if headroom == "measured":
        return "measured"
    if isinstance(headroom, (int, float)) and not isinstance(headroom, bool):
        if headroom >= 0 and float(headroom).is_integer():
            return int(headroom)
        if 0 < headroom < 1:
            return headroom
    raise ConfigError(
        f"headroom is 'measured', a number of tokens, or a share below 1, not {headroom!r}", setting="headroom"
    )


def kept_free(counter: object, headroom: Headroom, budget: int) -> tuple[int, int]:
    """Return the number of tokens of a budget to keep free, and how many of these are released later.

    The latter are released once the history contains the provider's counts, because then only new messages are
    uncertain.

    Args:
        counter: Token counter, which knows the model's family if a model was named.
        headroom: Headroom (see `Headroom`). A number of tokens or a share stays free whatever the history contains.
        budget: Token budget of the whole request.

    Raises:
        ConfigError: If the headroom is as large as the budget.
    """
    if headroom == "measured":
        margin = margin_of(counter)
        kept = min(margin.within(budget), budget - 1)
        return kept, max(0, kept - margin.narrowed().within(budget))
    if isinstance(headroom, float):
        return min(math.ceil(headroom * budget), budget - 1), 0
    if headroom >= budget:
        raise ConfigError(f"a headroom of {headroom} leaves nothing of a budget of {budget}", setting="headroom")
    return headroom, 0


def accuracy_of(family: Family, *, is_measured: bool) -> str:
    """Return a phrase that describes the counting error of a family.

    Args:
        family: Family of the model.
        is_measured: Whether a tokenizer counts texts, as in the measurements. Otherwise, texts are estimated by bytes.
    """
    measured = MEASURED.get(family.kin or family.name)
    if measured is not None:
        said = str(measured) if is_measured else f"by byte classes, which adds about 12%; with a vocabulary {measured}"
        return f"estimated: {said}"
    if family.inherits is not None:
        return f"not measured: no requests were recorded; counted like {family.inherits}"
    return "not measured: no requests were recorded"


def margin_of(counter: object) -> Margin:
    """Return the margin of a counter. It is 0 if the counter knows no model."""
    given = getattr(counter, "margin", None)
    if isinstance(given, Margin):
        return given
    family: Family | None = getattr(counter, "family", None)
    if family is None:
        return Margin()
    measured = MEASURED.get(family.kin or family.name)
    margin = _WIDE if measured is None else measured.margin
    if measured is not None and measured.requests < _FEW:
        margin = Margin(margin.share + 0.05, margin.flat + 10)
    is_exact = getattr(getattr(counter, "base", None), "exact", False)
    return margin if is_exact else Margin(margin.share + _ESTIMATED, margin.flat)
