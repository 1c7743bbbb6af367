"""The options that several commands take, each defined once, and the settings that they make."""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeVar, get_type_hints

import typer
from typer.models import OptionInfo

from ctxguard.errors import ConfigError
from ctxguard.report.printing import note
from ctxguard.tokens.counters import COUNTERS

if TYPE_CHECKING:
    from ctxguard.config import StabilizerConfig
    from ctxguard.stabilizer import Stabilizer
    from ctxguard.tokens import TokenCounter

DEFAULT_BUDGET: Final = 8_000
F = TypeVar("F", bound=Callable[..., None])
Given = Mapping[str, str | int | float | None]


def _counter(default: str) -> OptionInfo:
    option: OptionInfo = typer.Option("--counter", metavar="NAME", help=COUNTERS, show_default=default)
    return option


def _model(default: str) -> OptionInfo:
    option: OptionInfo = typer.Option(
        "--model",
        metavar="NAME",
        help="Count as for this model: its vocabulary, framing, tools, and hidden prompts.",
        show_default=default,
    )
    return option


SessionFile = Annotated[
    str, typer.Argument(metavar="SESSION", help="A recorded session: JSON or JSONL, .gz too; - is standard input.")
]
AdapterName = Annotated[
    str | None,
    typer.Option(
        "--adapter",
        "-a",
        metavar="NAME",
        help="Format of the session, see `ctxguard adapters`; detected automatically.",
    ),
]
Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "-c",
        metavar="FILE",
        help="Configuration file, YAML; options override its settings.",
        show_default="ctxguard.yaml or config.yaml in the working directory, if there is one",
    ),
]
Processes = Annotated[
    int | None,
    typer.Option(
        "--processes", metavar="N", min=1, help="How many processes to use.", show_default="the number of cores"
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class TextCounting:
    """Options: how a text is counted, for commands that use no other setting of the stabilizer."""

    counter: Annotated[str | None, _counter("auto")] = None
    model: Annotated[str | None, _model("none")] = None

    def found(self) -> TokenCounter:
        """Return the counter."""
        from ctxguard.tokens import find_counter

        return find_counter(self.counter or "auto", model=self.model)


@dataclass(frozen=True, slots=True, kw_only=True)
class CountingOptions:
    """Options: how much a context may take, how that is counted, and for which provider."""

    budget: Annotated[
        str | None,
        typer.Option(
            "--budget",
            "-b",
            metavar="N|N%",
            help="Tokens that the context may take (8k is 8,000), or a share of --window.",
            show_default=f"that of the configuration, or {DEFAULT_BUDGET}",
        ),
    ] = None
    window: Annotated[
        int | None,
        typer.Option(
            "--window", metavar="N", min=1, help="The model's window in tokens, for a budget that is a share."
        ),
    ] = None
    headroom: Annotated[
        float | None,
        typer.Option(
            "--headroom",
            metavar="N|SHARE",
            min=0,
            help="What to keep free of the budget, for the reply and because counts are estimates: tokens, or a share.",
            show_default="that of the configuration, or what was measured for the model",
        ),
    ] = None
    counter: Annotated[str | None, _counter("that of the configuration, or auto")] = None
    model: Annotated[str | None, _model("that of the configuration, or none")] = None
    provider: Annotated[
        str | None,
        typer.Option(
            "--provider",
            metavar="NAME",
            help="Also check the role rules of openai, anthropic, gemini, or strict.",
            show_default="that of the configuration, or none",
        ),
    ] = None
    config: Config = None

    def given(self) -> dict[str, Any]:
        """Return the settings of the stabilizer that were given, but for the budget."""
        own = {field.name: getattr(self, field.name) for field in fields(self)}
        return {
            name: value
            for name, value in own.items()
            if value is not None and name not in ("budget", "window", "config")
        }

    def tokens(self, budget: int | str) -> int:
        """Return a budget in tokens, the headroom included; a share of the window needs a window."""
        from ctxguard.stabilizer import Stabilizer

        asked = Stabilizer(str(budget), counter="estimate")
        if isinstance(asked.budget, str) and self.window is None:
            raise ConfigError(
                f"a budget of {asked.budget!r} needs the model's window; give --window N, or the budget in tokens",
                setting="budget",
            )
        return asked.budget_for(self.window)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainOptions(CountingOptions):
    """Options: everything that makes a stabilizer."""

    policy: Annotated[
        str | None,
        typer.Option(
            "--policy",
            "-p",
            metavar="NAME",
            help="Named chain: default, chat, agent, browser, recall, long_session, pattern.",
            show_default="that of the configuration, or default",
        ),
    ] = None
    target: Annotated[
        float | None,
        typer.Option(
            "--target",
            metavar="SHARE",
            help="Share of the room that a cut frees down to, above 0 and up to 1; the lower, the rarer the cuts.",
            show_default="that of the configuration, or by the room",
        ),
    ] = None
    trail: Annotated[
        float | None,
        typer.Option(
            "--trail",
            metavar="SHARE",
            help="Share of the room that the trail of what has left may take, from 0 and below 1.",
            show_default="that of the configuration, or of the policy",
        ),
    ] = None
    on_overflow: Annotated[
        Literal["raise", "bound"] | None,
        typer.Option(
            "--on-overflow",
            help="What happens if mandatory messages do not fit: raise an error, or bound the user's long texts, too.",
            show_default="that of the configuration, or raise",
        ),
    ] = None
    rules: Annotated[
        str | None,
        typer.Option(
            "--rules",
            metavar="NAME,NAME",
            help="What is masked: standard, people (names and addresses), digits, ssn; people is used beside standard: "
            "standard,people.",
            show_default="those of the configuration, or of the policy",
        ),
    ] = None

    def given(self) -> dict[str, Any]:
        """Return the settings of the stabilizer that were given, but for the budget.

        Raises:
            ConfigError: there is no such rule set.
        """
        return _with_rules(CountingOptions.given(self))

    def stabilizer(
        self, known: StabilizerConfig, *, default: int | str = DEFAULT_BUDGET, changes: Given | None = None
    ) -> Stabilizer:
        """Return the stabilizer of the configuration, with what was given on the command line.

        Args:
            known: the settings of the configuration.
            default: the budget if neither names one; where it is a share, so may the others be: each call then names
                its model.
            changes: settings that override both.

        Raises:
            ConfigError: a setting cannot be used.
        """
        from ctxguard.stabilizer import Stabilizer

        given = self.given()
        given.update(_with_rules({name: value for name, value in (changes or {}).items() if value is not None}))
        budget = str(given.pop("budget", "")) or self.budget or known.budget or default
        require_window(str(given.get("policy", known.policy)), given)
        is_share = isinstance(default, str) and self.window is None and str(budget).strip().endswith("%")
        return Stabilizer.from_config(self.config, budget=budget if is_share else self.tokens(budget), **given)


def rule_names(text: str) -> list[str]:
    """Return the names of rule sets in a text: `standard,people`."""
    return list(dict.fromkeys(name.strip().lower() for name in text.replace("+", ",").split(",")))


def _with_rules(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings with the rule sets themselves in place of their names."""
    if "rules" not in given:
        return dict(given)
    from ctxguard.pii.rule_sets import named_rules

    return {**given, "rules": named_rules(*rule_names(given["rules"]))}


def require_window(policy: str, given: Mapping[str, object]) -> None:
    """Refuse settings of the window for a policy that has none: they would do nothing."""
    from ctxguard.policies import POLICIES, policy_settings

    of_window = {"on_overflow", "target", "trail"}
    idle = sorted(of_window & given.keys() - policy_settings(policy)) if policy in POLICIES else []
    if idle:
        option = idle[0].replace("_", "-")
        raise ConfigError(
            f"--{option} is a setting of the window, and policy {policy!r} has none; leave it out", setting=idle[0]
        )


def settings_of(config: Path | None) -> StabilizerConfig:
    """Return the settings of the file and the environment, and print where they are from."""
    from ctxguard.config import load_context_config
    from ctxguard.config.loading import settings_source

    section = load_context_config(config).stabilizer
    source = settings_source(config)
    if source is not None:
        note(f"settings of {source}")
    return section


def spread(**defaults: str) -> Callable[[F], F]:
    """Make typer see the fields of a dataclass of options as options of the command that takes it.

    Args:
        **defaults: what help says an option is if it is not given, where a command has a default of its own.
    """

    def decorate(command: F) -> F:
        hints = get_type_hints(command, include_extras=True)
        groups: dict[str, Any] = {name: kind for name, kind in hints.items() if is_dataclass(kind)}

        @functools.wraps(command)
        def run(**given: Any) -> None:  # noqa: ANN401 - whatever typer has read
            for name, kind in groups.items():
                given[name] = kind(**{field.name: given.pop(field.name) for field in fields(kind)})
            command(**given)

        shown = [
            parameter
            for each in inspect.signature(command).parameters.values()
            for parameter in (
                _fields_of(groups[each.name], defaults)
                if each.name in groups
                else [each.replace(annotation=hints[each.name], kind=inspect.Parameter.KEYWORD_ONLY)]
            )
        ]
        run.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]  # what inspect looks for first
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in shown}
        return run  # type: ignore[return-value]  # the same command by other words

    return decorate


def _fields_of(kind: Any, defaults: Mapping[str, str]) -> list[inspect.Parameter]:  # noqa: ANN401 - a dataclass
    hints = get_type_hints(kind, include_extras=True)
    return [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=field.default,
            annotation=_with_default(hints[field.name], defaults.get(field.name)),
        )
        for field in fields(kind)
    ]


def _with_default(hint: Any, told: str | None) -> Any:  # noqa: ANN401 - an annotated type
    if told is None:
        return hint
    option: OptionInfo = copy.copy(hint.__metadata__[0])
    option.show_default = told
    return Annotated[hint.__origin__, option]
