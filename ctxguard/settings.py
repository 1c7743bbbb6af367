"""Validation of settings, lazy loading of public names, and install hints for extras.

A setting that cannot work is rejected when it is passed, with a one-line error that says what to write instead. Public
names are loaded on first use, so that importing a package is cheap. Each package imports this module for that, so it
imports what takes long to load only where it is used.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec

from ctxguard.errors import ConfigError

TYPE_CHECKING = False  # as type checkers read it; `typing` takes longer to import than this module
if TYPE_CHECKING:
    from importlib.metadata import EntryPoint
    from typing import Any, Final, NoReturn, TypeVar

    C = TypeVar("C", bound=Callable[..., object])
    T = TypeVar("T")

_BUDGET: Final = r"(\d{1,12}(?:\.\d+)?)([kK%]?)"
_QUOTED: Final = 16
"""Maximum length of a string that an error message quotes, in characters."""
DISTRIBUTION: Final = "ctxguard-stabilizer"
"""The name under which to install this project. On PyPI, `ctxguard` is another project."""
_OTHERS: Final = "hooks"
"""A module of that other project, whose package is also called `ctxguard`."""

# checked here because this module is always loaded: by the package, the commands, and the adapters
if find_spec(f"ctxguard.{_OTHERS}") is not None:
    raise ImportError(
        f"another project named ctxguard is installed in the folder of {DISTRIBUTION}, and each overwrites files of "
        f"the other; keep one: `pip uninstall ctxguard`, then `pip install --force-reinstall --no-deps {DISTRIBUTION}`"
    )


def install_command(extra: str) -> str:
    """Return the pip command that adds an extra to this installation.

    The command names the source from which ctxguard was installed (a clone, a wheel, or a repository), which installers
    record (PEP 610). If none is recorded, ctxguard came from a package index.
    """
    # imported here because only errors need them
    import json
    import shlex
    from importlib.metadata import PackageNotFoundError, distribution
    from pathlib import Path
    from urllib.parse import urlsplit
    from urllib.request import url2pathname

    try:
        origin = json.loads(distribution(DISTRIBUTION).read_text("direct_url.json") or "{}")
    except PackageNotFoundError:  # not installed, but run from a source tree
        origin = {"url": Path(__file__).parents[1].as_uri(), "dir_info": {"editable": True}}
    url, vcs = str(origin.get("url", "")), origin.get("vcs_info", {})
    if not url:
        what = f"{DISTRIBUTION}[{extra}]"
    elif vcs:
        revision = f"@{vcs['requested_revision']}" if "requested_revision" in vcs else ""
        what = f"{DISTRIBUTION}[{extra}] @ {vcs['vcs']}+{url}{revision}"
    elif url.startswith("file:"):
        what = f"{url2pathname(urlsplit(url).path)}[{extra}]"
    else:
        what = f"{DISTRIBUTION}[{extra}] @ {url}"
    return f"pip install {'-e ' if origin.get('dir_info', {}).get('editable') else ''}{shlex.quote(what)}"


@contextmanager
def extra(name: str, what: str) -> Iterator[None]:
    """Return a context manager in which to import an optional package. If it is missing, the error says how to add it.

    Args:
        name: Name of the extra of this distribution that installs the package.
        what: The beginning of the error message: what needs the package.

    Raises:
        ImportError: If the package is not installed.
    """
    try:
        yield
    except ImportError as error:
        raise ImportError(f"{what}: {install_command(name)}") from error


@lru_cache(maxsize=1)  # it reads the metadata of every installed package
def adapter_points() -> dict[str, EntryPoint]:
    """Return the entry points of the installed adapters by name: packages register them as `ctxguard.adapters`."""
    from importlib.metadata import entry_points

    return {point.name: point for point in entry_points(group="ctxguard.adapters")}


def adapter_of(framework: str, what: str, name: str = "") -> Any:  # noqa: ANN401 - of a package that may be missing
    """Return the class of a framework's adapter, for what only the framework can do.

    Args:
        framework: Name of the adapter, which is also that of the extra.
        what: The beginning of the error message: what needs the framework.
        name: Another public name of the adapter's package, which is returned instead.

    Raises:
        ImportError: If the framework or its adapter is not installed.
    """
    point = adapter_points().get(framework)
    with extra(framework, what):
        if point is None:
            raise ImportError(framework)
        return getattr(import_module(point.module), name) if name else point.load()


def names_in_stub(package: str, file: str) -> tuple[list[str], Callable[[str], object], Callable[[], list[str]]]:
    """Return `__all__`, `__getattr__`, and `__dir__` for a package that loads its public names on first use.

    The package's stub, `__init__.pyi`, says in which module each public name is defined.

    Args:
        package: The package's `__name__`. No public name may be the same as the name of a module in the package,
            because Python would then return the module.
        file: The package's `__file__`. The stub is in the same folder.
    """
    homes: dict[str, str] = {}
    with open(f"{file.removesuffix('.py')}.pyi", encoding="utf-8") as stub:  # noqa: PTH123 - pathlib is slow to import
        for line in stub:
            # a line that re-exports a public name: `from ctxguard.report import Report as Report`
            words = line.split()
            if words[:1] == ["from"] and words[2:3] == ["import"] and words[4:] == ["as", words[3]]:
                homes[words[3]] = words[1]

    def load(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(homes[name]), name)
        setattr(sys.modules[package], name, value)  # from now on, Python finds the name without calling `load`
        return value

    def listed() -> list[str]:
        return sorted({*vars(sys.modules[package]), *homes})

    return sorted(homes), load, listed


class OfOneProcess:
    """Base of classes that cannot be copied or pickled, because their locks and open stores belong to one process."""

    __slots__ = ()

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"a {type(self).__name__} belongs to the process that made it; make one in each worker: those that open "
            "the same file or database share what is in it"
        )


def nearest(name: object, known: Iterable[str], *, likeness: float = 0.6) -> str:
    """Return a hint such as ` (did you mean 'budget'?)` for an unknown name; an empty string if none is similar.

    Args:
        name: The unknown name.
        known: The known names.
        likeness: The minimum similarity of a known name, from 0 to 1, as `difflib` measures it.
    """
    from difflib import get_close_matches  # imported here because only errors need it

    found = get_close_matches(str(name).lower(), known, n=1, cutoff=likeness)
    return f" (did you mean {found[0]!r}?)" if found else ""


def whole_number(value: object, setting: str, *, unit: str = "", least: int = 0) -> int:
    """Return `value` if it is a whole number of at least `least`.

    Args:
        value: The value to check.
        setting: Name of the setting, for the error message.
        unit: What the number counts, such as `tokens`, for the error message.
        least: The smallest valid number.

    Raises:
        ConfigError: If the value is not an int, or too small.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise ConfigError(f"{setting} is a whole number{unit and ' of ' + unit}, not {_quote(value)}", setting=setting)
    if value < least:
        raise ConfigError(f"{setting} must be {least} or more{unit and ' ' + unit}, not {value}", setting=setting)
    return value


