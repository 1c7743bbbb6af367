"""Price prompts under provider-side prefix caching, and choose what a rolling window would send instead."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from itertools import accumulate, chain
from pathlib import Path
from typing import Final, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, NonNegativeFloat, NonNegativeInt, PositiveInt, ValidationError

from ctxguard.artifacts import Artifact, Kind
from ctxguard.errors import ConfigError, reason_of
from ctxguard.history import AUTHORITY, exchanges
from ctxguard.settings import extra
from ctxguard.tokens.families import CACHES

Item = TypeVar("Item")
MILLION: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class PriceModel:
    """The prices of one model's input tokens, and how its provider caches prefixes.

    Without a model, prices are relative: one uncached input token costs 1.

    Attributes:
        model: Name of the model; empty if prices are relative.
        input: Price of a token that is not cached.
        cached: Price of a token read from the cache (a tenth of `input` at Anthropic and OpenAI, as of November 2026).
        written: Price of a token that is written to the cache; None means the price of `input`.
        minimum: Minimum number of tokens in a prefix that is cached.
        step: The length of a cached prefix is a multiple of this number of tokens.
        lifetime: Seconds without a call after which a prefix is no longer cached.
        currency: Currency of the prices; `tokens` if they are relative.
        source: Source of the prices, for the report.
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
        """Return the price of a prompt of `tokens` tokens whose first `shared` tokens were in the previous prompt."""
        served = shared // self.step * self.step if shared >= self.minimum else 0
        fresh = self.input if self.written is None or tokens < self.minimum else self.written
        return (tokens - served) * fresh + served * self.cached

    def is_cold(self, before: float | None, now: float | None) -> bool:
        """Return whether the cache expired between two calls at these times, in seconds; False if a time is unknown."""
        return before is not None and now is not None and now - before > self.lifetime


def common_prefix(left: Sequence[Item], right: Sequence[Item]) -> int:
    """Return the number of equal items at the beginning of two sequences."""
    for position, (a, b) in enumerate(zip(left, right, strict=False)):
        if a is not b and a != b:
            return position
    return min(len(left), len(right))


def price_model(model: str | None = None, table: str | Path | None = None) -> PriceModel:
    """Return the prices of a model, from the user's table or else from the data in the package `genai-prices`.

    Args:
        model: Name of the model; None means relative prices.
        table: YAML file, `MODEL: {input: 3.0, cache_read: 0.3, cache_write: 3.75, minimum: 1024, step: 128, lifetime:
            300}`, in US dollars per million tokens. Only `input` is required.

    Raises:
        ConfigError: If there are no prices for the model, or the table cannot be used.
    """
    if model is None:
        if table is not None:
            raise ConfigError("a price table needs the name of the model; give --model NAME", setting="model")
        return PriceModel()
    return _of_library(model) if table is None else _of_table(model, Path(table))


class _Prices(BaseModel):
    """The prices of a model in US dollars per million tokens, and how its provider caches prefixes."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    input: NonNegativeFloat
    cache_read: NonNegativeFloat | None = None
    cache_write: NonNegativeFloat | None = None
    minimum: NonNegativeInt = 1_024
    step: PositiveInt = 1
    lifetime: NonNegativeFloat = 300.0

    def of(self, model: str, source: str) -> PriceModel:
        """Convert the prices to a price model, in US dollars per token."""
        read = self.input if self.cache_read is None else self.cache_read
        written = None if self.cache_write is None else self.cache_write / MILLION
        costs = (self.input / MILLION, read / MILLION, written)
        return PriceModel(model, *costs, self.minimum, self.step, "USD", source, self.lifetime)


def _of_table(model: str, path: Path) -> PriceModel:
    try:
        table = yaml.safe_load(path.read_text(encoding="utf-8"))
        known = table if isinstance(table, dict) else {}
        if model in known:
            return _Prices.model_validate(known[model]).of(model, path.name)
        why = f"has no prices of {model!r}; it has {', '.join(map(str, known)) or 'nothing'}"
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        why = f"cannot be read ({reason_of(error)})"
    except ValidationError as error:
        why = f"is wrong at {'.'.join(map(str, (model, *error.errors()[0]['loc'])))}"
    form = f"MODEL: {{{', '.join(_Prices.model_fields)}}}, in numbers"
    raise ConfigError(f"the price table {path} {why}; name a YAML file, {form}", setting="prices")


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
    fresh, read, written = map(_base, (prices.input_mtok, prices.cache_read_mtok, prices.cache_write_mtok))
    if fresh is None:
        raise ConfigError(
            f"genai-prices has no price for the input tokens of {model!r}; give --prices", setting="model"
        )
    caching = dict(zip(("minimum", "step", "lifetime"), CACHES.get(provider.id, ()), strict=False))
    own = _Prices.model_validate({"input": fresh, "cache_read": read, "cache_write": written, **caching})
    return own.of(
        found.id, f"genai-prices {version('genai-prices')}, {provider.name}, without the tiers for long prompts"
    )


def _base(price: object) -> float | None:
    """Return a price as a number; for tiered prices, the price of the first tier."""
    found = getattr(price, "base", price)
    return float(found) if isinstance(found, (int, float, Decimal)) else None


class RollingWindow:
    """The most common alternative to ctxguard: system prompts, task, and the longest valid tail of the history.

    The tail is chosen anew at each call and consists of whole tool exchanges. If it begins within a turn, the user
    message that opened the turn is sent before it. Evicted messages leave no trace.

    Args:
        artifacts: All artifacts of the session.
        tokens: Number of tokens in each artifact.
        available: Number of tokens available for the messages of a prompt.
    """

    def __init__(self, artifacts: Sequence[Artifact], tokens: Sequence[int], available: int) -> None:
        self._tokens, self._available = tokens, available
        self._fixed = [n for n, artifact in enumerate(artifacts) if artifact.kind in AUTHORITY]
        units = (exchange.positions for exchange in exchanges(artifacts))
        self._units = [unit for unit in units if artifacts[unit[0]].kind not in AUTHORITY]
        users = (n if artifacts[unit[0]].kind is Kind.USER else -1 for n, unit in enumerate(self._units))
        self._openers = list(accumulate(users, max))

    def kept(self, end: int) -> list[int] | None:
        """Return the positions that the window keeps of the first `end` messages; None if no valid prompt fits."""
        fixed = [n for n in self._fixed if n < end]
        units = [[n for n in unit if n < end] for unit in self._units if unit[0] < end]
        used, best = self._cost(fixed), None
        for number in reversed(range(len(units))):
            opener = self._openers[number]
            begin = units[opener] if 0 <= opener < number else []
            used += self._cost(units[number])
            if used > self._available:
                break
            if used + self._cost(begin) <= self._available and (opener >= 0 or number == 0):
                best = [begin, *units[number:]]
        return None if best is None else sorted(chain(fixed, *best))

    def _cost(self, positions: Sequence[int]) -> int:
        return sum(self._tokens[n] for n in positions)
