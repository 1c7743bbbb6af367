"""Notice middleware that stands behind the guard, and may add what the guard never sees."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from functools import partial
from typing import Final

from langchain.agents.middleware import AgentMiddleware

_PASSES_ON: Final = frozenset(
    {"AnthropicPromptCachingMiddleware", "ModelCallLimitMiddleware", "ModelFallbackMiddleware", "ModelRetryMiddleware"}
)
"""Middleware that sends the very texts that it was given."""
_WRAPS: Final = ("wrap_model_call", "awrap_model_call")
_MOST_LAYERS: Final = 32


class OrderWatch:
    """Warn once of each middleware behind the guard."""

    def __init__(self) -> None:
        self._named: set[str] = set()

    def look(self, handler: object, own: str) -> None:
        """Warn where a handler runs other middleware."""
        new = [name for name in middleware_behind(handler) if name not in self._named | _PASSES_ON | {own}]
        if new:
            self._named.update(new)
            warnings.warn(
                f"{own} does not see what {', '.join(new)} adds behind it; put the guard last in the list of "
                "middleware, or guard the model itself: ctxguard_langchain.guarded(model, …)",
                UserWarning,
                stacklevel=4,
            )


def middleware_behind(handler: object) -> list[str]:
    """Return the names of the middleware that a handler runs, the outermost first.

    LangChain composes middleware as functions within functions; other versions may show none of it.
    """
    return list(dict.fromkeys(_names(handler, _MOST_LAYERS)))[::-1]


def _names(handler: object, layers: int) -> Iterator[str]:
    for cell in getattr(handler, "__closure__", None) or ():
        try:
            held = cell.cell_contents
        except ValueError:  # not filled in yet
            continue
        method = held.func if isinstance(held, partial) else held
        owner = getattr(method, "__self__", None)
        if isinstance(owner, AgentMiddleware):
            # by the class: what the decorator `@wrap_model_call` makes of a function has a name of its own
            if any(getattr(type(owner), name, None) is getattr(method, "__func__", method) for name in _WRAPS):
                yield owner.name
        elif callable(held) and layers:
            yield from _names(held, layers - 1)