def valid_share(value: object, setting: str, *, zero: bool = False, one: bool = True) -> float:
    """Return `value` if it is a share: a number between 0 and 1.

    Args:
        value: The value to check.
        setting: Name of the setting, for the error message.
        zero: Whether 0 is valid.
        one: Whether 1 is valid.

    Raises:
        ConfigError: If the value is not a number, or out of range.
    """
    limits = f"{'at least' if zero else 'above'} 0 and {'at most' if one else 'below'} 1"
    error = ConfigError(f"{setting} is a share {limits}, not {_quote(value)}", setting=setting)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise error
    if not (0 < value < 1 or (zero and value == 0) or (one and value == 1)):
        raise error
    return value


def switch(value: object, setting: str) -> bool:
    """Return `value` if it is True or False.

    Raises:
        ConfigError: If it is anything else. Python takes most other values as True, even `"false"`.
    """
    if not isinstance(value, bool):
        raise ConfigError(f"{setting} is True or False, not {_quote(value)}", setting=setting)
    return value


def seconds(value: object, setting: str) -> None:
    """Raise `ConfigError` unless `value` is None or a number of seconds above 0."""
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise ConfigError(f"{setting} is a number of seconds above 0, or None, not {_quote(value)}", setting=setting)


def _quote(value: object) -> str:
    """Return a value for an error message. Of long strings and objects, show only the type: they may hold secrets."""
    is_short = value is None or isinstance(value, (int, float)) or (isinstance(value, str) and len(value) <= _QUOTED)
    return repr(value) if is_short else type(value).__name__


