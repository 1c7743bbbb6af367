"""Iterate over the texts of a JSON body: which may be masked, which may only be searched, and which are data.

A value under an unknown key is a text: it is masked if a rule matches. Ids, names and links refer to something, and
signatures cover something, so they are searched and never changed.
"""

from __future__ import annotations

import marshal
import math
from collections.abc import Iterator
from enum import Enum, auto
from typing import Any, Final, NamedTuple, TypeAlias, cast

from ctxguard.adapting.extra_fields import FIXED, is_payload
from ctxguard.adapting.fields import Path
from ctxguard.tokens.text_cache import TextCache


class Use(Enum):
    """The purpose of a text."""

    TEXT = auto()
    FIXED = auto()


class TextPlace(NamedTuple):
    """The place of a JSON value, linked to the place of its container.

    Attributes:
        key: Its key or index in the container; the path of the value itself for the outermost one.
        around: The place of the list or object; None for the outermost one.
    """

    key: str | int | Path
    around: TextPlace | None = None

    @property
    def path(self) -> Path:
        """The keys of the path to it, from the outermost on."""
        keys: list[str | int] = []
        place = self
        while place.around is not None:
            keys.append(cast("str | int", place.key))
            place = place.around
        return (*cast("Path", place.key), *reversed(keys))


PlacedText: TypeAlias = tuple[TextPlace, str, Use]

_NAMED_FIELDS: Final = frozenset({"properties", "$defs", "definitions", "patternProperties"})
"""Keys of a JSON schema whose values are named by the user, so that these names have no meaning as keys."""
_LEAST_CARD: Final = 10**12
"""Smallest JSON number that is searched: no card number is shorter, and digits alone reveal no other kind."""
_LEAST_PAYLOAD: Final = 256
"""Length from which on a text that refers to something may be base64 data, which is not readable text."""


def texts_of(value: object, path: Path = (), *, use: Use = Use.TEXT) -> Iterator[PlacedText]:
    """Yield the texts of a JSON value with their places; the keys of its objects are texts, too, and fixed.

    The iteration uses its own stack and links each place to its container: a body that is nested 300 levels deep takes
    no longer than a flat one of the same size. A long number is returned with its key before it; it is only searched,
    because a masked one would have another type.
    """
    stack: list[tuple[TextPlace, object, Use]] = [(TextPlace(path), value, use)]
    while stack:
        place, value, use = stack.pop()
        last = path[-1] if place.around is None and path else place.key
        if isinstance(value, str):
            if use is Use.TEXT or not is_payload(value, least=_LEAST_PAYLOAD):
                yield place, value, use
        elif isinstance(value, (int, float)) and use is Use.TEXT and _LEAST_CARD <= value < math.inf:
            yield place, f"{last or ''}: {value:.0f}", Use.FIXED
        elif isinstance(value, list):
            stack += [(TextPlace(number, place), member, use) for number, member in enumerate(value)][::-1]
        elif isinstance(value, dict):
            names_fields = last in _NAMED_FIELDS
            members: list[tuple[TextPlace, object, Use]] = []
            for key, member in value.items():
                within = TextPlace(key, place)
                yield within, key, Use.FIXED
                is_fixed = key in FIXED and not names_fields
                members.append((within, member, Use.FIXED if is_fixed else Use.TEXT))
            stack += reversed(members)


class Values:
    """Recognize JSON values that were seen before, so that cached results apply to them.

    Histories grow at their end: nearly every message of a request was in the previous one. Bounded; it affects speed,
    never results.
    """

    def __init__(self) -> None:
        self._seen: TextCache[object] = TextCache()

    def key(self, value: object) -> str | None:
        """Return a key that equal JSON values share, including the order of their keys; None for other objects."""
        try:
            # version 2 has no back references, so the bytes depend on the value alone
            return marshal.dumps(cast("Any", value), 2).decode("latin-1")
        except ValueError:
            return None

    def same(self, value: object) -> object:
        """Return the object that was first seen with an equal value."""
        key = self.key(value)
        known = None if key is None else self._seen.get(key)
        if known is None and key is not None:
            self._seen.put(key, value)
        return value if known is None else known
