"""How many input tokens a model accepts: for budgets that are a share of its window.

Libraries disagree on what a window is. genai-prices gives gpt-5 400,000 tokens, of which 128,000 can only be output;
LangChain gives it 272,000. So the models that are used most stand in a table of our own, which decides before any
library: the same share is the same budget in every adapter and on the wire. Where a provider states a limit of the
input, it is that; else the whole window, which input and output share.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, Self

from ctxguard.settings import whole_number
from ctxguard.tokens.families import FACTS, plain_name

AS_OF: Final = "2026-11-23"
"""When the table was last held against the providers' pages, as LangChain's model profiles and genai-prices record
them; `tests/tokens/test_windows.py` does it again for the versions that are installed."""
FALLBACK: Final = 128_000
"""The window of a model that nobody knows: that of most models which are served by others than their makers."""
_PATTERNS: Final = tuple((re.compile(each["models"]), each["tokens"]) for each in FACTS["window"])
"""Input tokens by the beginning of a model's plain name; the first that matches counts."""


class Window(int):
    """Hold a number of input tokens, and who says so.

    Attributes:
        source: `caller`, `table`, `framework`, `genai-prices`, or `fallback`, where nobody knows the model.
    """

    source: str

    def __new__(cls, tokens: int, source: str = "caller") -> Self:
        """Return the window of a number of tokens.

        Raises:
            ConfigError: The number is none of tokens.
        """
        own = super().__new__(cls, whole_number(tokens, "window", unit="tokens", least=1))
        own.source = source
        return own

    def to_dict(self) -> dict[str, object]:
        """Return what a report says of it."""
        return {"tokens": int(self), "source": self.source, "resolved": self.source != "fallback"}


def window_of(model: str, known: int | None = None) -> Window:
    """Return the input window of a model by its name.

    Args:
        model: The name, with or without provider and region.
        known: What a framework knows of the model, for one that is not in our table.
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
    except ImportError:  # an extra
        return None
    for name in dict.fromkeys((model, model.rpartition("/")[2])):
        try:
            _, found = data_snapshot.get_snapshot().find_provider_model(name, None, None, None)
        except LookupError:
            continue
        return found.context_window
    return None
