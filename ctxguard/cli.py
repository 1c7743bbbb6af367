"""The command line. Exit codes: 0 fine, 1 a check failed, 2 bad usage or unreadable input."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from typer.core import TyperGroup
from typer.main import get_command
from typer.models import OptionInfo

from ctxguard import __version__
from ctxguard.errors import BudgetExceededError, ConfigError, CtxguardError, HistoryError, SessionFileError
from ctxguard.report.printing import ReportFormat, note, out, refuse_overwriting, reports_as, speak_utf8
from ctxguard.tokens.counters import COUNTERS

if TYPE_CHECKING:
    from ctxguard.config import StabilizerConfig
    from ctxguard.harness import Session
    from ctxguard.stabilizer import Stabilizer

__all__ = ["app", "main", "settings_of", "stabilizer_of"]

ELSEWHERE: Final = {
    "bench": "ctxguard.harness.bench_cli:bench",
    "read": "ctxguard.files.cli:read",
    "replay": "ctxguard.harness.replay_cli:replay",
    "pii": "ctxguard.pii.cli:app",
    "prompts": "ctxguard.prompts.cli:app",
    "serve": "ctxguard.wire.cli:serve",
    "store": "ctxguard.stores.cli:app",
    "tokens": "ctxguard.harness.cli:tokens",
}
"""Commands that live in the room they belong to, loaded when they are called."""
_PII_HELP: Final = (
    "Also search for personal data by rules, which find no names and postal addresses; list type and place."
)


class _Commands(TyperGroup):
    """Load the commands that live elsewhere on demand."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ANN401 - typer's context, of click or of its own copy
        """Return the names of all commands."""
        return [*super().list_commands(ctx), *ELSEWHERE]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ANN401 - a command of click or of typer's own copy
        """Return a command by its name."""
        if cmd_name not in ELSEWHERE:
            return super().get_command(ctx, cmd_name)
        module, _, name = ELSEWHERE[cmd_name].partition(":")
        found = getattr(import_module(module), name)
        if not isinstance(found, typer.Typer):
            alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
            alone.command()(found)
            found = alone
        command = get_command(found)
        command.name = cmd_name
        return command


app = typer.Typer(
    name="ctxguard",
    cls=_Commands,
    help="Keep long LLM conversations inside the token budget, free of personal data, valid and cheap to re-send.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        out(f"ctxguard {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_version, help="Print the version and stop.")
    ] = False,
) -> None:
    """Take the options that stand before the command."""
    del version


SessionFile = Annotated[
    str, typer.Argument(metavar="SESSION", help="A recorded session: JSON or JSONL, .gz too; - is standard input.")
]


def _budget(of: str, default: str) -> OptionInfo:
    what = f"Tokens that the {of} may take, or a share of --window."
    option: OptionInfo = typer.Option("--budget", "-b", metavar="N|N%", help=what, show_default=default)
    return option


Budget = Annotated[str | None, _budget("context", "that of the configuration, or 8000")]
CheckedBudget = Annotated[str | None, _budget("session", "that of the configuration; without one any length is fine")]
DemoBudget = Annotated[str | None, _budget("context", "that of --config, or 1400")]
Window = Annotated[
    int | None,
    typer.Option("--window", min=1, help="The model's window in tokens, where the budget is a share of it."),
]
Policy = Annotated[
    str | None,
    typer.Option(
        "--policy",
        "-p",
        help="Named chain: chat, agent, browser, recall, long_session, pattern.",
        show_default="that of the configuration, or agent",
    ),
]
AdapterName = Annotated[
    str | None,
    typer.Option(
        "--adapter", "-a", help="Shape of the session, see [bold]ctxguard adapters[/bold]; detected automatically."
    ),
]
Provider = Annotated[
    str | None,
    typer.Option(
        "--provider",
        help="Also check the role rules of openai, anthropic, gemini or strict.",
        show_default="that of the configuration, or none",
    ),
]
Counter = Annotated[
    str | None,
    typer.Option(
        "--counter",
        help=COUNTERS,
        show_default="that of the configuration, or auto",
    ),
]
Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "-c",
        help="Configuration file, YAML; options given here come before its settings.",
        show_default="ctxguard.yaml or config.yaml in the working directory, where there is one",
    ),
]
DEFAULT_BUDGET: Final = 8_000


def settings_of(config: Path | None) -> StabilizerConfig:
    """Return the settings of the file and the environment, and say where they are from."""
    from ctxguard.config import load_context_config, settings_source

    section = load_context_config(config).stabilizer
    source = settings_source(config)
    if source is not None:
        note(f"settings of {source}")
    return section


def _in_tokens(budget: int | str, window: int | None) -> int:
    from ctxguard.stabilizer import Stabilizer

    text = str(budget)
    asked = Stabilizer(int(text) if text.lstrip("-").isdecimal() else text, counter="estimate")
    if isinstance(asked.budget, str) and window is None:
        raise ConfigError(
            f"a budget of {text!r} needs the model's window; give --window N, or the budget in tokens", setting="budget"
        )
    return asked.budget_for(window)


def stabilizer_of(
    config: Path | None,
    budget: str | None,
    window: int | None,
    *,
    default: int = DEFAULT_BUDGET,
    settings: Mapping[str, str | float | None] = MappingProxyType({}),
    known: StabilizerConfig | None = None,
) -> Stabilizer:
    """Return the stabilizer of the configuration; what was given on the command line comes before it."""
    from ctxguard.stabilizer import Stabilizer

    known = known or settings_of(config)
    tokens = _in_tokens(budget or known.budget or default, window)
    return Stabilizer.from_config(config, budget=tokens, **{k: v for k, v in settings.items() if v is not None})


