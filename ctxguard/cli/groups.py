"""Groups of commands, whose help is plain text that any terminal can show."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup

__all__ = ["Group", "command_group"]


class Group(TyperGroup):
    """Show help where no command is given, and each command with its whole first sentence."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 - typer's context, of click or of its own copy
        """Read the words; none at all ask for help."""
        return super().parse_args(ctx, args or ["--help"])

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401 - of click or of typer's own copy
        """List the commands; click would cut their sentences to one line."""
        rows = [(name, self.sentence(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def sentence(self, ctx: Any, name: str) -> str:  # noqa: ANN401 - as above
        """Return what a command says of itself in one sentence."""
        command: Any = self.get_command(ctx, name)
        return (command.help or "").partition("\n\n")[0].replace("\n", " ").strip()


def command_group(name: str, about: str, *, cls: type[TyperGroup] = Group) -> typer.Typer:
    """Return an empty group of commands.

    Args:
        name: the word that calls it.
        about: what its help says first.
        cls: how it finds and lists its commands.
    """
    return typer.Typer(
        name=name,
        cls=cls,
        help=about,
        add_completion=False,
        rich_markup_mode=None,  # rich's panels leave a fifth of 60 columns for what an option does
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
