"""Mask the texts that a framework stores, and restore values in what it loads, in values of any kind."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from ctxguard.pii import STANDARD, Masker
from ctxguard.pii.mask.json_text import holds_json

if TYPE_CHECKING:
    from ctxguard.pii import SessionVault
    from ctxguard.pii.detectors import Rules


class StoredTexts:
    """Masks texts in dicts, lists, tuples, sets, pydantic models, and dataclasses. Keys and other objects stay.

    Subclasses, such as named tuples, keep their types.

    A value that is loaded equals the one that was stored, but for values that the vault has lost or knows in another
    spelling, such as `ADA@x.org` and `ada@x.org`. A subclass may override `apply` for objects of its framework.

    Args:
        vault: The vault of a session.
        rules: The rules that define what is personal data.

    Raises:
        ConfigError: If `vault` is not the vault of a session.
    """

    def __init__(self, vault: SessionVault, rules: Rules = STANDARD) -> None:
        self._masker = Masker(rules, strategy="pseudonymize", vault=vault)
        self._vault = vault

    def masked(self, value: Any) -> Any:  # noqa: ANN401 - whatever is stored, here and below
        """Return a copy of a value with its texts masked."""
        return self.apply(value, self._masker.mask)

    def restored(self, value: Any) -> Any:  # noqa: ANN401
        """Return a copy of a value with masked values in its texts restored."""
        return self.apply(value, self._unmask)

    def _unmask(self, text: str) -> str:
        return self._vault.unmask_arguments(text) if holds_json(text) else self._vault.unmask(text)

    def apply(self, value: Any, change: Callable[[str], str]) -> Any:  # noqa: ANN401
        """Return a copy of a value with `change` applied to all texts in it."""
        if isinstance(value, str) and not isinstance(value, Enum):
            changed = change(value)
            return value if changed == value else changed
        if isinstance(value, dict):
            written = copy(value)  # it keeps its type, such as a `defaultdict`
            written.update({key: self.apply(member, change) for key, member in value.items()})
            return written
        if isinstance(value, (list, tuple, set, frozenset)):
            make = getattr(value, "_make", type(value))  # a named tuple takes its members one by one
            return make([self.apply(member, change) for member in value])
        if isinstance(value, BaseModel):
            names = value.model_fields_set | set(value.model_extra or ())
            return value.model_copy(update={name: self.apply(getattr(value, name), change) for name in names})
        if is_dataclass(value) and not isinstance(value, type):
            names = {field.name for field in fields(value) if field.init}
            return replace(value, **{name: self.apply(getattr(value, name), change) for name in names})
        return value
