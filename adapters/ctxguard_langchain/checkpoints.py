"""Placeholders in what LangGraph's checkpointers store, and the values back in what they load."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import fields, is_dataclass, replace
from typing import Any

from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.types import Send
from pydantic import BaseModel

from ctxguard.pii import STANDARD, Masker, SessionVault
from ctxguard.pii.detectors import Rules
from ctxguard.pii.mask.json_text import holds_json


class MaskedSerializer(JsonPlusSerializer):
    """Mask at the door of a checkpointer: `SqliteSaver(connection, serde=MaskedSerializer(vault))`.

    What is stored has placeholders; what is loaded has the values again, each in its first spelling (`ADA@x.org` may
    come back as `ada@x.org`), or the placeholder where the vault has lost the value. Texts are masked in dicts, lists,
    tuples, sets, messages and other pydantic models, dataclasses, and what a `Send` carries. Keys, numbers, other
    objects, the names of threads, and the metadata of a run, which checkpointers write without a serializer, are not.

    Args:
        vault: of one session; all threads of the checkpointer share it.
        rules: what is personal data.

    Further settings are those of `JsonPlusSerializer`.

    Raises:
        ConfigError: `vault` is not the vault of a session.
    """

    def __init__(self, vault: SessionVault, *, rules: Rules = STANDARD, **settings: Any) -> None:  # noqa: ANN401 - LangGraph's own
        super().__init__(**settings)
        self._vault = vault
        self._masker = Masker(rules, strategy="pseudonymize", vault=vault)

    def dumps_typed(self, obj: object) -> tuple[str, bytes]:
        """Serialize an object, with placeholders in its texts."""
        return super().dumps_typed(_changed(obj, self._masker.mask))

    def loads_typed(self, data: tuple[str, bytes]) -> Any:  # noqa: ANN401 - whatever was stored
        """Return an object with the values in its texts."""
        return _changed(super().loads_typed(data), self._unmasked)

    def _unmasked(self, text: str) -> str:
        return self._vault.unmask_arguments(text) if holds_json(text) else self._vault.unmask(text)


def _changed(value: Any, change: Callable[[str], str]) -> Any:  # noqa: ANN401 - whatever a state holds
    """Return a value with all its texts changed."""
    if type(value) is str:
        return change(value)
    if isinstance(value, dict):
        # of a checkpoint only the state is masked; what stands beside it is LangGraph's own
        is_checkpoint = {"channel_values", "channel_versions"} <= value.keys()
        return {
            key: member if is_checkpoint and key != "channel_values" else _changed(member, change)
            for key, member in value.items()
        }
    if type(value) in (list, tuple, set, frozenset):
        return type(value)(_changed(member, change) for member in value)
    if isinstance(value, BaseModel):
        names = value.model_fields_set | set(value.model_extra or ())
        return value.model_copy(update={name: _changed(getattr(value, name), change) for name in names})
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{f.name: _changed(getattr(value, f.name), change) for f in fields(value) if f.init})
    if isinstance(value, Send):
        sent = value = copy(value)
        sent.arg = _changed(sent.arg, change)
    return value
