"""Walk the texts of a JSON body: what may be masked, what may only be searched, and what is data.

A key that is not known here holds a text: it is masked where a rule matches. Ids, names and links refer to something,
and signatures seal something, so they are searched and never changed.
"""

from __future__ import annotations

import marshal
from collections.abc import Iterator
from enum import Enum, auto
from typing import Any, Final, TypeAlias, cast

from ctxguard.adapting.extra_fields import is_payload
from ctxguard.adapting.fields import Path
from ctxguard.tokens.text_cache import TextCache


class Use(Enum):
    """Say what a text is for."""

    TEXT = auto()
    FIXED = auto()


PlacedText: TypeAlias = tuple[Path, str, Use]

_FIXED: Final = frozenset(
    {
        "$ref",
        "$schema",
        "cache_control",
        "call_id",
        "container",
        "conversation",
        "data",
        "encrypted_content",
        "file_data",
        "file_id",
        "file_url",
        "fingerprint",
        "format",
        "id",
        "image_url",
        "media_type",
        "mime_type",
        "model",
        "name",
        "namespace",
        "pattern",
        "previous_response_id",
        "required",
        "role",
        "server_label",
        "server_url",
        "signature",
        "thought_signature",
        "tool_call_id",
        "tool_use_id",
        "type",
        "url",
        # as Google and Amazon spell them
        "allowedFunctionNames",
        "bytes",
        "cachedContent",
        "fileUri",
        "file_uri",
        "guardrailIdentifier",
        "mimeType",
        "modelId",
        "redactedContent",
        "responseMimeType",
        "thoughtSignature",
        "toolUseId",
        "uri",
    }
)
_CREDENTIALS: Final = frozenset({"authorization", "authorization_token", "headers"})
"""What the provider needs to call a server for the model; the model never sees it."""
_NAMED_FIELDS: Final = frozenset({"properties", "$defs", "definitions", "patternProperties"})
"""Keys of a JSON schema that hold names of the user's own, which mean nothing as keys."""
_LEAST_PAYLOAD: Final = 256
"""Characters from which on a text that refers to something may be base64 data, which means nothing as a text."""


def texts_of(value: object, path: Path = (), *, use: Use = Use.TEXT) -> Iterator[PlacedText]:
    """Walk the texts of a JSON value with their places; the keys of its objects are texts, too, and fixed."""
    if isinstance(value, str):
        if use is Use.TEXT or not is_payload(value, least=_LEAST_PAYLOAD):
            yield path, value, use
    elif isinstance(value, list):
        for number, member in enumerate(value):
            yield from texts_of(member, (*path, number), use=use)
    elif isinstance(value, dict):
        names_fields = bool(path) and path[-1] in _NAMED_FIELDS
        for key, member in value.items():
            yield (*path, key), key, Use.FIXED
            if key in _CREDENTIALS and not names_fields:
                continue
            is_fixed = key in _FIXED and not names_fields
            yield from texts_of(member, (*path, key), use=Use.FIXED if is_fixed else Use.TEXT)


class Values:
    """Recognize JSON values that were seen before, so that what was worked out for them is found again.

    Histories grow at their end: nearly every message of a request stood in the one before. Bounded; it changes speed,
    never results.
    """

    def __init__(self) -> None:
        self._seen: TextCache[object] = TextCache()

    def key(self, value: object) -> str | None:
        """Return what two equal JSON values have in common, the order of keys included; None for odd values."""
        try:
            # version 2 knows no references, so that what is written depends on the value alone
            return marshal.dumps(cast("Any", value), 2).decode("latin-1")
        except ValueError:
            return None

    def same(self, value: object) -> object:
        """Return the very object that stood for an equal value before."""
        key = self.key(value)
        known = None if key is None else self._seen.get(key)
        if known is None and key is not None:
            self._seen.put(key, value)
        return value if known is None else known