def share_of(given: object) -> float | None:
    """Convert a share such as `5%` to a number from 0 to 1; return None if `given` is not a share."""
    import re  # imported here because it takes longer to import than this module

    found = re.fullmatch(_BUDGET, str(given).strip())
    share = float(found[1]) / 100 if found and found[2] == "%" else 2.0
    return share if share <= 1 else None


def valid_budget(budget: object) -> int | str:
    """Validate a budget, and return it as a number of tokens or as a share of the model's context window.

    Args:
        budget: A whole number of tokens, at least 1, or a string: `"8000"`, `"8k"` for 8,000, or `"80%"` for a share of
            the window.

    Raises:
        ConfigError: If the budget is None or has another form.
    """
    if budget is None:
        raise ConfigError("a budget is missing: write budget=8_000, or budget='80%' of the window", setting="budget")
    if isinstance(budget, str):
        if share_of(budget):
            return budget.strip()
        import re  # imported here because it takes longer to import than this module

        found = re.fullmatch(_BUDGET, budget.strip())
        value, unit = (float(found[1]), found[2].lower()) if found else (0.0, "%")
        value *= 1_000 if unit == "k" else 1
        if unit == "%" or not value.is_integer():
            raise ConfigError(
                f"a budget is a number of tokens such as 8000 or '8k', or a share such as '80%', not {_quote(budget)}",
                setting="budget",
            )
        budget = int(value)
    if isinstance(budget, int) and not isinstance(budget, bool) and budget < 1:
        raise ConfigError(f"a budget of {budget} tokens is too small; use 1 or more", setting="budget")
    return whole_number(budget, "budget", unit="tokens", least=1)


def one_of(value: T, known: Any, setting: str) -> T:  # noqa: ANN401 - a special form of `typing`, or a class
    """Return `value` if it is one of the values of `known`, a `Literal` type or an enumeration.

    Raises:
        ConfigError: If the value is not valid; the message lists the valid values.
    """
    from typing import get_args  # imported here because it takes longer to import than this module

    values = get_args(known) or tuple(known)
    *words, last = (repr(str(each)) for each in values)
    if value not in values:
        raise ConfigError(f"{setting} is {', '.join(words)} or {last}, not {value!r}", setting=setting)
    return value


def settings_of(kind: type[T], given: Mapping[str, object]) -> T:
    """Create a dataclass of settings from given values. Settings that are missing or None get their defaults.

    Raises:
        ConfigError: If a name is not a field of the dataclass, or the dataclass rejects a value.
    """
    from dataclasses import fields  # imported here because it takes longer to import than this module

    known = [each.name for each in fields(kind)]  # type: ignore[arg-type]  # a dataclass
    if unknown := sorted(given.keys() - set(known)):
        message = f"unknown setting {unknown[0]!r}{nearest(unknown[0], known)}; known are {', '.join(sorted(known))}"
        raise ConfigError(message, setting=unknown[0])
    return kind(**{name: value for name, value in given.items() if value is not None})


def instance(given: object, wanted: type[T], setting: str) -> T:
    """Return `given` if it is an instance of the class `wanted`.

    Raises:
        ConfigError: If it is an instance of another class; the message names both classes.
    """
    if not isinstance(given, wanted):
        name = wanted.__name__
        raise ConfigError(f"{setting} is a {name}, not {type(given).__name__}; write {name}(…)", setting=setting)
    return given


def opened(store: T) -> T:
    """Return `store`, which is an open store or None.

    Raises:
        ConfigError: If it is something else, such as the path or URL of a store, which has to be opened first.
    """
    is_open = callable(getattr(store, "put_new", None)) and not isinstance(store, type)
    if store is not None and not is_open:
        given = store.__name__ if isinstance(store, type) else type(store).__name__
        raise ConfigError(f"store is an open store, not {given}; write open_store('FILE or URL')", setting="store")
    return store


