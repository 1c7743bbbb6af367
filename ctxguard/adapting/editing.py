"""Copy a native message with new values in some places. Input objects are never changed."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from operator import is_
from typing import Final, TypeVar

from ctxguard.adapting.fields import Path, get
from ctxguard.tokens.schemas import fields_of

Value = TypeVar("Value")

REMOVED: Final = object()
"""Stands for the new value of a field or list item that is to be removed."""


def copy_with(value: Value, changes: Mapping[Path, object]) -> Value:
    """Return a copy of a value with new values in some places. Everything else is shared with the original.

    Dicts and lists are copied to new dicts and lists. Objects are copied with `model_copy` or `dataclasses.replace`,
    which keep fields that a constructor would lose. A pydantic object that loses a field becomes a dict. A dataclass
    cannot lose a field, so the field is set to None.

    Args:
        value: A message, or a part of one.
        changes: The new values, or `REMOVED`, by their places in `value`.

    Returns:
        The copy, or `value` itself if there are no changes.
    """
    return _copy(value, changes) if changes else value  # type: ignore[return-value]  # of the same kind


def _copy(value: object, changes: Mapping[Path, object]) -> object:
    if () in changes:
        return changes[()]
    inner: dict[str | int, dict[Path, object]] = {}
    for (head, *rest), new in changes.items():
        inner.setdefault(head, {})[tuple(rest)] = new
    if isinstance(value, (list, tuple)):
        copied = (_copy(member, inner[n]) if n in inner else member for n, member in enumerate(value))
        return [member for member in copied if member is not REMOVED]
    return _copy_record(value, {str(key): _copy(get(value, str(key)), change) for key, change in inner.items()})


def _copy_record(value: object, changes: Mapping[str, object]) -> object:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        # the installed version of a framework may lack a field that a newer one has
        known = {field.name for field in dataclasses.fields(value)}
        return dataclasses.replace(value, **{k: None if v is REMOVED else v for k, v in changes.items() if k in known})
    # `model_copy` cannot remove a field; clients accept a dict wherever they accept a model.
    if hasattr(value, "model_copy") and REMOVED not in changes.values():
        return value.model_copy(update=dict(changes))
    return {key: member for key, member in {**fields_of(value), **changes}.items() if member is not REMOVED}


def by_index(changes: Mapping[Path, Value]) -> dict[int, dict[Path, Value]]:
    """Group the changes of a list by the index of the list item that they belong to."""
    found: dict[int, dict[Path, Value]] = {}
    for (index, *path), new in changes.items():
        found.setdefault(int(index), {})[tuple(path)] = new
    return found


def are_same_objects(now: Sequence[object], before: Sequence[object]) -> bool:
    """Return whether two lists contain the identical objects in the same order."""
    return len(now) == len(before) and all(map(is_, now, before))
