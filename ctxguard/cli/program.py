"""The program `ctxguard`: its commands, the command `adapters`, and how errors are reported."""

from __future__ import annotations

import logging
import re
import sys
from importlib import import_module
from typing import Annotated, Any, Final, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from ctxguard import __version__
from ctxguard.errors import CtxguardError, reason_of
from ctxguard.report.printing import fitted, note, out, speak_utf8, working

_DEFAULT: Final = re.compile(r"\[default: \((.*)\)(;|\])", re.DOTALL)
"""Matches a default value that is described in words. Typer puts such a value in parentheses."""


class Command(TyperCommand):
    """A command whose help lists arguments without their types, since the descriptions explain them better."""

    def format_options(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401 - of click or of typer's own copy
        """Write the arguments, followed by the options."""
        sections: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        for parameter in self.get_params(ctx):
            record: Any = parameter.get_help_record(ctx)
            if record is None:
                continue
            name, about = record[0], _DEFAULT.sub(r"[default: \1\2", record[1])
            if parameter.param_type_name == "argument":
                sections["Arguments"].append((name.partition(" <")[0], about.replace("[required]", "").strip()))
            else:
                sections["Options"].append((name, about))
        for title, rows in sections.items():
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)


class Group(TyperGroup):
    """A command group that prints its help if called without a command, and that does not truncate descriptions."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 - typer's context, of click or of its own copy
        """Parse the arguments; without arguments, request help."""
        return super().parse_args(ctx, args or ["--help"])

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401 - of click or of typer's own copy
        """Write each command with its whole description, which click would truncate to one line."""
        rows = [(name, self.sentence(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def sentence(self, ctx: Any, name: str) -> str:  # noqa: ANN401 - as above
        """Return the one-sentence description of a command."""
        command: Any = self.get_command(ctx, name)
        return (command.help or "").partition("\n\n")[0].replace("\n", " ").strip()


def command_group(name: str, about: str, *, cls: type[TyperGroup] = Group) -> typer.Typer:
    """Return an empty command group with the description `about`."""
    return typer.Typer(
        name=name,
        cls=cls,
        help=about,
        add_completion=False,
        rich_markup_mode=None,  # rich's panels leave only 12 of 60 columns for the help of an option
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )


def adapters() -> None:
    """List the installed adapters, whether each can be used here, and which of them read files."""
    from ctxguard.adapting.registry import adapter_names

    with working("loading the frameworks"):
        lines = [fitted(f"{name:<16}  {_state(name)}") for name in adapter_names()]
    out("\n".join(lines))


def _state(name: str) -> str:
    from ctxguard.adapting.registry import OBJECT_ADAPTERS, find_adapter
    from ctxguard.errors import AdapterError

    try:
        find_adapter(name)
    except AdapterError as error:
        return str(error).removeprefix(f"adapter {name!r} ")
    return "ready, " + ("only in code: its messages are objects" if name in OBJECT_ADAPTERS else "reads files")


class Entry(NamedTuple):
    """The import path of a command, and its description in one line."""

    source: str
    about: str


COMMANDS: Final = {
    "stabilize": Entry("ctxguard.cli.sessions:stabilize", "Stabilize a session: print its context, or the report."),
    "check": Entry("ctxguard.cli.sessions:check", "Validate a session without changing it."),
    "brief": Entry("ctxguard.cli.sessions:brief", "Print what another agent should know about a session."),
    "replay": Entry("ctxguard.cli.replay:replay", "Replay recorded sessions call by call: guarantees and prices."),
    "bench": Entry("ctxguard.cli.bench:bench", "Compare ctxguard with other libraries on the same sessions."),
    "run": Entry("ctxguard.wire.run:run", "Run a client with every request guarded: ctxguard run -- codex"),
    "serve": Entry("ctxguard.wire.cli:serve", "Guard the requests of any client: a proxy for a provider."),
    "mcp": Entry("ctxguard.cli.mcp:mcp", "Serve tools over MCP: view files, mask texts, read full results."),
    "audit": Entry("ctxguard.wire.cli:audit_app", "Search the record of what was sent."),
    "vault": Entry("ctxguard.wire.cli:vault_app", "Erase values from the vault of a proxy."),
    "pii": Entry("ctxguard.cli.pii:app", "Find, mask, and score personal data."),
    "read": Entry("ctxguard.cli.read:read", "Show a shortened view of any file."),
    "tokens": Entry("ctxguard.cli.tokens:tokens", "Count the tokens of a request, a session, or a text."),
    "prompts": Entry("ctxguard.cli.prompts:app", "Check prompt templates."),
    "store": Entry("ctxguard.cli.store:app", "Inspect a store of results and summaries, and clean it up."),
    "adapters": Entry("ctxguard.cli.program:adapters", "List the installed adapters, and whether each can be used."),
    "demo": Entry("ctxguard.cli.demo:demo", "Show what ctxguard does, on an example session."),
}
"""The commands. Each is imported only when it is called, so that `--help` does not import all of ctxguard."""
_CLICK_ERROR: Final[type[Exception]] = next(
    kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException"
)
"""The base class of usage errors, from click or from the copy of click that newer versions of typer contain."""


class Program(Group):
    """The group of all commands, each of which is imported only when it is needed."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ANN401 - typer's context, of click or of its own copy
        """Return the names of all commands."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ANN401 - a command of click or of typer's own copy
        """Import and return a command."""
        if cmd_name not in COMMANDS:
            return super().get_command(ctx, cmd_name)
        module, _, name = COMMANDS[cmd_name].source.partition(":")
        found = getattr(import_module(module), name)
        if not isinstance(found, typer.Typer):
            alone = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
            alone.command(cls=Command)(found)
            found = alone
        command = get_command(found)
        command.name = cmd_name
        return command

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401 - as above
        """Return the command that the first argument names; the error for an unknown command suggests similar names."""
        self.commands = {**dict.fromkeys(COMMANDS), **self.commands}  # type: ignore[dict-item]  # only the names are needed, to find similar ones
        return super().resolve_command(ctx, args)

    def sentence(self, ctx: Any, name: str) -> str:  # noqa: ANN401 - as above
        """Return the description of a command without importing it."""
        del ctx
        return COMMANDS[name].about


app = command_group(
    "ctxguard",
    "Fit long LLM conversations into a token budget, mask personal data, and keep requests valid and cheap.",
    cls=Program,
)


def _print_warning(record: logging.LogRecord) -> bool:
    """Print a warning of the configuration, or of a log that was read.

    This is a logging filter rather than a handler, because handlers would be added again on every run.
    """
    note(record.getMessage())
    return True


def _version(asked: bool) -> None:
    if asked:
        out(f"ctxguard {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_version, help="Print the version and exit.")
    ] = False,
) -> None:
    """Parse the options that precede the command."""
    del version


def main() -> None:
    """Run the command line. Print any error that a user can cause as one line, and exit with code 2."""
    speak_utf8()
    for name in ("ctxguard.config", "ctxguard.harness"):
        logging.getLogger(name).addFilter(_print_warning)
    try:
        status = app(prog_name="ctxguard", standalone_mode=False)
        sys.stdout.flush()
    except (CtxguardError, ImportError) as error:
        if isinstance(error, ModuleNotFoundError):  # a bug: a missing optional package is reported as an ImportError
            raise
        note(str(error))
        sys.exit(2)
    except _CLICK_ERROR as error:
        note(_usage(error))
        sys.exit(2)
    except typer.Abort:
        sys.exit(130)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(0)
    except OSError as error:
        note(f"{error.filename or 'standard output'}: {reason_of(error)}")
        sys.stderr.close()  # otherwise Python would try to flush the rest and print a second error
        sys.exit(2)
    if status:
        sys.exit(status)


def _usage(error: Any) -> str:  # noqa: ANN401 - an exception of click or of typer's own copy
    """Format a usage error as one line that refers to the help of the failing command."""
    said = " ".join(str(error.format_message()).replace("Value error, ", "").split()).rstrip(".")
    context = getattr(error, "ctx", None)
    asked = "ctxguard" if context is None else context.command_path
    return f"{said[:1].lower()}{said[1:]} (see {asked} --help)"
