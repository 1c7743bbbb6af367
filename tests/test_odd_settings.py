"""A setting of the wrong type or out of range is refused by name, in one line, by every public class that takes settings."""

from __future__ import annotations

import inspect
import math
from importlib import import_module
from pathlib import Path

import pytest

from ctxguard import Stabilizer, guard, load_context_config
from ctxguard.content import context_result, get_truncation_config, read_file, read_file_as_string
from ctxguard.errors import CtxguardError
from ctxguard.pii import STANDARD
from ctxguard.stores import MemoryStore

ROOT = Path(__file__).parents[1]
PACKAGES = sorted(".".join(stub.relative_to(ROOT).parts[:-1]) for stub in (ROOT / "ctxguard").rglob("__init__.pyi"))
NEEDED = {
    "budget": 1_000,
    "stabilizer": Stabilizer(1_000),
    "guard": Stabilizer(1_000),
    "rules": (STANDARD,),
    "store": MemoryStore(),
    "choose": lambda past, end: None,
    "note": lambda past, number: None,
}
"""A valid value for each setting without a default."""
ODD = ["x", -1, 0, 1.5, True, math.nan, b"x", [], [1], {}, {"a": 1}, object(), len]


def settings_of(kind):
    """Return the names of the settings of a class; None if it is not made from settings, as a record of results is not."""
    try:
        parameters = inspect.signature(kind).parameters.values()
    except (TypeError, ValueError):
        return None
    named = [one for one in parameters if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)]
    if not all(one.name in NEEDED or one.default is not one.empty for one in named):
        return None
    return [one.name for one in named], {one.name: NEEDED[one.name] for one in named if one.default is one.empty}


def doors():
    """Yield the name of each public class with settings, the class, a setting, and the settings that it needs."""
    seen = set()
    for package in PACKAGES:
        for name in import_module(package).__all__:
            try:
                kind = getattr(import_module(package), name)
            except ImportError:  # of an extra that is not installed
                continue
            if not inspect.isclass(kind) or issubclass(kind, BaseException) or kind in seen:
                continue
            seen.add(kind)
            found = settings_of(kind)
            try:
                made = found and kind(**found[1])
            except Exception:  # noqa: BLE001 - a protocol, an abstract class, or one that needs more than single settings
                continue
            if made is not None:
                yield from ((f"{package}.{name}", kind, setting, found[1]) for setting in found[0])


DOORS = list(doors())


def test_the_public_classes_are_found():
    assert len(DOORS) > 100


@pytest.mark.parametrize(("name", "kind", "setting", "needed"), DOORS, ids=[f"{door[0]}-{door[2]}" for door in DOORS])
def test_an_odd_setting_is_taken_or_refused_in_one_line(name, kind, setting, needed):
    for value in ODD:
        try:
            kind(**{**needed, setting: value})
        except CtxguardError as error:
            assert "\n" not in str(error), f"{name}({setting}={value!r})"


CALLS = {
    "policy": lambda value: guard([{"role": "user", "content": "Hi"}], budget=1_000, policy=value),
    "config": lambda value: read_file(__file__, value),
    "config of a string": lambda value: read_file_as_string(__file__, value),
    "config of a preset": lambda value: get_truncation_config(config=value),
    "config of a result": lambda value: context_result("default", config=value),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("value", ["x", "\0", -1, 1.5, [], {"a": 1}, object()], ids=type)
def test_a_function_refuses_an_odd_setting_by_name(call, value):
    with pytest.raises(CtxguardError, match=call.partition(" ")[0]):
        CALLS[call](value)


@pytest.mark.parametrize("path", ["x", "\0"])
def test_the_path_of_no_file_is_refused(path):
    with pytest.raises(CtxguardError, match="name a YAML file"):
        load_context_config(path)
