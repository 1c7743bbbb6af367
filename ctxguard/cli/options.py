"""The options that several commands share, and the settings that follow from them.

The flags and the help of options are in `data/commands.toml`. If an option is a setting of the stabilizer and has no
help there, its help is what the configuration says about the setting.
"""

from __future__ import annotations

import functools
import inspect
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar, get_origin, get_type_hints, is_typeddict

import typer

from ctxguard.errors import ConfigError
from ctxguard.report.printing import note
from ctxguard.stages.fold import WINDOW_SETTINGS, WindowOptions

if TYPE_CHECKING:
    from ctxguard.config import StabilizerConfig
    from ctxguard.stabilizer import Stabilizer

DEFAULT_BUDGET: Final = 8_000
F = TypeVar("F", bound=Callable[..., None])
Given = Mapping[str, str | int | float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class CountingOptions:
    """Options for the budget of a context, how to count it, and for which provider."""

    budget: str | None = None
    window: int | None = None
    headroom: float | None = None
    counter: str | None = None
    model: str | None = None
    provider: str | None = None
    config: Path | None = None

    def given(self) -> dict[str, Any]:
        """Return the stabilizer settings that were given on the command line, without the budget."""
        names = (field.name for field in fields(self) if field.name not in ("budget", "window", "config"))
        return {name: value for name in names if (value := getattr(self, name)) is not None}

    def tokens(self, budget: int | str, model: str | None = None) -> int:
        """Return a budget as a number of tokens. Headroom is not subtracted.

        Args:
            budget: The budget. A share, such as `80%`, is one of the window that `--window` names, or else of the
                window of the model.
            model: Model of the configuration, if the command line names none.

        Raises:
            ConfigError: If the budget is invalid, or a share of an unknown window.
        """
        from ctxguard.stabilizer import Stabilizer

        return Stabilizer(str(budget), counter="estimate", model=self.model or model, headroom=0).budget_for(
            self.window
        )

    def budgets(self) -> list[int | str]:
        """Return the budgets of an option that may name several, such as `4k,8k`, each once and in their order.

        Raises:
            ConfigError: If one of them is not a budget.
        """
        from ctxguard.settings import valid_budget

        return [] if self.budget is None else list(dict.fromkeys(map(valid_budget, self.budget.split(","))))


@dataclass(frozen=True, slots=True, kw_only=True)
class StabilizerOptions(CountingOptions):
    """Options that determine a stabilizer."""

    policy: str | None = None
    window_settings: WindowOptions = field(default_factory=WindowOptions)
    rules: str | None = None

    def given(self) -> dict[str, Any]:
        """Return the stabilizer settings that were given on the command line, without the budget.

        Raises:
            ConfigError: If a rule set is unknown.
        """
        given = CountingOptions.given(self)
        given.update(given.pop("window_settings"))
        return _with_rules(given)

    def stabilizer(
        self, known: StabilizerConfig, *, default: int | str = DEFAULT_BUDGET, changes: Given | None = None
    ) -> Stabilizer:
        """Return a stabilizer with the settings of the configuration, overridden by those of the command line.

        Args:
            known: Settings of the configuration.
            default: Budget if neither the configuration nor the command line names one. If it is a share, as in
                `serve`, the window need not be known yet, because each request names its model.
            changes: Settings that override both the configuration and the command line.

        Raises:
            ConfigError: If a setting cannot be used.
        """
        from ctxguard.stabilizer import Stabilizer

        given = self.given()
        given.update(_with_rules({name: value for name, value in (changes or {}).items() if value is not None}))
        budget = str(given.pop("budget", "")) or self.budget or known.budget or default
        require_window(str(given.get("policy", known.policy)), given)
        chosen = budget if self.window is None else self.tokens(budget)
        made = Stabilizer.from_config(self.config, budget=chosen, **given)
        if not isinstance(default, str):
            made.budget_for()  # refuses a share of an unknown window before anything is read
        return made


def rule_names(text: str) -> list[str]:
    """Return the names of rule sets in a string such as `standard,people`."""
    return list(dict.fromkeys(name.strip().lower() for name in text.replace("+", ",").split(",")))


def _with_rules(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings, with names of rule sets replaced by the rule sets."""
    if "rules" not in given:
        return dict(given)
    from ctxguard.pii.rule_sets import named_detectors

    return {**given, "rules": named_detectors(*rule_names(given["rules"]))}


def require_window(policy: str, given: Mapping[str, object]) -> None:
    """Reject settings of the window if the policy has no window, because they would have no effect."""
    from ctxguard.policies import POLICIES, policy_settings

    idle = sorted(given.keys() & set(WINDOW_SETTINGS) - policy_settings(policy)) if policy in POLICIES else []
    if idle:
        option = idle[0].replace("_", "-")
        raise ConfigError(
            f"--{option} is a setting of the window, and policy {policy!r} has none; leave it out", setting=idle[0]
        )


def settings_of(config: Path | None, *, says_none: bool = False) -> StabilizerConfig:
    """Load the configuration from its file and the environment, and print where the settings come from.

    Args:
        config: Configuration file; None means that of the working directory.
        says_none: Whether to print a line as well if there is no configuration.
    """
    from ctxguard.config import load_context_config
    from ctxguard.config.loading import settings_source

    section = load_context_config(config).stabilizer
    source = settings_source(config)
    if source is not None:
        note(f"settings of {source}")
    elif says_none:
        note(f"default settings: no ctxguard.yaml or config.yaml of ctxguard in {Path.cwd()}")
    return section


def spread(command: str = "") -> Callable[[F], F]:
    """Return a decorator that makes typer read the parameters of a function as the options of a command.

    If a parameter is a dataclass of options, each of its fields is an option of the command; if a field is a
    `TypedDict`, each of its keys is one, and only those that are given get into the dict.

    Args:
        command: Name of the command, such as `pii scan`.
    """

    def decorate(function: F) -> F:
        hints = get_type_hints(function, include_extras=True)
        groups: dict[str, Any] = {name: kind for name, kind in hints.items() if is_dataclass(kind)}

        @functools.wraps(function)
        def run(**given: Any) -> None:  # noqa: ANN401 - values of any type that typer parses
            for name, kind in groups.items():
                given[name] = _grouped(kind, given)
            function(**given)

        shown = [
            parameter.replace(annotation=_annotate(command, parameter), kind=inspect.Parameter.KEYWORD_ONLY)
            for each in inspect.signature(function).parameters.values()
            for parameter in (
                _fields_of(groups[each.name]) if each.name in groups else [each.replace(annotation=hints[each.name])]
            )
        ]
        run.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]  # `inspect.signature` reads this attribute first
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in shown}
        return run  # type: ignore[return-value]  # the same command with keyword parameters

    return decorate


def _grouped(kind: Any, given: dict[str, Any]) -> Any:  # noqa: ANN401 - a dataclass, and its instance
    """Take the options of a dataclass out of the given ones, and return the dataclass with them."""
    hints = get_type_hints(kind)
    groups = {name: get_type_hints(hint) for name, hint in hints.items() if is_typeddict(hint)}
    taken = {name: {key: one for key in keys if (one := given.pop(key)) is not None} for name, keys in groups.items()}
    others = {each.name: given.pop(each.name) for each in fields(kind) if each.name not in taken}
    return kind(**taken, **others)


def _fields_of(kind: Any) -> list[inspect.Parameter]:  # noqa: ANN401 - a dataclass
    """Return the options of a dataclass. Those of a `TypedDict` in it have the default None."""
    options: list[inspect.Parameter] = []
    hints = get_type_hints(kind, include_extras=True)
    for each in inspect.signature(kind).parameters.values():
        hint = hints[each.name]
        inner = get_type_hints(hint).items() if is_typeddict(hint) else ()
        options += [inspect.Parameter(key, each.kind, default=None, annotation=one | None) for key, one in inner]
        options += [] if inner else [each.replace(annotation=hint)]
    return options


@functools.cache
def words() -> Mapping[str, Any]:
    """Return the table of `data/commands.toml`, which contains the flags and the help of options by command.

    The key `options` contains the options that several commands share.
    """
    return tomllib.loads(files("ctxguard").joinpath("data/commands.toml").read_text(encoding="utf-8"))


@functools.cache
def _meanings() -> Mapping[str, tuple[str, str]]:
    """Return what the configuration says about each setting of the stabilizer, and the default."""
    from ctxguard.config.models import StabilizerConfig, meanings

    known = StabilizerConfig.model_fields
    said = meanings(StabilizerConfig).items()
    return {name: (f"{meaning.replace('`', '')}.", str(known[name].default).lower()) for name, meaning in said}


def _annotate(command: str, parameter: inspect.Parameter) -> Any:  # noqa: ANN401 - an annotated type
    """Return the type of a parameter, with its flags and help as annotations unless it has its own annotations."""
    if get_origin(parameter.annotation) is Annotated:
        return parameter.annotation
    settings: dict[str, Any] = {}
    for table in ("options", command.partition(" ")[0], command):
        settings.update(words().get(table, {}).get(parameter.name, {}))
    if "help" not in settings and parameter.name in _meanings():
        settings["help"], default = _meanings()[parameter.name]
        settings.setdefault("default", f"from the configuration, or {default}")
    settings["show_default"] = settings.pop("default", True)
    if settings.pop("argument", False):
        return Annotated[parameter.annotation, typer.Argument(**settings)]
    flags = (
        settings.pop("flag", f"--{parameter.name.replace('_', '-')}"),
        settings.pop("also", None),
        settings.pop("short", None),
    )
    return Annotated[parameter.annotation, typer.Option(*filter(None, flags), **settings)]
