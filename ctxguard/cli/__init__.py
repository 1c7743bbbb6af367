"""The command line.

Exit codes are 0 for success, 1 if a check failed or something was found, and 2 for wrong usage or unreadable input.
"""

from __future__ import annotations

import sys

from ctxguard.settings import install_command

__all__ = ["main"]


def main() -> None:
    """Run the command line. If the extra `cli` is missing, print how to install it and exit with code 2."""
    try:
        import rich  # noqa: F401 - imported here to report a missing package in one sentence

        from ctxguard.cli.program import main as run
    except ModuleNotFoundError as error:
        if str(error.name).partition(".")[0] not in ("rich", "typer"):
            raise
        sys.stderr.write(f"the command line needs {install_command('cli')}\n")
        sys.exit(2)
    run()
