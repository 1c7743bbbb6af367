"""Command groups whose help is plain text that any terminal can show."""

from __future__ import annotations

import re
from typing import Any, Final

import typer
from typer.core import TyperCommand, TyperGroup

_DEFAULT: Final = re.compile(r"\[default: \((.*)\)(;|\])", re.DOTALL)
"""Matches a default value that is described in words. Typer puts such a value in parentheses."""


class Command(TyperCommand):
    """A command whose help lists arguments without their types, since the descriptions explain them better."""

    def format_options(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401 - of click or of typer's own copy
        """Write the arguments, followed by the options."""
        told: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        for parameter in self.get_params(ctx):
            record: Any = parameter.get_help_record(ctx)
            if record is None:
                continue
            name, about = record[0], _DEFAULT.sub(r"[default: \1\2", record[1])
            if parameter.param_type_name == "argument":
                told["Arguments"].append((name.partition(" <")[0], about.replace("[required]", "").strip()))
            else:
                told["Options"].append((name, about))
        for title, rows in told.items():
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
