"""Price prompts if the provider caches prefixes, and price those that plain trimming would send instead."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, NonNegativeFloat, NonNegativeInt, ValidationError

from ctxguard.errors import ConfigError, reason_of
from ctxguard.settings import extra
from ctxguard.tokens.families import CACHES

if TYPE_CHECKING:
    from ctxguard.artifacts import Artifact

Item = TypeVar("Item")
MILLION: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class PriceModel:
    """Price the input tokens of one model.

    Without a model, prices are in units of one uncached input token.

    Attributes:
        model: name of the model; empty if the price is relative.
        input: price of a token that is not cached.
        cached: price of a token read from the cache (a tenth of `input` at Anthropic and OpenAI, as of November 2026).
        written: price of a token that is written to the cache; None means the price of `input`.
        minimum: tokens a prefix needs to be cached at all.
        step: tokens by which cached prefixes grow.
        lifetime: seconds without a call after which a prefix is no longer cached.
        currency: the currency of the prices; `tokens` if they are relative.
        source: the source of the prices, for the report.
    """

    model: str = ""
    input: float = 1.0
    cached: float = 0.1
    written: float | None = None
    minimum: int = 1_024
    step: int = 128
    currency: str = "tokens"
    source: str = "relative: an uncached input token costs 1, a cached one 0.1"
    lifetime: float = 300.0

    def price(self, tokens: int, shared: int) -> float:
        """Return the price of a prompt of `tokens`, of which the first `shared` were in the previous one."""
        served = shared // self.step * self.step if shared >= self.minimum else 0
        fresh = self.input if self.written is None or tokens < self.minimum else self.written
        return (tokens - served) * fresh + served * self.cached

    def is_cold(self, before: float | None, now: float | None) -> bool:
        """Return whether the cache expired between two calls, by their times; False if these are unknown."""
        return before is not None and now is not None and now - before > self.lifetime


def common_prefix(left: Sequence[Item], right: Sequence[Item]) -> int:
    """Return how many items two lists have in common at their beginning."""
    for position, (a, b) in enumerate(zip(left, right, strict=False)):
        if a is not b and a != b:
            return position
    return min(len(left), len(right))


def price_model(model: str | None = None, table: str | Path | None = None) -> PriceModel:
    """Return the prices of a model: from the user's table, else from `genai-prices`, whose package contains them.

    Args:
        model: name of the model; None gives relative prices.
        table: a YAML file, `MODEL: {input: 3.0, cache_read: 0.3, cache_write: 3.75, minimum: 1024, step: 128,
            lifetime: 300}`, in US dollars per million tokens; only `input` is required.
    """
    if model is None:
        if table is not None:
            raise ConfigError("a price table needs the name of the model; give --model NAME", setting="model")
        return PriceModel()
    return _of_library(model) if table is None else _of_table(model, Path(table))


def _of_table(model: str, path: Path) -> PriceModel:
    try:
        table = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(
            f"the price table {path} cannot be read ({reason_of(error)}); name a YAML file", setting="prices"
        ) from error
    found = table.get(model) if isinstance(table, dict) else None
    if not isinstance(found, dict):
        known = ", ".join(map(str, table)) if isinstance(table, dict) else "nothing"
        raise ConfigError(f"the price table {path} has no prices of {model!r}; it has {known}", setting="prices")
    try:
        own = _Prices.model_validate({key: value for key, value in found.items() if value is not None})
    except ValidationError as error:
        raise ConfigError(
            f"the prices of {model!r} in {path} are numbers by {', '.join(_Prices.model_fields)}; input is required",
            setting="prices",
        ) from error
    caching = (own.minimum, max(1, own.step), own.lifetime)
    return _in_dollars(model, (own.input, own.cache_read, own.cache_write), caching, path.name)


class _Prices(BaseModel):
    """The prices of a model in a user's table, in US dollars per million tokens."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    input: NonNegativeFloat
    cache_read: NonNegativeFloat | None = None
    cache_write: NonNegativeFloat | None = None
    minimum: NonNegativeInt = 1_024
    step: NonNegativeInt = 1
    lifetime: NonNegativeFloat = 300.0


def _of_library(model: str) -> PriceModel:
    with extra("prices", "prices by model need genai-prices, or a table with --prices"):
        from genai_prices import data_snapshot
    from importlib.metadata import version

    try:
        provider, found = data_snapshot.get_snapshot().find_provider_model(model, None, None, None)
    except LookupError:
        raise ConfigError(
            f"genai-prices knows no model {model!r}; give its prices in a YAML table with --prices", setting="model"
        ) from None
    prices = found.get_prices(datetime.now(UTC))
    fresh = _base(prices.input_mtok)
    if fresh is None:
        raise ConfigError(
            f"genai-prices has no price for the input tokens of {model!r}; give --prices", setting="model"
        )
    source = f"genai-prices {version('genai-prices')}, {provider.name}, without the tiers for long prompts"
    costs = (fresh, _base(prices.cache_read_mtok), _base(prices.cache_write_mtok))
    return _in_dollars(found.id, costs, CACHES.get(provider.id, (1_024, 1, 300.0)), source)


def _in_dollars(
    model: str, costs: tuple[float, float | None, float | None], caching: tuple[int, int, float], source: str
) -> PriceModel:
    """Return prices, given per million tokens: fresh, read from a cache, written to it; and the cache's sizes."""
    fresh, cached, written = costs
    read, write = fresh if cached is None else cached, None if written is None else written / MILLION
    minimum, step, lifetime = caching
    return PriceModel(model, fresh / MILLION, read / MILLION, write, minimum, step, "USD", source, lifetime)


def _base(price: object) -> float | None:
    """Return a price; of tiered prices, the lowest."""
    found = getattr(price, "base", price)
    return float(found) if isinstance(found, (int, float, Decimal)) else None


class PlainTrim:
    """The most common alternative: at each call, send system, task, and the longest tail that fits.

    The tail consists of whole exchanges and is chosen anew at each call; evicted messages leave no trace.
    """

    def __init__(self, artifacts: Sequence[Artifact], tokens: Sequence[int], budget: int, overhead: int) -> None:
        from ctxguard.history import exchanges

        self._found = [(e.positions[0], max(e.positions)) for e in exchanges(artifacts)]
        self._fixed = {n: tokens[n] for n, a in enumerate(artifacts) if a.kind.value in ("system", "task")}
        self._sums = list(accumulate((0 if n in self._fixed else cost for n, cost in enumerate(tokens)), initial=0))
        self._budget, self._overhead = budget, overhead
        self._begin, self._before = 0, 0

    def kept(self, end: int) -> list[int]:
        """Return the positions that the prompt of the latest call has, which is after `end` messages."""
        return sorted({*self._fixed, *range(self._begin, end)})

    def call(self, end: int) -> tuple[int, int]:
        """Return the tokens of the prompt after `end` messages, and how many it shares with the previous one."""
        fixed = self._overhead + sum(tokens for n, tokens in self._fixed.items() if n < end)
        starts = [first for first, last in self._found if last < end and first >= self._begin]
        begin = next((s for s in starts if fixed + self._sums[end] - self._sums[s] <= self._budget), None)
        if begin is None:
            begin = starts[-1] if starts else self._begin
        tokens = min(self._budget, fixed + self._sums[end] - self._sums[begin])
        moved = self._sums[begin] != self._sums[self._begin]
        shared = 0 if not self._before else min(self._before, fixed if moved else self._before)
        self._begin, self._before = begin, tokens
        return tokens, shared
