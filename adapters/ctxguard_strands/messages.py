"""The messages of a Strands agent: those of Bedrock's Converse API, with fields that the framework keeps to itself."""

from __future__ import annotations

from ctxguard.adapting.fields import get
from ctxguard.formats.converse import BedrockAdapter

_KEPT = ("tracking_id", "metadata")
"""Fields of a message that the framework removes before it calls a model."""


class StrandsAdapter(BedrockAdapter):
    """Reads the messages of a Strands agent as artifacts. What is not preserved is the same as for `BedrockAdapter`.

    The `tracking_id` and the `metadata` of a message are neither counted nor searched, because they are never sent.
    """

    name = "strands"
    own = BedrockAdapter.own | frozenset(_KEPT)

    def detects(self, native: object) -> bool:
        """Return whether `native` is a list of Converse messages with a field that only Strands adds."""
        if not isinstance(native, (list, tuple)) or not super().detects(native):
            return False
        return any(get(message, key) is not None for message in native for key in _KEPT)
