"""The number of input tokens that each model accepts, for budgets that are a share of the model's window.

Libraries disagree on what a window is. genai-prices states 400,000 tokens for gpt-5, of which 128,000 can only be
output; LangChain states 272,000. Therefore `data/models.toml` lists the most common models and takes precedence over
any library, so that the same share is the same budget in every adapter and in the proxy. If a provider states a limit
for input, the table contains that limit; otherwise it contains the whole window, which input and output share.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, Self

from ctxguard.settings import whole_number
from ctxguard.tokens.families import FACTS, plain_name

AS_OF: Final = "2026-11-23"
"""Date on which the table was last compared with LangChain's model profiles and genai-prices, which record the
providers' pages. `tests/tokens/test_windows.py` repeats the comparison for the installed versions."""
FALLBACK: Final = 128_000
"""The window assumed for an unknown model. Most models that are not hosted by their makers have this window."""
_PATTERNS: Final = tuple((re.compile(each["models"]), each["tokens"]) for each in FACTS["window"])
"""Number of input tokens by a pattern for the beginning of a model's plain name; the first match counts."""


class Window(int):
    """A number of input tokens, with its source.

    Attributes:
        source: `caller`, `table`, `framework`, `genai-prices`, or, if the model is unknown, `fallback`.
    """

    source: str

    def __new__(cls, tokens: int, source: str = "caller") -> Self:
        """Create the window.

        Args:
            tokens: Number of input tokens.
            source: Source of the number.

        Raises:
            ConfigError: If `tokens` is not a positive whole number.
        """
        own = super().__new__(cls, whole_number(tokens, "window", unit="tokens", least=1))
        own.source = source
        return own

    def to_dict(self) -> dict[str, object]:
        """Return the number of tokens, its source, and whether the model was recognized, for a report."""
        return {"tokens": int(self), "source": self.source, "resolved": self.source != "fallback"}


def window_of(model: str, known: int | None = None) -> Window:
    """Return the input window of a model.

    Args:
        model: Name of the model, with or without provider and region.
        known: Window that a framework states for the model, which is used if the table does not contain the model.
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
