"""Build instances of a framework's classes by introspection, each with a test value in one of its fields.

Tests use these instances to find fields that an adapter does not read. Dataclasses, pydantic models, and typed dicts
are covered, including the unions, lists, and mappings in them, so classes and fields of new versions are tested
automatically.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import inspect
import types
import typing
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any, Final, TypeAlias

import typing_extensions

Planted: TypeAlias = tuple[str, Any]
"""A pair: the name of the class and field that contain the test value, such as `TextPart.content`, and the instance."""
_WRAPPERS: Final = (
    typing.Annotated,
    typing.Required,
    typing.NotRequired,
    typing_extensions.ReadOnly,
    typing_extensions.Required,
    typing_extensions.NotRequired,
)
_LISTS: Final = (list, tuple, set, collections.abc.Sequence, collections.abc.Iterable, collections.abc.Collection)
_MAPPINGS: Final = (dict, collections.abc.Mapping, collections.abc.MutableMapping)
_OPEN: Final = (Any, object)
_DEEPEST: Final = 8
"""Maximum depth of nested records that are built. Messages of the frameworks are nested at most five deep."""


def planted(  # noqa: C901 - one branch for each form that a type can have
    hint: object, value: object, *, within: str = "", stack: tuple[object, ...] = ()
) -> Iterator[Planted]:
    """Yield instances of a type: for each of its fields that can contain text or JSON, one with a test value in it.

    Args:
        hint: A class, or a type annotation made of classes.
        value: The test value, a string.
        within: The class and field that contain the value, such as `TextPart.content`.
        stack: The record classes that are being built, to avoid infinite recursion.
    """
    hint, origin, members = _plain(hint)
    if hint is str:
        yield within, value
    elif hint in _OPEN:
        yield within, {"q": value}
    elif origin in (typing.Union, types.UnionType):
        for member in members:
            yield from planted(member, value, within=within, stack=stack)
    elif origin in _LISTS and members:
        yield from ((name, [one]) for name, one in planted(members[0], value, within=within, stack=stack))
    elif origin in _MAPPINGS or hint in _MAPPINGS:
        inner = members[1] if members else Any
        yield from ((name, {"q": one}) for name, one in planted(inner, value, within=within, stack=stack))
        yield f"{within} (key)", {value: least(inner, stack)}
    elif _is_record(hint) and hint not in stack and len(stack) < _DEEPEST:
        fields = _fields(hint)
        for field, inner in fields.items():
            for name, one in planted(inner, value, within=f"{_name(hint)}.{field}", stack=(*stack, hint)):
                made = _make(hint, fields, {field: one}, stack)
                if made is not None:
                    yield name, made


def least(hint: object, stack: tuple[object, ...] = ()) -> Any:  # noqa: ANN401, PLR0911 - whatever the type asks for
    """Return an instance of a type with only its required fields, filled with minimal values."""
    hint, origin, members = _plain(hint)
    if origin is typing.Literal:
        return members[0]
    if origin in (typing.Union, types.UnionType):
        return None if type(None) in members else least(members[0], stack)
    if _is_record(hint):
        return _make(hint, _fields(hint), {}, stack) if len(stack) < _DEEPEST else {}
    if isinstance(hint, type) and issubclass(hint, Enum):
        return next(iter(hint))
    if origin in _LISTS or hint in _LISTS:
        return []
    if origin in _MAPPINGS or hint in _MAPPINGS or hint in _OPEN:
        return {}
    if hint is str:
        return "x"
    return hint() if hint in (int, float, bool, bytes) else None


def _plain(hint: object) -> tuple[Any, object, tuple[object, ...]]:
    """Return a type without wrappers such as `Annotated`, and its origin and arguments."""
    while True:
        if typing.get_origin(hint) in _WRAPPERS:
            hint = typing.get_args(hint)[0]
        elif hasattr(hint, "__value__"):  # a type alias: both typing modules store its type under this name
            hint = hint.__value__
        elif isinstance(hint, typing.TypeVar):
            hint = hint.__bound__ or Any
        elif isinstance(hint, typing.NewType):
            hint = hint.__supertype__
        else:
            origin = typing.get_origin(hint)
            is_generic = isinstance(origin, type) and _is_record(origin)
            return (origin, None, ()) if is_generic else (hint, origin, typing.get_args(hint))


def _is_record(hint: object) -> bool:
    return inspect.isclass(hint) and (
        dataclasses.is_dataclass(hint) or typing_extensions.is_typeddict(hint) or hasattr(hint, "model_fields")
    )


def _name(hint: Any) -> str:  # noqa: ANN401 - a record
    return str(hint.__name__)


def _fields(hint: Any) -> Mapping[str, object]:  # noqa: ANN401 - a record
    """Return the fields that a record's constructor accepts, with their types."""
    if hasattr(hint, "model_fields"):
        return {name: field.annotation for name, field in hint.model_fields.items()}
    hints = typing_extensions.get_type_hints(hint, include_extras=True)
    if dataclasses.is_dataclass(hint):
        return {field.name: hints[field.name] for field in dataclasses.fields(hint) if field.init}
    return hints


def _make(hint: Any, fields: Mapping[str, object], given: Mapping[str, object], stack: tuple[object, ...]) -> object:  # noqa: ANN401
    """Return an instance of a record with the values in `given`, and invented values for other required fields.

    None if there is no such instance.
    """
    missing = {name: least(fields[name], (*stack, hint)) for name in _required(hint, fields) if name not in given}
    try:
        return hint(**missing, **given)
    # the class restricts its values; a dataclass that rejects the test value cannot contain it
    except (TypeError, ValueError):
        return hint.model_construct(**missing, **given) if hasattr(hint, "model_fields") else None


def _required(hint: Any, fields: Mapping[str, object]) -> Iterator[str]:  # noqa: ANN401 - a record
    if hasattr(hint, "model_fields"):
        return (name for name, field in hint.model_fields.items() if field.is_required())
    if dataclasses.is_dataclass(hint):
        nothing = dataclasses.MISSING
        return (f.name for f in dataclasses.fields(hint) if f.init and f.default is f.default_factory is nothing)
    # if annotations are strings, `__required_keys__` is not reliable
    needed = (typing.Required, typing_extensions.Required)
    return (name for name, one in fields.items() if name in hint.__required_keys__ or typing.get_origin(one) in needed)