def _each(path: str, adapter: str | None) -> list[Session]:
    from ctxguard.harness import read_sessions

    return list(read_sessions(path, adapter=adapter))


@contextmanager
def _named(path: str, session: Session) -> Iterator[None]:
    """Name the file and the session in errors about them."""
    try:
        yield
    except (HistoryError, BudgetExceededError) as error:
        raise SessionFileError(path, f"session {session.id}: {error}") from error


@app.command()
def stabilize(
    session: SessionFile,
    budget: Budget = None,
    window: Window = None,
    policy: Policy = None,
    adapter: AdapterName = None,
    provider: Provider = None,
    counter: Counter = None,
    config: Config = None,
    report: Annotated[
        ReportFormat | None,
        typer.Option(
            "--report",
            "-r",
            help="Print the report instead of the context; of several sessions json is one a line, in their order.",
            show_default="text where --output is given, else the context",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="Write the stabilized context to this file; gzipped where it ends in .gz.",
            show_default="standard output",
        ),
    ] = None,
) -> None:
    """Stabilize a session: print its context, or the report on it.

    With [bold]--output[/bold] the context goes to the file and the report is printed.
    """
    from ctxguard.adapting import Request, stabilize_request

    refuse_overwriting(output, [session])
    settings = {"policy": policy, "provider": provider, "counter": counter}
    stabilizer = stabilizer_of(config, budget, window, settings=settings)
    contexts, reports = [], []
    for one in _each(session, adapter):
        with _named(session, one):
            request = Request(one.native, one.instructions, one.tools or ())
            done, told = stabilize_request(stabilizer, one.adapter, request)
        contexts.append(json.dumps(one.with_request(done), ensure_ascii=False, default=_plain))
        reports.append(told)
    if output is not None:
        out("\n".join(contexts), output)
    if output is None and report is None:
        out("\n".join(contexts))
    else:
        out(reports_as(reports, report or ReportFormat.TEXT))
    if not all(told.ok for told in reports):
        raise typer.Exit(1)


def _plain(value: object) -> object:
    dump = getattr(value, "model_dump", None)
    return dump(exclude_unset=True) if dump is not None else str(value)


@app.command()
def check(
    session: SessionFile,
    budget: CheckedBudget = None,
    window: Window = None,
    adapter: AdapterName = None,
    provider: Provider = None,
    counter: Counter = None,
    config: Config = None,
    pii: Annotated[bool, typer.Option("--pii/--no-pii", help=_PII_HELP)] = False,
) -> None:
    """Validate a session without changing it; say what is wrong and exit with 1.

    Checked are calls and results, the order of authority, the provider's role rules, and the budget where one is given.
    """
    from ctxguard.harness.checking import check_session

    known = settings_of(config)
    wanted = budget or known.budget
    tokens = None if wanted is None else _in_tokens(wanted, window)
    provider, counter = provider or known.provider, counter or known.counter
    failed = 0
    for one in _each(session, adapter):
        with _named(session, one):
            found = check_session(one, budget=tokens, provider=provider, counter=counter, model=known.model, pii=pii)
            lines = list(found)
        failed += len(lines)
        for line in lines:
            out(f"{one.id}: {line}".replace("\n", "\\n"))
    if failed:
        raise typer.Exit(1)
    out("ok")


@app.command()
def demo(
    budget: DemoBudget = None,
    window: Window = None,
    config: Annotated[
        Path | None, typer.Option("--config", "-c", help="Configuration file, YAML; without it none is looked for.")
    ] = None,
    report: Annotated[ReportFormat, typer.Option("--report", "-r", help="Form of the report.")] = ReportFormat.TEXT,
) -> None:
    """Run the main job on a session that ships with the package: before, after, and the report."""
    from ctxguard.harness.demo import DEMO_BUDGET, DEMO_POLICY, demo_report, show_demo
    from ctxguard.stabilizer import Stabilizer

    if config is None:  # the figures are those of the documentation, whatever lies in the working directory
        tokens = _in_tokens(budget or DEMO_BUDGET, window)
        stabilizer = Stabilizer.from_policy(DEMO_POLICY, budget=tokens, provider="openai")
    else:
        stabilizer = stabilizer_of(config, budget, window, default=DEMO_BUDGET)
    told = demo_report(stabilizer)
    if report is ReportFormat.TEXT:
        show_demo(told)
    else:
        out(reports_as([told], report))


@app.command()
def adapters() -> None:
    """List the installed adapters, whether each can be used here, and which of them read files."""
    from ctxguard.adapting.registry import OBJECT_ADAPTERS, adapter_names, find_adapter
    from ctxguard.errors import AdapterError

    for name in adapter_names():
        try:
            find_adapter(name)
            reads = "in code alone: its messages are objects" if name in OBJECT_ADAPTERS else "reads files"
            out(f"{name:<16} ready, {reads}")
        except AdapterError as error:
            out(f"{name:<16} {str(error).removeprefix(f'adapter {name!r} ')}")


def main() -> None:
    """Run the command line; an error that ctxguard raises is one line on standard error and exit code 2."""
    speak_utf8()
    try:
        app()
        sys.stdout.flush()
    except CtxguardError as error:
        note(str(error))
        sys.exit(2)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(0)
    except OSError as error:
        note(f"{error.filename or 'standard output'}: {(error.strerror or str(error)).lower()}")
        sys.stderr.close()  # otherwise Python would try to flush the rest and print a second error
        sys.exit(2)


if __name__ == "__main__":
    main()
