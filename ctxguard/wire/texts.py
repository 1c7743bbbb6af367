"""Iterate over the texts in a JSON body, and tell which of them may be masked and which may only be searched.

A text under an unknown key is masked if a rule matches. Ids, names, and links refer to something, and signatures
protect something, so they are searched but never changed.
"""

from __future__ import annotations

import marshal
import math
import re
from collections.abc import Iterator, Mapping
from enum import Enum, auto
from typing import Any, Final, NamedTuple, TypeAlias, cast

from ctxguard.adapting.extra_fields import FIXED
from ctxguard.adapting.fields import Path, is_field_name
from ctxguard.tokens.media import is_payload
from ctxguard.tokens.text_cache import TextCache


class Use(Enum):
    """Whether a text may be masked (`TEXT`), or may only be searched: by all rules (`NAME`), or as an id (`FIXED`)."""

    TEXT = auto()
    NAME = auto()
    FIXED = auto()


class TextPlace(NamedTuple):
    """The place of a JSON value, as a link to the place of the list or object that contains it.

    Attributes:
        key: The key or index in the container. For the outermost value, its path in the body.
        around: The place of the container. None for the outermost value.
    """

    key: str | int | Path
    around: TextPlace | None = None

    @property
    def path(self) -> Path:
        """The path of the value: its keys and indexes from the outermost on."""
        keys: list[str | int] = []
        place = self
        while place.around is not None:
            keys.append(cast("str | int", place.key))
            place = place.around
        return (*cast("Path", place.key), *reversed(keys))


PlacedText: TypeAlias = tuple[TextPlace, str, Use]

_NAMED_FIELDS: Final = frozenset({"properties", "$defs", "definitions", "patternProperties"})
"""Keys of a JSON schema. The keys directly below them are names that the user chose, without a special meaning."""
_ARGUMENTS: Final = frozenset({"action", "actions", "args", "arguments", "operation", "response", "structuredContent"})
"""Keys of what a model wrote for a tool, or a tool returned, as an object. Its keys have no special meaning."""
_RESULT: Final = re.compile(r"(?:_result|_call|_tool_use|_output|_location|_citation)\Z")
"""Matches the types of what the tools of a provider return and of what answers cite."""
_MEDIA: Final = ("file", "image", "image_url", "input_image", "url")
_SEALED: Final = frozenset({"encrypted_content", "signature", "thoughtSignature", "thought_signature"})
_LEAST_CARD: Final = 10**12
"""Smallest JSON number that is searched. No card number is shorter, and other kinds of data need more than digits."""
_LEAST_PAYLOAD: Final = 256
"""Minimum length in characters at which a `Use.FIXED` text that looks like base64 data is not searched."""


class _Holder(Enum):
    """What a JSON object belongs to: the arguments of a call, something a tool of the provider returned, or neither."""

    ARGUMENTS = auto()
    RESULT = auto()
    OTHER = auto()

    @classmethod
    def of(cls, record: Mapping[str, object], key: object, around: _Holder) -> _Holder:
        """Return what an object belongs to that is the value of `key`, which is None if the user chose its name."""
        if key in _ARGUMENTS or key == "input" or around is cls.ARGUMENTS:
            return cls.ARGUMENTS
        return cls.RESULT if _RESULT.search(str(record.get("type"))) else around

    def has_text(self, record: Mapping[str, object], key: str, value: object) -> bool:
        """Return whether the value of a key is text, although values of this key are not elsewhere.

        What a model or a tool wrote is text, whatever its key: nothing looks it up. Links from which the provider loads
        media, and the data of media, are not.
        """
        if key == "data":
            return record.get("type") == "text" or (self is _Holder.ARGUMENTS and not is_payload(value))
        if self is _Holder.ARGUMENTS:
            return key not in _SEALED and not is_payload(value)
        return self is _Holder.RESULT and key in ("uri", "url") and record.get("type") not in _MEDIA


def texts_of(value: object, path: Path = (), *, use: Use = Use.TEXT) -> Iterator[PlacedText]:
    """Yield the texts in a JSON value with their places. Keys of objects are yielded, too.

    The iteration uses a stack of its own, and links each place to its container, so that a body nested 300 levels deep
    takes no longer than a flat one of the same size. A key that is not spelled like a field of an API may come from a
    person, so all rules search it. A long number is yielded as a text with its key in front. It is
    only searched, because a masked number would have another type.
    """
    stack: list[tuple[TextPlace, object, Use, _Holder]] = [(TextPlace(path), value, use, _Holder.OTHER)]
    while stack:
        place, value, use, holder = stack.pop()
        last = path[-1] if place.around is None and path else place.key
        if isinstance(value, str):
            if use is Use.TEXT or not is_payload(value, least=_LEAST_PAYLOAD):
                yield place, value, use
        elif isinstance(value, (int, float)) and use is Use.TEXT and _LEAST_CARD <= abs(value) < math.inf:
            yield place, f"{last or ''}: {abs(value):.0f}", Use.FIXED
        elif isinstance(value, list):
            holder = _Holder.ARGUMENTS if last in _ARGUMENTS else holder
            stack += [(TextPlace(number, place), member, use, holder) for number, member in enumerate(value)][::-1]
        elif isinstance(value, dict):
            names_fields = last in _NAMED_FIELDS
            members: list[tuple[TextPlace, object, Use, _Holder]] = []
            is_named = place.around is not None and place.around.key in _NAMED_FIELDS
            holder = _Holder.of(value, None if is_named else last, holder)
            for key, member in value.items():
                within = TextPlace(key, place)
                yield within, key, Use.FIXED if is_field_name(key) else Use.NAME
                is_fixed = key in FIXED and not names_fields and not holder.has_text(value, key, member)
                members.append((within, member, Use.FIXED if is_fixed else Use.TEXT, holder))
            stack += reversed(members)


class Values:
    """Recognizes JSON values that occurred before, so that results cached for them can be reused.

    Histories grow at the end, so nearly every message in a request was in the previous one. The cache is bounded; it
    affects speed, but never results.
    """

    def __init__(self) -> None:
        self._seen: TextCache[object] = TextCache()

    def key(self, value: object) -> str | None:
        """Return a key that equal JSON values share if their keys have the same order. None if there is no such key."""
        try:
            # version 2 of the format has no back references, so the bytes depend only on the value
            return marshal.dumps(cast("Any", value), 2).decode("latin-1")
        except ValueError:
            return None

    def same(self, value: object) -> object:
        """Return the first object that was passed in with an equal value."""
        key = self.key(value)
        known = None if key is None else self._seen.get(key)
        if known is None and key is not None:
            self._seen.put(key, value)
        return value if known is None else known
