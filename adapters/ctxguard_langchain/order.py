"""Warn about middleware that runs after the guard, because the guard does not see what it adds to a request."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from functools import partial
from typing import Final

from langchain.agents.middleware import AgentMiddleware

_PASSES_ON: Final = frozenset(
    {"AnthropicPromptCachingMiddleware", "ModelCallLimitMiddleware", "ModelFallbackMiddleware", "ModelRetryMiddleware"}
)
"""Middleware that adds no text to a request."""
_WRAPS: Final = ("wrap_model_call", "awrap_model_call")
_MOST_LAYERS: Final = 32  # maximum depth of nested closures that are searched


class OrderWatch:
    """Warns once about each middleware that runs after the guard."""

    def __init__(self) -> None:
        self._named: set[str] = set()

    def look(self, handler: object, own: str) -> None:
        """Warn if a handler runs other middleware. `own` is the name of the guard."""
        new = [name for name in middleware_behind(handler) if name not in self._named | _PASSES_ON | {own}]
        if new:
            self._named.update(new)
            warnings.warn(
                f"{own} does not see what {', '.join(new)} adds after it; put the guard last in the list of "
                "middleware, or guard the model itself: ctxguard_langchain.guarded(model, …)",
                UserWarning,
                stacklevel=4,
            )


def middleware_behind(handler: object) -> list[str]:
    """Return the names of the middleware that a handler runs, the outermost first.

    LangChain composes middleware as nested closures, which are searched here. Other versions may reveal none.
    """
    return list(dict.fromkeys(_names(handler, _MOST_LAYERS)))[::-1]


def _names(handler: object, layers: int) -> Iterator[str]:
    for cell in getattr(handler, "__closure__", None) or ():
        try:
            value = cell.cell_contents
        except ValueError:  # the cell is still empty
            continue
        method = value.func if isinstance(value, partial) else value
        owner = getattr(method, "__self__", None)
        if isinstance(owner, AgentMiddleware):
            # compared by class, because the decorator `@wrap_model_call` renames functions
            if any(getattr(type(owner), name, None) is getattr(method, "__func__", method) for name in _WRAPS):
                yield owner.name
        elif callable(value) and layers:
            yield from _names(value, layers - 1)
