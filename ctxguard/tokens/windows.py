"""How many input tokens a model accepts: for budgets that are a share of its window.

Libraries disagree on what a window is. genai-prices gives gpt-5 400,000 tokens, of which 128,000 can only be output;
LangChain gives it 272,000. So the most common models are in a table of our own, which takes precedence over any
library: the same share is the same budget in every adapter and on the wire. If a provider states a limit of the input,
the table has that; otherwise the whole window, which input and output share.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, Self

from ctxguard.settings import whole_number
from ctxguard.tokens.families import FACTS, plain_name

AS_OF: Final = "2026-11-23"
"""Date of the last comparison of the table with the providers' pages, as LangChain's model profiles and genai-prices
record them; `tests/tokens/test_windows.py` repeats it for the versions that are installed."""
FALLBACK: Final = 128_000
"""The window of an unknown model: that of most models that are hosted by others than their makers."""
_PATTERNS: Final = tuple((re.compile(each["models"]), each["tokens"]) for each in FACTS["window"])
"""Input tokens by the beginning of a model's plain name; the first that matches counts."""


class Window(int):
    """A number of input tokens, and its source.

    Attributes:
        source: `caller`, `table`, `framework`, `genai-prices`, or `fallback`, if the model is unknown.
    """

    source: str

    def __new__(cls, tokens: int, source: str = "caller") -> Self:
        """Return the window of a number of tokens.

        Raises:
            ConfigError: The number is not a number of tokens.
        """
        own = super().__new__(cls, whole_number(tokens, "window", unit="tokens", least=1))
        own.source = source
        return own

    def to_dict(self) -> dict[str, object]:
        """Return the size, its source, and whether the model was recognized, for a report."""
        return {"tokens": int(self), "source": self.source, "resolved": self.source != "fallback"}


def window_of(model: str, known: int | None = None) -> Window:
    """Return the input window of a model by its name.

    Args:
        model: The name, with or without provider and region.
        known: The window that a framework states for the model, for one that is not in our table.
    """
    name = plain_name(model)
    tokens = next((tokens for pattern, tokens in _PATTERNS if pattern.match(name)), None)
    if tokens is not None:
        return Window(tokens, "table")
    if known:
        return Window(known, "framework")
    priced = _of_prices(model.lower())
    return Window(FALLBACK, "fallback") if priced is None else Window(priced, "genai-prices")


@lru_cache(maxsize=256)
def _of_prices(model: str) -> int | None:
    try:
        from genai_prices import data_snapshot
    except ImportError:  # an optional dependency
        return None
    for name in dict.fromkeys((model, model.rpartition("/")[2])):
        try:
            _, found = data_snapshot.get_snapshot().find_provider_model(name, None, None, None)
        except LookupError:
            continue
        return found.context_window
    return None
