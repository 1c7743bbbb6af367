"""What prompts cost where the provider caches prefixes: the part that extends the previous prompt is cheap."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

__all__ = ["PriceModel", "common_prefix"]

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class PriceModel:
    """Price input tokens, in units of one uncached input token.

    Attributes:
        cached: price of a token read from the cache (a tenth at Anthropic and OpenAI, as of November 2026).
        minimum: tokens a prefix needs to be cached at all.
        step: tokens by which cached prefixes grow.
    """

    cached: float = 0.1
    minimum: int = 1_024
    step: int = 128

    def price(self, tokens: int, shared: int) -> float:
        """Return the price of a prompt of `tokens` of which the first `shared` stood in the previous one."""
        served = shared // self.step * self.step if shared >= self.minimum else 0
        return tokens - served + served * self.cached


def common_prefix(left: Sequence[Item], right: Sequence[Item]) -> int:
    """Return how many items two lists have in common at their beginning."""
    for position, (a, b) in enumerate(zip(left, right, strict=False)):
        if a is not b and a != b:
            return position
    return min(len(left), len(right))
