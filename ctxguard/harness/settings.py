"""The settings of a sweep, which replays sessions under every combination of values, and their labels."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite, prod
from typing import Final

from ctxguard.errors import ConfigError

MOST_SETTINGS: Final = 64  # maximum number of combinations in a sweep
Value = str | int | float


def parse_sweep(text: str | None) -> dict[str, list[Value]]:
    """Parse a sweep such as `budget=4k,8k target=0.4:0.8:0.2 policy=agent,recall` into the values of each setting.

    `A:B` means five values from A to B, `A:B:STEP` means steps of STEP, and `4k` means 4,000.
    """
    swept: dict[str, list[Value]] = {}
    for part in (text or "").split():
        name, _, values = part.partition("=")
        if not name or not values or not all(values.split(",")):
            raise ConfigError(f"a sweep is NAME=VALUE,VALUE …, not {part!r}", setting="sweep")
        swept[name] = [each for value in values.split(",") for each in _range(value)]
    count = prod(map(len, swept.values()))
    if count > MOST_SETTINGS:
        raise ConfigError(f"the sweep has {count} combinations, and at most {MOST_SETTINGS} are run", setting="sweep")
    return swept


def _range(value: str) -> list[Value]:
    if ":" not in value:
        return [number(value)]
    bounds = [number(part) for part in value.split(":")]
    if len(bounds) > 3 or not all(isinstance(b, (int, float)) for b in bounds):
        raise ConfigError(f"a range is FROM:TO or FROM:TO:STEP in numbers, not {value!r}", setting="sweep")
    first, last, *rest = map(float, bounds)
    step = rest[0] if rest else (last - first) / 4
    if step <= 0 or last <= first or (last - first) / step > MOST_SETTINGS:
        raise ConfigError(f"the range {value!r} has no steps, or more than {MOST_SETTINGS}", setting="sweep")
    walked = [round(first + n * step, 10) for n in range(int((last - first) / step + 1e-9) + 1)]
    return [int(n) if n == int(n) and all(isinstance(b, int) for b in bounds) else n for n in walked]


def number(text: str) -> Value:
    """Parse a number, where `4k` means 4,000; return a string that is not a finite number unchanged."""
    is_thousand = text[-1:].lower() == "k"
    try:
        value = float(text[:-1] if is_thousand else text) * (1_000 if is_thousand else 1)
    except ValueError:
        return text
    if not isfinite(value):
        return text
    return int(value) if value.is_integer() and (is_thousand or "." not in text) else value


def label_of(options: Mapping[str, str | int | float | None]) -> str:
    """Return a one-line label for a combination of settings."""
    first = {"policy": options.get("policy"), "budget": options.get("budget")}
    rest = {name: value for name, value in options.items() if name not in first and value is not None}
    words = (
        f"{name} {value:,}" if isinstance(value, int) else f"{name} {value}"
        for name, value in {**first, **rest}.items()
    )
    return ", ".join(words)
