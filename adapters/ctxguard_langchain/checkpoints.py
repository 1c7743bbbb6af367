"""A serializer for LangGraph's checkpointers that masks what they store, and restores values in what they load."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import fields, is_dataclass, replace
from typing import Any

from pydantic import BaseModel

from ctxguard.pii import STANDARD, Masker, SessionVault
from ctxguard.pii.detectors import Rules
from ctxguard.pii.mask.json_text import holds_json
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
        self._vault = vault
        self._masker = Masker(rules, strategy="pseudonymize", vault=vault)

    def dumps_typed(self, obj: object) -> tuple[str, bytes]:
        """Serialize an object, with values in its texts masked."""
        return super().dumps_typed(_apply(obj, self._masker.mask))

    def loads_typed(self, data: tuple[str, bytes]) -> Any:  # noqa: ANN401 - whatever was stored
        """Deserialize an object, with masked values in its texts restored."""
        return _apply(super().loads_typed(data), self._unmask)

    def _unmask(self, text: str) -> str:
        return self._vault.unmask_arguments(text) if holds_json(text) else self._vault.unmask(text)


def _apply(value: Any, change: Callable[[str], str]) -> Any:  # noqa: ANN401 - whatever a state holds
    """Return a copy of a value with `change` applied to all texts in it."""
    if type(value) is str:
        return change(value)
    if isinstance(value, dict):
        # in a checkpoint, only the state is masked; the other fields belong to LangGraph
        is_checkpoint = {"channel_values", "channel_versions"} <= value.keys()
        return {
            key: member if is_checkpoint and key != "channel_values" else _apply(member, change)
            for key, member in value.items()
        }
    if type(value) in (list, tuple, set, frozenset):
        return type(value)(_apply(member, change) for member in value)
    if isinstance(value, BaseModel):
        names = value.model_fields_set | set(value.model_extra or ())
        return value.model_copy(update={name: _apply(getattr(value, name), change) for name in names})
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{f.name: _apply(getattr(value, f.name), change) for f in fields(value) if f.init})
    if isinstance(value, Send):
        sent = value = copy(value)
        sent.arg = _apply(sent.arg, change)
    return value
