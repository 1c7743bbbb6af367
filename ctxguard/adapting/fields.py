"""Read the fields of native messages, whether dicts or objects, with errors that name the place of the faulty value.

A field that cannot be read always raises an error. If the field were sent unread, its text would be neither masked nor
counted.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import is_
from typing import Final, TypeAlias, TypeGuard, TypeVar, cast

from ctxguard.artifacts import Part
from ctxguard.errors import HistoryError
from ctxguard.tokens.schemas import fields_of

Path: TypeAlias = tuple[str | int, ...]
"""The place of a value in a message: a sequence of dict keys, field names, and list indexes."""
Value = TypeVar("Value")

_WORDS: Final = re.compile(r"(?=.{1,40}\Z)[$_]?[A-Z]?[a-z]+\d{0,2}(?:(?:_|[A-Z])[a-z]+\d{0,2})*")
NULL_TEXT: Final = Part("opaque", tokens=0)
"""The part for a text field whose value is null. `fill_nulls` recognizes this object by identity."""
_NOT_RECORDS: Final = (str, bytes, int, float, list, tuple, set, type(None))


def get(value: object, key: str) -> object:
    """Return a field of a dict or an object, or None if the field is missing."""
    # `type(...) is dict` first: isinstance against an ABC takes ten times as long, and this runs for every field
    if type(value) is dict or isinstance(value, Mapping):
        return value.get(key)
    return getattr(value, key, None)


def text_of(value: object, key: str) -> str | None:
    """Return the value of a field if the value is a string, else None."""
    found = get(value, key)
    return found if isinstance(found, str) else None


def member_at(value: object, path: Path) -> object:
    """Return the value at a place, or None if the place does not exist."""
    for key in path:
        if isinstance(key, str):
            value = get(value, key)
        else:
            value = value[key] if isinstance(value, (list, tuple)) and key < len(value) else None
    return value


def is_list(native: object) -> TypeGuard[Sequence[object]]:
    """Return whether a value is a sequence other than a string."""
    return isinstance(native, Sequence) and not isinstance(native, (str, bytes))


def is_record(value: object) -> bool:
    """Return whether a value is a dict or an object with fields, rather than a string, a number, a list, or None."""
    return not isinstance(value, _NOT_RECORDS)


def require_list(native: Sequence[Value], of: str) -> Sequence[Value]:
    """Return a history, which must be a list; `of` is the plural noun for its items in the error message."""
    if not is_list(native):
        raise HistoryError(f"expected a list of {of}, got {type(native).__name__}")
    return native


def messages_of(native: Mapping[str, object] | Sequence[Value]) -> Sequence[Value]:
    """Return the messages in a request or in a list of messages; raise `HistoryError` for anything else."""
    if not isinstance(native, Mapping):
        return require_list(native, "messages")
    if "messages" not in native:
        raise HistoryError("the request has no 'messages'; write {'messages': […]}")
    return require_list(cast("Sequence[Value]", native["messages"]), "messages")


def require_field(value: object, key: str, path: Path = (), *, unless: Iterable[str] = ()) -> object:
    """Return the value, possibly None, of a field that the provider requires.

    Args:
        value: A message, or a part of one.
        key: The name of the field.
        path: The place of `value` in the message, for the error.
        unless: Names of fields, any of which may replace the required field.
    """
    is_missing = key not in value if isinstance(value, Mapping) else not hasattr(value, key)
    if is_missing and not any(get(value, other) is not None for other in unless):
        raise HistoryError(f"{place_name(path) or 'it'} has no {key!r}")
    return get(value, key)


def optional_field(value: object, key: str, path: Path = (), *, known: Iterable[str]) -> object:
    """Return the value of an optional field, or None if the field is missing.

    Args:
        value: A message, or a part of one.
        key: The name of the field.
        path: The place of `value` in the message, for the error.
        known: The names of all other valid fields.

    Raises:
        HistoryError: If the field is missing while an unknown field contains a string or a list, which suggests a
            misspelled name.
    """
    # a result may be empty, but a text in a field with a misspelled name must not pass unmasked
    fields = fields_of(value)
    if key not in fields:
        unknown = (name for name, member in fields.items() if isinstance(member, (str, list)) and name not in known)
        stray = next(unknown, None)
        if stray is not None:
            raise HistoryError(f"{place_name(path)} has no {key!r}, and {place_name((stray,))!r} is none of its fields")
    return fields.get(key)


def require_text(value: object, key: str, path: Path = ()) -> str:
    """Return the value of a field, which must be a string."""
    text = get(value, key)
    if not isinstance(text, str):
        raise unreadable((*path, key), "a text", text)
    return text


def unreadable(path: Path, expected: str, value: object, *, remedy: str = "") -> HistoryError:
    """Return the error for a value of the wrong type. The caller raises it."""
    return HistoryError(f"{place_name(path)} must be {expected}, not {type(value).__name__}{remedy}")


def place_name(path: Path) -> str:
    """Return a place in the form used in error messages, such as `content[1].text`.

    Keys may come from the user, so a key that is not spelled like a field of an API is shown as "…", see
    `is_field_name`.
    """
    shown = (f"[{key}]" if isinstance(key, int) else f".{key if is_field_name(key) else '…'}" for key in path)
    return "".join(shown).removeprefix(".")


def is_field_name(key: str) -> bool:
    """Return whether a key is spelled like a field of an API: words with at most two digits, such as `s3Location`."""
    return _WORDS.fullmatch(key) is not None


def walk_content(content: object, path: Path, *, noun: str = "part") -> Iterator[tuple[Path, object]]:
    """Yield the parts of a message's content with their places. An empty string and None have no parts.

    Args:
        content: A string, a list of strings and records, or None.
        path: The place of the content in its message.
        noun: The word for a part in error messages.
    """
    if isinstance(content, str):
        if content:
            yield path, content
    elif isinstance(content, (list, tuple)):
        for index, part in enumerate(content):
            if not isinstance(part, str) and not is_record(part):
                raise unreadable((*path, index), "a text or a dict with 'type'", part)
            yield (*path, index), part
    elif content is not None:
        remedy = f"; write [{noun}]" if isinstance(content, Mapping) else ""
        raise unreadable(path, f"a text or a list of {noun}s", content, remedy=remedy)


def arguments_as_text(value: object) -> str:
    """Return the arguments of a tool call as a string. Arguments that are not a string are written as compact JSON."""
    if isinstance(value, str):
        return value
    # Compact like the JSON that stages write, so that the result has the same token count when it is read again.
    try:
        return "" if value is None else json.dumps(value, ensure_ascii=False, default=str, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        reason = str(error) if not isinstance(error, RecursionError) else "nested too deep"
        raise HistoryError(f"arguments of a call cannot be written as JSON: {reason}") from None


def arguments_as_object(arguments: str) -> dict[str, object]:
    """Return the arguments of a tool call as an object. A value that is not an object is wrapped in one."""
    value = parse_json(arguments or "{}")
    return value if isinstance(value, dict) else {"arguments": arguments if value is None else value}


def parse_json(text: object) -> object:
    """Return the value of a JSON string, or None if the string is not valid JSON."""
    try:
        return json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        return None  # models may write invalid JSON, which is counted and masked as plain text


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
    if () in changes or not changes:
        return cast("Value", changes.get((), value))
    # without recursion, because a value may be nested as deeply as its members are walked
    copied: list[_Changed] = [_Changed(value, dict(changes))]
    for number, one in enumerate(copied):
        inner: dict[str | int, dict[Path, object]] = {}
        for (head, *rest), new in one.changes.items():
            inner.setdefault(head, {})[tuple(rest)] = new
        for key, change in inner.items():
            if () in change:
                one.members[key] = change[()]
            else:
                copied.append(_Changed(member_at(one.value, (key,)), change, number, key))
    for one in reversed(copied[1:]):
        copied[one.around].members[one.key] = one.copy()
    return cast("Value", copied[0].copy())  # of the same kind


@dataclasses.dataclass(slots=True)
class _Changed:
    """A value that is copied with changes.

    Attributes:
        value: The value.
        changes: The new values by their places in it.
        around: The number of the value that contains it.
        key: Its key or index there.
        members: The new values of its own members.
    """

    value: object
    changes: Mapping[Path, object]
    around: int = 0
    key: str | int = ""
    members: dict[str | int, object] = dataclasses.field(default_factory=dict)

    def copy(self) -> object:
        """Return the copy, once all members are known."""
        if isinstance(self.value, (list, tuple)):
            copied = (self.members.get(number, member) for number, member in enumerate(self.value))
            return [member for member in copied if member is not REMOVED]
        return _copy_record(self.value, {str(key): new for key, new in self.members.items()})


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
