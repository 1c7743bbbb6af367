"""A serializer for LangGraph's checkpointers that masks what they store, and restores values in what they load."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any

from ctxguard.adapting.stored import StoredTexts
from ctxguard.pii import STANDARD, SessionVault
from ctxguard.pii.detectors import Rules
from ctxguard.settings import extra

with extra("langgraph", "MaskedSerializer needs LangGraph"):
    from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
    from langgraph.types import Send


class MaskedSerializer(JsonPlusSerializer):
    """Masks the texts that a checkpointer stores: `SqliteSaver(connection, serde=MaskedSerializer(vault))`.

    Stored objects contain placeholders. Loaded objects contain the values again, each in the spelling in which it first
    occurred (`ADA@x.org` may become `ada@x.org`), or the placeholder if the vault no longer contains the value. Texts
    are masked in dicts, lists, tuples, sets, messages and other pydantic models, dataclasses, and the argument of a
    `Send`. Keys, numbers, and other objects are not masked. Neither are the names of threads and the metadata of a
    run, because checkpointers write these without a serializer.

    Args:
        vault: The vault of a session, which all threads of the checkpointer share.
        rules: The rules that define what is personal data.
        settings: Further settings of `JsonPlusSerializer`.

    Raises:
        ConfigError: If `vault` is not the vault of a session.
    """

    def __init__(self, vault: SessionVault, *, rules: Rules = STANDARD, **settings: Any) -> None:  # noqa: ANN401 - LangGraph's own
        super().__init__(**settings)
        self._texts = _CheckpointTexts(vault, rules)

    def dumps_typed(self, obj: object) -> tuple[str, bytes]:
        """Serialize an object, with values in its texts masked."""
        return super().dumps_typed(self._texts.masked(obj))

    def loads_typed(self, data: tuple[str, bytes]) -> Any:  # noqa: ANN401 - whatever was stored
        """Deserialize an object, with masked values in its texts restored."""
        return self._texts.restored(super().loads_typed(data))


class _CheckpointTexts(StoredTexts):
    def apply(self, value: Any, change: Callable[[str], str]) -> Any:  # noqa: ANN401 - whatever a state holds
        if isinstance(value, dict) and {"channel_values", "channel_versions"} <= value.keys():
            # in a checkpoint, only the state is masked; the other fields belong to LangGraph
            return {**value, "channel_values": self.apply(value["channel_values"], change)}
        if isinstance(value, Send):
            sent = copy(value)
            sent.arg = self.apply(sent.arg, change)
            return sent
        return super().apply(value, change)
