"""Remember views of texts: the same text with the same settings always has the same view."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from ctxguard.tokens.text_cache import TextCache

__all__ = ["ViewCache"]

_WAYS = 8
"""Views of one text that are kept at a time."""


class ViewCache:
    """Remember views by their text and by how they were made, in bounded memory.

    Args:
        max_chars: characters of texts, as for `TextCache`.
    """

    __slots__ = ("_views",)

    def __init__(self, max_chars: int) -> None:
        self._views: TextCache[dict[Hashable, str]] = TextCache(max_chars)

    def view(self, text: str, way: Hashable, make: Callable[[], str]) -> str:
        """Return the view that was made of a text in that way, or make it.

        Args:
            text: what is shown.
            way: everything else that the view depends on, the counter itself included.
            make: makes the view.
        """
        known = self._views.get(text) or {}
        if way in known:
            return known[way]
        made = make()
        self._views.put(text, {**known, way: made} if len(known) < _WAYS else {way: made})
        return made
