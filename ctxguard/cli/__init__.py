"""The command line. Exit codes: 0 success, 1 a check failed or something was found, 2 bad usage or unreadable input."""

from __future__ import annotations

import sys

from ctxguard.settings import install_command

__all__ = ["main"]


def main() -> None:
    """Run the command line; if its extra is missing, say in one line how to install it, with exit code 2."""
    try:
        from ctxguard.cli.program import main as run
    except ModuleNotFoundError as error:
        if str(error.name).partition(".")[0] not in ("rich", "typer"):
            raise
        sys.stderr.write(f"the command line needs {install_command('cli')}\n")
        sys.exit(2)
    run()