def listed(given: object, kind: type[T], setting: str) -> tuple[T, ...]:
    """Return a list of objects of one class as a tuple.

    Args:
        given: The list that was passed for the setting.
        kind: The class of its members.
        setting: Name of the setting, for error messages.

    Raises:
        ConfigError: If `given` is not a list, or a member is an instance of another class.
    """
    if isinstance(given, str | bytes) or not isinstance(given, Sequence):
        raise ConfigError(f"{setting} is a list of {kind.__name__}, not {type(given).__name__}", setting=setting)
    for member in given:
        if not isinstance(member, kind):
            message = f"{setting} is a list of {kind.__name__}, but contains {type(member).__name__}"
            raise ConfigError(message, setting=setting)
    return tuple(given)


def callables(given: Sequence[C], setting: str, *, named: bool = False) -> tuple[C, ...]:
    """Return a list of callables, such as stages or checks, as a tuple.

    Args:
        given: The list that was passed for the setting.
        setting: Name of the setting, for error messages.
        named: Whether each callable must have an attribute `name`, which reports show.

    Raises:
        ConfigError: If `given` is not a list, or an item is a class, cannot be called, or lacks a required name.
    """
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise ConfigError(f"{setting} is a list of callables, not {given!r}", setting=setting)
    for member in given:
        if isinstance(member, type):
            raise ConfigError(
                f"{setting} contains the class {member.__name__}; write {member.__name__}()", setting=setting
            )
        if not callable(member):
            raise ConfigError(f"{setting} contains {member!r}, which is not callable", setting=setting)
        if named and not isinstance(getattr(member, "name", None), str):
            raise ConfigError(
                f"{setting} contains {member!r} without a name; give it an attribute `name`, which reports show",
                setting=setting,
            )
    return tuple(given)


_LANGCHAIN: Final = (
    "prompt | ContextGuard(stabilizer) | model in a chain, middleware=[ContextGuardMiddleware(stabilizer)] in "
    "create_agent, or pre_model_hook(stabilizer) in a graph, each from ctxguard_langchain"
)
_PLACES: Final = {
    "pydantic_ai": "capabilities=[ContextGuard(stabilizer)], or history_processor(stabilizer) as a history processor, "
    "each from ctxguard_pydantic_ai",
    "agents": "RunConfig(call_model_input_filter=call_model_input_filter(stabilizer)), from ctxguard_openai_agents",
    "langchain": _LANGCHAIN,
    "langchain_core": _LANGCHAIN,
    "langgraph": _LANGCHAIN,
}
"""What to write in each framework, by the package of its objects. No framework is imported for it."""


def right_line(*given: object) -> str:
    """Return what to write in the framework whose objects are among `given`; all frameworks' lines if none is.

    Args:
        given: What the framework passed to an object that it took for a hook.
    """
    lines = [_PLACES[package] for package in _packages(given) if package in _PLACES]
    return f"write {lines[0]}" if lines else f"write, by framework: {'; '.join(dict.fromkeys(_PLACES.values()))}"


def is_of_framework(given: object) -> bool:
    """Return whether an object, or one in it, is of a framework that has a line of its own."""
    return any(package in _PLACES for package in _packages((given,)))


def _packages(given: Iterable[object]) -> Iterator[str]:
    return (type(each).__module__.partition(".")[0] for each in _flat(given))


def _flat(given: Iterable[object]) -> Iterator[object]:
    """Yield objects, and those in lists and in mappings of lists among them."""
    for each in given:
        yield each
        for inner in each.values() if isinstance(each, Mapping) else each if isinstance(each, list) else ():
            yield inner
            yield from inner if isinstance(inner, list) else ()


class NotMiddlewareError(ConfigError, AttributeError):
    """An object that is not agent middleware was given as such. To `hasattr`, the hook does not exist."""


class NotMiddleware:
    """Descriptor for the hook that LangChain's `create_agent` looks up, of a class that is not middleware.

    Args:
        why: The error message; by default it names the class, and what to import instead.
    """

    def __init__(self, why: str = "") -> None:
        self.why = why

    def __get__(self, given: object, kind: type) -> NoReturn:
        """Raise an error that says what to use instead.

        Raises:
            NotMiddlewareError: Always.
        """
        package = kind.__module__.partition(".")[0]
        raise NotMiddlewareError(
            self.why
            or f"{kind.__name__} of {package} is not agent middleware; write "
            "middleware=[ContextGuardMiddleware(stabilizer)], with ContextGuardMiddleware from ctxguard_langchain",
            setting="middleware",
        )
